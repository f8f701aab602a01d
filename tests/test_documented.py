"""What the READMEs show works: each command is one, each block of YAML can be planned, and files
that a page names are there. (`tests/ablate/test_guides.py` runs the guides,
`tests/ablate/cli/test_own_data.py` the first page's experiment and its Python.)
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from ablate.cli.main import build_parser, main
from ablate.spec.read import read_spec
from tests.documented import ROOT, Command, blocks, commands, pages
from tests.trainables.data import trees
from trainables.jobs.batch.__main__ import build_parser as batch_parser

SHOWN = [command for page in pages() for command in commands(page)]
SPACE = {"optimizer.lr": {"low": 1e-4, "high": 1e-2}}  # for the `…` of a README


def check(command: Command) -> None:
    """By the parser that a user would meet."""
    first, *words = command.words
    if first == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert words[0] in targets, f"no target {words[0]}"
        return
    if first == "python":
        module, *words = words[1:]
        assert find_spec(module) is not None, f"no module {module}"
        if module == "trainables.jobs.batch":
            batch_parser().parse_args(words)
        if module != "ablate.run":
            return
        words = ["run", *words]
    if first == "…":
        words = ["run", "my.yaml", *words]
    known = next(a for a in build_parser()._actions if a.dest == "command").choices
    assert known is not None and words[0] in known, f"no command {words[0]}"
    if len(words) > 1 or command.block:
        args = build_parser().parse_args(words[: words.index(">")] if ">" in words else words)
        spec = ROOT / str(getattr(args, "spec", ""))
        if spec.is_file():
            studies = read_spec(spec).spec.studies
            assert set(args.studies) <= set(studies), f"{spec.name} has no such study"


def test_commands_are_found() -> None:
    assert len(SHOWN) > 40
    first = {" ".join(command.words[:3]) for command in SHOWN}
    assert {"python -m ablate.run", "ablate data check", "make test", "… --seeds 10"} <= first
    assert {command.page for command in SHOWN} >= {"README.md", "CONTRIBUTING.md"}


def test_each_command_is_one() -> None:
    faults = []
    for command in SHOWN:
        try:
            check(command)
        except (AssertionError, SystemExit) as fault:
            faults.append(f"{command.page}: {' '.join(command.words)}: {fault}")
    assert not faults, "\n".join(faults)


def test_links_lead_to_files() -> None:
    dead = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages()
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not dead, dead


# ---------------------------------------------------------------- YAML of the guides


@pytest.fixture
def planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(spec: dict[str, Any], *options: str) -> str:
        path = tmp_path / "spec.yaml"
        path.write_text(yaml.safe_dump({"name": "shown", **spec}, sort_keys=False))
        code = main(["run", str(path), "--plan", "--out", str(tmp_path / "runs"), *options])
        said = capsys.readouterr()
        assert code == 0, said.err
        return said.out

    return run


GUIDES = ROOT / "search_spaces" / "guides"
DATA, CLASSIFIED, FAIR = (
    blocks(GUIDES / f"{name}.md", "yaml")[0] for name in ("data", "classification", "comparing")
)
ALONE = {"only": {"design": "grid", "grid": {"optimizer.lr": [1e-3]}}}


def test_a_data_set_as_it_is_unpacked(planned: Any, tmp_path: Path) -> None:
    assert "root: /datasets/CUB_200_2011" in DATA
    root = trees.cub200(tmp_path / "CUB_200_2011")
    shown = yaml.safe_load(DATA.replace("/datasets/CUB_200_2011", str(root)))
    shown["trial"]["training"] = {"per_class": 1}
    assert "only: grid, 1 cells" in planned({**shown, "studies": ALONE}, "--allow-partial")


def test_a_classification(planned: Any) -> None:
    assert "only: grid, 1 cells" in planned({**yaml.safe_load(CLASSIFIED), "studies": ALONE})


def test_a_fair_comparison(planned: Any) -> None:
    """With no warning: it is one by the rule that it shows."""
    studies = yaml.safe_load(FAIR.replace("space: …", f"space: {SPACE}"))
    said = planned({"studies": studies})
    assert "best_ddml: promote, 5 cells" in said, "the neutral one is a candidate"
    assert "judged: compare, 3 cells" in said, "and DDML at its best that is not neutral stands by"
    assert "warning" not in said
    studies["tune_ddml"]["trials"] = 8
    assert "warning" in planned({"studies": studies}), "and without it there is one"
