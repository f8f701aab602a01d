"""What changes the digest of a component's source, and what does not."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import trainables
from trainables.core import components
from trainables.core.components import (
    ENTRY_MODULES,
    NoSource,
    compute_component_digest,
    digest_class,
    digest_each_module,
    digest_modules,
)
from trainables.data.dataset import DATASETS
from trainables.losses.base import LOSSES
from trainables.methods.base import METHODS

ROOT = Path(__file__).parents[3]
NUMBER = itertools.count()
Files = dict[str, str]
Digest = Callable[..., str]

METHOD = '''"""A method."""

import math
from typing import TYPE_CHECKING

from . import shapes
from PKG.helper import SCALE, soften

if TYPE_CHECKING:
    from PKG.unused import Anything


class Thing:
    """Its formula."""

    width: int = 3

    def terms(self, x: float, *, factor: float = 2.0) -> float:
        # doubled
        from PKG.late import shift

        if x < 0:
            raise ValueError(f"{x} is negative")
        return -SCALE * soften(shapes.double(x, factor)) + shift(math.pi)
'''
FILES: Files = {
    "__init__.py": "",
    "method.py": METHOD,
    "helper.py": "SCALE = 4.0\n\ndef soften(value, slope=0.5):\n    return slope * value\n",
    "shapes.py": "def double(x, factor):\n    return x * factor\n",
    "late.py": "from PKG.deep import OFFSET\n\ndef shift(x):\n    return x + OFFSET\n",
    "deep.py": "OFFSET = 1.0\n",
    "unused.py": "class Anything:\n    size = 1\n",
}


@pytest.fixture(autouse=True)
def forget_modules() -> Iterator[None]:
    yield
    components._parse_module.cache_clear()


@pytest.fixture
def digest_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Digest:
    """Write files into a folder of their own and return the digest of a module among them."""

    def digest(files: Files, module: str = "outside.method", folder: str = "outside") -> str:
        root = tmp_path / str(next(NUMBER))
        for name, text in files.items():
            path = root / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("PKG", "outside"), encoding="utf-8")
        with monkeypatch.context() as patch:
            patch.syspath_prepend(root if "." in module else root / folder)
            components._parse_module.cache_clear()
            return digest_modules([module])

    return digest


def edit(name: str, old: str, new: str) -> Files:
    assert old in FILES[name]
    return {**FILES, name: FILES[name].replace(old, new)}


def test_words_do_not_count_and_every_statement_does(digest_of: Digest) -> None:
    before = digest_of(FILES)
    same = [
        edit("method.py", '"""Its formula."""', '"""Its formula, and more."""'),
        edit("method.py", "# doubled", "# twice"),
        edit("method.py", "x: float, *, factor: float", "x, *, factor"),
        edit("method.py", "width: int = 3", "width: float = 3"),
        edit("method.py", "{x} is negative", "{x} is below zero"),
        edit("unused.py", "size = 1", "size = 2"),  # for annotations alone
        {**FILES, "beside.py": "SIZE = 1\n"},
    ]
    other = [
        edit("method.py", "width: int = 3", "width: int = 4"),
        edit("method.py", "factor: float = 2.0", "factor: float = 2.5"),
        edit("method.py", "x < 0", "x <= 0"),
        edit("method.py", "ValueError", "TypeError"),
        edit("helper.py", "slope=0.5", "slope=0.25"),
        edit("shapes.py", "x * factor", "x + factor"),  # a relative import
        edit("late.py", "x + OFFSET", "x - OFFSET"),  # a late import
        edit("deep.py", "1.0", "1"),  # reached through it
    ]
    assert [digest_of(files) for files in same] == [before] * len(same)
    digests = [digest_of(files) for files in other]
    assert len({before, *digests}) == len(other) + 1


def test_a_module_of_no_package_counts_with_those_beside_it(digest_of: Digest) -> None:
    def digest(folder: str, step: int) -> str:
        method = "import torch\nfrom loose_helper import STEP\n"
        files = {"loose_method.py": method, "loose_helper.py": f"STEP = {step}\n"}
        return digest_of(files, "loose_method", folder)

    assert digest("mine", 1) != digest("mine", 2)
    assert digest("site-packages", 1) == digest("site-packages", 2), "which is everybody's"


def test_a_class_without_source_says_so() -> None:
    space = {"__name__": "a_notebook"}
    exec("class Made:\n    def f(self):\n        return 1\n", space)
    with pytest.raises(NoSource, match=r"a_notebook\.Made"):
        digest_class(space["Made"])  # type: ignore[arg-type]
    space = {"__name__": __name__}
    exec("class Path:\n    def f(self):\n        return 1\n", space)  # a name that this file has
    with pytest.raises(NoSource, match="<string>"):
        digest_class(space["Path"])  # type: ignore[arg-type]
    with pytest.raises(NoSource, match=r"math"):
        digest_modules(["math"])


def test_every_component_has_a_digest_and_parts_differ() -> None:
    named = [("loss", LOSSES), ("method", METHODS), ("data", DATASETS)]
    names = [f"{kind}.{name}" for kind, registry in named for name in registry]
    digests = {name: compute_component_digest(name) for name in (*ENTRY_MODULES, *names)}
    assert all(digest is not None for digest, _ in digests.values()), digests
    assert len({digests[name] for name in ENTRY_MODULES}) == len(ENTRY_MODULES)


def find_modules() -> dict[str, tuple[str, ...]]:
    """Return the modules in which the digests of losses, methods, sampler and optimiser begin."""
    named = [("loss", LOSSES), ("method", METHODS)]
    modules = {
        f"{kind}.{name}": (registry[name].__module__,)
        for kind, registry in named
        for name in registry
    }
    return modules | {name: ENTRY_MODULES[name] for name in ("sampler", "optimizer")}


def test_a_digest_covers_few_modules() -> None:
    """What a component does not need must not ask for --same-code."""
    most = {"loss": 15, "method": 30, "sampler": 5, "optimizer": 10}  # 10, 27, 3 and 7 are needed
    covered = {name: digest_each_module(names) for name, names in find_modules().items()}
    assert {
        name: len(modules)
        for name, modules in covered.items()
        if len(modules) > most[name.partition(".")[0]]
    } == {}
    assert not {"trainables", "trainables.core.export"} & {m for of in covered.values() for m in of}


def test_a_limit_or_a_word_elsewhere_changes_no_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in (ROOT / "trainables").rglob("*.py"):
        copy = tmp_path / file.relative_to(ROOT / "trainables")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)

    def find_changes(*edits: tuple[str, str, str]) -> set[str]:
        """Return the components whose digests other texts in the copy of the package change."""
        for name, old, new in edits:
            text = (tmp_path / name).read_text(encoding="utf-8")
            assert old in text
            (tmp_path / name).write_text(text.replace(old, new), encoding="utf-8")
        with monkeypatch.context() as patch:
            patch.setattr(trainables, "__path__", [str(tmp_path)])
            components._parse_module.cache_clear()
            return {
                name for name, of in find_modules().items() if digest_modules(of) != before[name]
            }

    before = {name: digest_modules(modules) for name, modules in find_modules().items()}
    changes = find_changes(
        ("core/export.py", "MOST_BYTES = 2**33", "MOST_BYTES = 2**34"),
        ("jobs/job.py", "import json", "import json, sys"),
        ("__init__.py", "import trained_model", "import trained_model as model"),
        ("data/sampler.py", "is not a multiple of", "is no multiple of"),
        ("losses/triplet.py", "Set normalize: true, or", "Take normalize: true, or"),
        ("methods/nir.py", "Set none instead", "Set `none`"),
    )
    assert changes == set()
    assert find_changes(("data/sampler.py", "size % per_class", "size % 2")) == {"sampler"}


def test_digests_of_the_core_need_no_torch() -> None:
    code = (
        "import sys; from trainables.core import components as s; "
        "[s.compute_component_digest(name) for name in s.ENTRY_MODULES]; "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, check=True
    )
    assert done.stdout.strip() == "False"


def find_interpreters() -> list[str]:
    """Return other versions of Python on this machine that a user may have."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    interpreters = []
    for minor in range(11, 15):
        if minor != sys.version_info.minor:
            places = sorted(versions.glob(f"3.{minor}.*/bin/python"))
            path = str(places[-1]) if places else shutil.which(f"python3.{minor}")
            interpreters += [path] if path is not None else []
    return interpreters


@pytest.mark.slow
@pytest.mark.parametrize("python", find_interpreters())
def test_other_versions_of_python_give_the_same(python: str) -> None:
    modules = {
        cls.__module__ for names in (LOSSES, METHODS) for cls in map(names.__getitem__, names)
    }
    modules |= {module for names in ENTRY_MODULES.values() for module in names}
    digests = {name: digest_modules([name]) for name in sorted(modules)}
    code = (
        "import json, sys\n"
        "from trainables.core.components import digest_modules\n"
        "print(json.dumps({name: digest_modules([name]) for name in json.loads(sys.argv[1])}))"
    )
    done = subprocess.run(
        [python, "-c", code, json.dumps(list(digests))],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )
    if "cannot execute" in done.stderr or done.returncode == 127:
        pytest.skip(f"{python} does not run")
    assert json.loads(done.stdout) == digests
