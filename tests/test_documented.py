"""What the READMEs show works: each command is one, each block of YAML can be planned, and files
that a page names are there. What a page shows is run by `tests/test_tutorials.py` (in the first
page, the experiment and its Python by `tests/ablate/cli/test_own_data.py`), or the page says before
the block what it needs: a GPU, a cluster or the internet.
"""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from ablate.cli.main import build_parser, main
from ablate.spec.read import read_spec
from ablate.spec.yaml_loader import load_text
from tests.documented import GUIDES, ROOT, Command, blocks, commands, pages, split_commands
from tests.trainables.data import trees
from tests.tutorials import LISTED, STAND_INS, list_blocks, list_tutorials
from trainables.jobs.batch import build_parser as batch_parser

PACKAGES = ("ablate", "reports", "trainables")
SHOWN = [command for page in pages() for command in commands(page)]


def normalize(words: list[str]) -> list[str]:
    """Return `python -m ablate.run …`, and `… --option` of a table, as `ablate run …`."""
    if words[:3] == ["python", "-m", "ablate.run"]:
        return ["ablate", "run", *words[3:]]
    return ["ablate", "run", "my.yaml", *words[1:]] if words[0] == "…" else words


def check(command: Command) -> None:
    """By the parser that a user would meet."""
    first, *words = normalize(command.words)
    if first == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert words[0] in targets, f"no target {words[0]}"
        return
    if first == "python":
        module, *words = words[1:]
        assert find_spec(module) is not None, f"no module {module}"
        if module == "trainables.jobs.batch":
            batch_parser().parse_args(words)
        return
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
    assert {"python -m ablate.run", "ablate data check", "make test"} <= first
    assert {command.page for command in SHOWN} >= {"README.md", "CONTRIBUTING.md"}


def test_each_command_is_one() -> None:
    faults = []
    for command in SHOWN:
        try:
            check(command)
        except (AssertionError, SystemExit) as fault:
            if isinstance(fault, SystemExit) and fault.code == 0:  # --help
                continue
            faults.append(f"{command.page}: {' '.join(command.words)}: {fault}")
    assert not faults, "\n".join(faults)


def name_options(words: list[str]) -> set[tuple[str, str]]:
    """Return a command of ablate with each of its options, and with none."""
    first, *rest = normalize(words)
    if first != "ablate":
        return set()
    options = (word.partition("=")[0] for word in rest if word.startswith("--"))
    return {(rest[0], option) for option in ("", *options)}


TESTED = {  # commands with options that no tutorial runs, by the test that does
    "tests/ablate/backends/test_base.py": ("run --backend",),
    "tests/ablate/cli/test_decide.py": ("plan --decide",),
    "tests/ablate/cli/test_deep_greys.py": ("data --grey-range", "evaluate --grey-range"),
    "tests/ablate/cli/test_explain.py": ("explain", "explain --out", "plan"),
    "tests/ablate/cli/test_evaluate_embeddings.py": ("evaluate",),
    "tests/ablate/cli/test_ui.py": ("ui",),
    "tests/ablate/spec/test_recipes.py": ("new", "new --from", "new --help"),
    "tests/ablate/test_wheel.py": ("demo",),
    "tests/reports/test_foreign.py": (
        *("judge", "judge --row", "judge --metric", "judge --baseline", "judge --where"),
        *("judge --split", "judge --shuffles", "judge --out", "judge --json"),
    ),
}


def test_what_is_shown_is_run_or_listed() -> None:
    """Each command with each option, by a tutorial, or in a block that says what it needs."""
    shown = [
        (str(page.relative_to(ROOT)), block) for page in pages() for block in list_blocks(page)
    ]
    assert {block.need for _, block in shown} <= {None, *LISTED, *STAND_INS}
    run = [block for page in list_tutorials() for block in list_blocks(page) if block.runs]
    listed = [block for _, block in shown if block.need in LISTED]
    known = {
        option
        for block in (*run, *listed)
        for words in split_commands(block.code)
        for option in name_options(words)
    }
    for test, options in TESTED.items():
        assert all(option.split()[0] in (ROOT / test).read_text() for option in options), test
        known |= {(name, option) for name, _, option in (text.partition(" ") for text in options)}
    faults = [
        f"{command.page}: {' '.join(command.words)}"
        for command in SHOWN
        if not name_options(command.words) <= known
    ]
    assert not faults, "neither run nor listed:\n" + "\n".join(faults)
    # other languages: files of tutorials, Python that runs, and specs, which are read below
    others = {
        (page, block.language)
        for page, block in shown
        if block not in run and block not in listed and block.language not in ("", "bash", "yaml")
    }
    files = {(str(page.relative_to(ROOT)), kind) for page in list_tutorials() for kind in KINDS}
    assert others - files == {("README.md", "python")}, "run by tests/ablate/cli/test_own_data.py"
    for block in listed:
        if block.language == "python":
            compile(block.code, "page", "exec")


KINDS = ("python", "toml", "markdown")
ALONE = {"only": {"design": "grid", "grid": {"optimizer.lr": [1e-3]}, "evaluate": ["val", "test"]}}
TABLE = {"kind": "compare", "study": "only", "metrics": ["test/map_at_r"]}


def complete(shown: dict[str, Any]) -> dict[str, Any]:
    """Return the spec whose part a page shows: a trial, a section of it, studies or a report."""
    if {"studies", "extends"} & {*shown}:
        return shown
    if all("design" in study for study in shown.values()):
        return {"studies": shown}
    if "report" in shown:
        return {"studies": ALONE, "report": {"tables": [TABLE], **shown["report"]}}
    return {"studies": ALONE, **(shown if "trial" in shown else {"trial": shown})}


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_each_block_of_yaml_is_of_a_spec(page: Path, tmp_path: Path) -> None:
    for block in list_blocks(page):
        if block.language != "yaml" or (block.file and page in list_tutorials()):
            continue  # a file of a tutorial, which runs it
        code = block.code.replace("extends: ", f"extends: {ROOT}/search_spaces/")
        shown = complete(load_text(code, page.name).data)
        path = tmp_path / "spec.yaml"
        path.write_text(json.dumps({"name": "shown", **shown}))
        assert read_spec(path).order


def test_links_lead_to_files() -> None:
    dead = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages()
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not dead, dead


NAMED = re.compile(
    r"(?<![\w./-])(?:ablate|docs|reports|search_spaces|tests|trainables)/[\w./-]*"
    r"\.(?:csv|ipynb|j2|json|md|png|py|sh|svg|yaml)\b"
)


def test_paths_that_documents_specs_and_docstrings_name_are_there() -> None:
    code = (path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
    specs = (ROOT / "search_spaces").rglob("*.yaml")
    dead = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in (*pages(), *specs, *code, ROOT / "Makefile")
        for name in NAMED.findall(path.read_text(encoding="utf-8"))
        if "NAME" not in name and not (ROOT / name).is_file()
    ]
    assert not dead, dead


FOLDERS = re.compile(r"\n\| folder or module \|.*?\n\n", re.DOTALL)
TERMS = re.compile(r"\n\| term \|.*?\n\|[-|]+\n(.*)", re.DOTALL)
MOST_TERMS = 36


def test_the_readmes_of_packages_name_places_that_exist() -> None:
    """And each folder of code, itself or one that it is in."""
    for package in PACKAGES:
        text = (ROOT / package / "README.md").read_text(encoding="utf-8")
        rows = FOLDERS.findall(text)[0].strip().splitlines()[2:]
        places = [name for row in rows for name in re.findall(r"`([\w./]+)`", row.split(" | ")[0])]
        folders = [ROOT / package / name for name in places if name.endswith("/")]
        code = {path.parent for path in (ROOT / package).rglob("*.py")} - {ROOT / package}
        hidden = [path for path in code if not any(path.is_relative_to(f) for f in folders)]
        assert not hidden, f"{package}/README.md has no row of {hidden}"
        places += re.findall(r"`(\w+/[\w/]*(?:\.\w+)?)`", text)
        bases = (ROOT, ROOT / package)
        dead = [name for name in places if not any((base / name).exists() for base in bases)]
        assert not dead, f"{package}/README.md: {dead}"


def test_the_glossary_is_short_and_has_each_term_once() -> None:
    terms = [
        row.strip("| ").split(" | ")[0]
        for package in PACKAGES
        for table in TERMS.findall((ROOT / package / "README.md").read_text(encoding="utf-8"))
        for row in table.splitlines()
        if row.startswith("|")
    ]
    assert len(terms) == len(set(terms)) <= MOST_TERMS, terms


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


DATA, CLASSIFIED, FAIR = (
    blocks(GUIDES / f"{name}.md", "yaml")[0] for name in ("data", "classification", "comparing")
)


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
    spec = yaml.safe_load(FAIR)
    said = planned(spec)
    assert "best_ddml: promote, 3 cells" in said, "the neutral one is a candidate"
    assert "judged: compare, 3 cells" in said, "and DDML at its best that is not neutral stands by"
    assert "warning" not in said
    spec["studies"]["tune_ddml"]["around"] = {"best_of": "rates"}
    assert "judged favours plain, which searched optimizer.lr in tune_plain" in planned(spec)


SAVING = [block for block in blocks(GUIDES / "comparing.md", "yaml") if block[:8] == "studies:"]
SMALL = {
    "data": {"name": "digits", "image_size": 32},
    "backbone": {"name": "mobilenetv3_small_050", "weights": "none", "mode": "frozen"},
    "method": {"name": "ddml"},
    "training": {"batch_size": 60, "per_class": 20},
}


@pytest.mark.parametrize("shown", SAVING, ids=("searches", "factors"))
def test_options_that_no_recipe_has(planned: Any, shown: str) -> None:
    spec = yaml.safe_load(shown)
    spec["studies"].get("again", {}).pop("warm_start", None)  # needs the ledger of that sweep
    said = planned({"trial": SMALL, **spec})
    assert all(f"  {name}: " in said for name in spec["studies"])
