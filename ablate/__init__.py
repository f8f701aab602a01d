"""ablate: a YAML file becomes a checked plan of trials, and finished trials become tables.

    results = ablate.run("search_spaces/ddml.yaml", out="runs")
    results.frame          # cells × metrics, one row per cell and seed

Importing this package imports neither torch nor Ray.
"""

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from ablate.api import Results
    from reports.foreign import RunVerdicts

__version__ = "0.2.0"
__all__ = ["__version__", "judge", "run"]


def check_sibling_packages() -> None:
    """Raise ImportError if Python takes a file of the user's for a package of ablate's.

    Python searches the folder of the script, or with `python -m` the working folder, before the
    folder of ablate.
    """
    root = Path(__file__).resolve().parents[1]
    for name in ("trainables", "reports"):
        spec = find_spec(name)
        if spec is None or Path(spec.origin or "").resolve() == root / name / "__init__.py":
            continue
        if spec.origin is None:  # a folder without `__init__.py`, such as OUT/reports
            sys.path.append(str(root))  # Python prefers the package to such a folder
            continue
        raise_as_sentence(
            ImportError(
                f"{spec.origin} hides a part of ablate, because Python takes it for `{name}`. "
                "Rename it, or work in another folder."
            )
        )


def raise_as_sentence(error: ImportError) -> NoReturn:
    """Raise an error that a terminal shows as its text alone, without a traceback."""
    print_others = sys.excepthook

    def print_error(
        kind: type[BaseException], value: BaseException, trace: TracebackType | None
    ) -> None:
        """Print this error's text, and all other errors as before."""
        if value is error:
            sys.stderr.write(f"{value}\n")
        else:
            print_others(kind, value, trace)

    sys.excepthook = print_error
    raise error


check_sibling_packages()


def run(spec: str | Path | Mapping[str, Any], **options: Any) -> "Results":
    """Run a sweep; see `ablate.api.run` for the options."""
    from ablate import api

    return api.run(spec, **options)


def judge(runs: Any, **options: Any) -> "RunVerdicts":
    """Judge a table of runs, or a file of one; see `reports.foreign.judge_runs` for the options."""
    from reports.foreign import judge_runs, read_runs

    return judge_runs(read_runs(runs) if isinstance(runs, str | Path) else runs, **options)
