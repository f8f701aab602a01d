"""Print the lines of code, docstrings and tests by folder, beside those of the last version.

python .ci/size.py                  print
python .ci/size.py --record 0.1.0   print, and keep the numbers as those of that version
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORD = Path(__file__).with_name("size.json")
PACKAGES = ("ablate", "trainables", "reports")
COLUMNS = ("modules", "lines", "docstrings")


def count_file(path: Path) -> Counter[str]:
    """Return a file's lines as `wc -l` counts them, and how many of them are docstrings."""
    text = path.read_text(encoding="utf-8")
    docstrings = 0
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        if isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ) and (body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)):
            docstrings += (body[0].end_lineno or 0) - body[0].lineno + 1
    return Counter(modules=1, lines=text.count("\n"), docstrings=docstrings)


def count_folders() -> dict[str, Counter[str]]:
    """Return the counts of each folder of a package, of each package, and of the tests."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "*.py"], capture_output=True, text=True, check=True
    )
    folders: dict[str, Counter[str]] = {}
    for name in listed.stdout.splitlines():
        top, *rest = Path(name).parts
        if top not in (*PACKAGES, "tests") or not (ROOT / name).is_file():
            continue
        counts = count_file(ROOT / name)
        folder = f"{top}/{rest[0]}" if len(rest) > 1 else top
        keys = {folder, f"{top} (all)"} | ({"product (all)"} if top in PACKAGES else set())
        for key in keys:
            folders.setdefault(key, Counter()).update(counts)
    return dict(sorted(folders.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--record", metavar="VERSION", help="keep the numbers as this version's")
    version = parser.parse_args().record
    folders = count_folders()
    last = json.loads(RECORD.read_text()) if RECORD.is_file() else {"version": "-", "folders": {}}
    names = sorted(folders.keys() | last["folders"].keys())
    width = max(map(len, names))
    print(f"{'':{width}}{'modules':>9}{'lines':>9}{'docstrings':>12}   lines at {last['version']}")
    for name in sorted(names, key=lambda name: name.endswith("(all)")):  # the sums last
        row, before = folders.get(name, Counter()), last["folders"].get(name, {}).get("lines")
        shown = "".join(f"{row[key]:>{w}}" for key, w in zip(COLUMNS, (9, 9, 12), strict=True))
        change = "" if before is None else f"   {before:>7} ({row['lines'] - before:+d})"
        print(f"{name:{width}}{shown}{change}")
    if version:
        counts = {name: dict(row) for name, row in folders.items()}
        RECORD.write_text(json.dumps({"version": version, "folders": counts}, indent=1) + "\n")


if __name__ == "__main__":
    main()
