"""Print statements, functions, modules and exports by folder, beside those of the last version.

python .ci/size.py                  print; exit code 1 if the packages are above the limit
python .ci/size.py --record 0.2.0   print, and keep the numbers as those of that version
python .ci/size.py --commit a53380  count the files of a commit instead of the working tree's
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORD = Path(__file__).with_name("size.json")
PACKAGES = ("ablate", "trainables", "reports")
PRODUCT = "product (all)"
LIMIT = 25_500  # statements of the three packages together
COLUMNS = ("statements", "functions", "modules", "exports")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (ast.Module, ast.ClassDef, *FUNCTIONS)


def count_source(source: str) -> Counter[str]:
    """Return the counts of one module.

    statements: all but imports and docstrings. functions: methods and inner ones, too. exports:
    names without a leading underscore that the module defines at its top.
    """
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    left_out = sum(isinstance(node, (ast.Import, ast.ImportFrom)) for node in nodes)
    left_out += sum(
        isinstance(node, SCOPES) and ast.get_docstring(node, clean=False) is not None
        for node in nodes
    )
    return Counter(
        statements=sum(isinstance(node, ast.stmt) for node in nodes) - left_out,
        functions=sum(isinstance(node, FUNCTIONS) for node in nodes),
        modules=1,
        exports=len({name for name in list_names(tree) if not name.startswith("_")}),
    )


def list_names(tree: ast.Module) -> list[str]:
    """Return the names of a module's top-level functions, classes and assignments."""
    names = []
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, *FUNCTIONS)):
            names.append(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = [part for target in targets for part in ast.walk(target)]
            stored = [part for part in parts if isinstance(part, ast.Name)]
            names += [part.id for part in stored if isinstance(part.ctx, ast.Store)]
    return names


def run_git(*arguments: str) -> str:
    """Return what a git command of this repository prints."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def count_folders(commit: str | None = None) -> dict[str, Counter[str]]:
    """Return the counts of each folder of a package, of each package, and of the tests.

    commit: whose files are counted. Default: those of the working tree.
    """
    listed = run_git("ls-tree", "-r", "--name-only", commit) if commit else run_git("ls-files")
    folders: dict[str, Counter[str]] = {}
    for name in listed.splitlines():
        top, *rest = Path(name).parts
        if top not in (*PACKAGES, "tests") or not name.endswith(".py"):
            continue
        if commit is None and not (ROOT / name).is_file():
            continue  # deleted, and not yet committed
        text = run_git("show", f"{commit}:{name}") if commit else (ROOT / name).read_text("utf-8")
        counts = count_source(text)
        folder = f"{top}/{rest[0]}" if len(rest) > 1 else top
        keys = {folder, f"{top} (all)"} | ({PRODUCT} if top in PACKAGES else set())
        for key in keys:
            folders.setdefault(key, Counter()).update(counts)
    return dict(sorted(folders.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--record", metavar="VERSION", help="keep the numbers as this version's")
    parser.add_argument("--commit", help="count the files of a commit")
    arguments = parser.parse_args()
    folders = count_folders(arguments.commit)
    last = json.loads(RECORD.read_text()) if RECORD.is_file() else {"version": "-", "folders": {}}
    names = sorted(folders.keys() | last["folders"].keys())
    width = max(map(len, names))
    print(" " * width + "".join(f"{key:>12}" for key in COLUMNS), end="")
    print(f"   statements at {last['version']}")
    for name in sorted(names, key=lambda name: name.endswith("(all)")):  # the sums last
        row, before = folders.get(name, Counter()), last["folders"].get(name, {}).get("statements")
        shown = "".join(f"{row[key]:>12,}" for key in COLUMNS)
        change = "" if before is None else f"   {before:>7,} ({row['statements'] - before:+,})"
        print(f"{name:{width}}{shown}{change}")
    if arguments.record:
        counts = {name: dict(row) for name, row in folders.items()}
        document = {"version": arguments.record, "folders": counts}
        RECORD.write_text(json.dumps(document, indent=1) + "\n")
    statements = folders[PRODUCT]["statements"]
    if statements > LIMIT and arguments.commit is None:
        print(f"The packages have {statements:,} statements, and the limit is {LIMIT:,}.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
