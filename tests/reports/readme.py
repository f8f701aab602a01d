"""Copy measured tables from a report into a Markdown file.

    python -m tests.reports.readme runs/reports/ddml-…/report.md search_spaces/results/ddml.md

Between `<!-- report ddml -->` and `<!-- end report -->`, each line `<!-- table: TITLE -->` is
followed by the table with that title, which is replaced. Notes that the report numbers are copied
below the first table that refers to them. With `<!-- first columns alone -->` in the block, further
metrics and notes are left out. The report's `verdicts.json` is copied to `verdicts/` beside the
page, for overviews.
"""

import re
import shutil
import sys
from pathlib import Path

from reports.pages.verdict_text import read_verdicts
from trainables.words.errors import ReportError

HEADS = ("Sweep", "First started", "Data set", "Commit", "Device", "Threads")
HEAD = re.compile(rf"^- ({'|'.join(HEADS)}): (.*)$", re.MULTILINE)
NOTES = re.compile(r"^## Notes\n+(.*?)(?=^##|\Z)", re.DOTALL | re.MULTILINE)
NUMBERED = re.compile(r"^(\d+)\. (.*)$", re.MULTILINE)
SHORT_MARK = "<!-- first columns alone -->"
FURTHER_HEADING = "\n\nFurther metrics and statistics:"
REFERENCE = re.compile(r"\n*^Notes? ([\d, ]+)\.$", re.MULTILINE)


def extract_section(report: str, title: str) -> str:
    """Return the text under `### title` in a report, with its numbered notes written out.

    ReportError: the report has no such title.
    """
    match = re.search(
        rf"^### {re.escape(title)}\n+(.*?)(?=^##|\Z)", report, re.DOTALL | re.MULTILINE
    )
    if match is None:
        titles = ", ".join(re.findall(r"^### (.*)$", report, re.MULTILINE))
        raise ReportError(f"The report has no table {title!r}. Its tables are {titles}.")
    text = match.group(1).strip()
    reference = REFERENCE.search(text)  # the line `Notes 1, 2.`, which names notes of the report
    if reference is None:
        return text
    notes = dict(NUMBERED.findall(NOTES.findall(report)[0]))  # of the report's only `## Notes`
    blank_line = "\n" if "\n- " not in text else ""  # between the table and the first note
    items = "".join(f"\n- {notes[number]}" for number in reference[1].split(", "))
    return f"{text[: reference.start()]}{blank_line}{items}{text[reference.end() :]}"


def fill_block(readme: str, report: str) -> str:
    """Return a Markdown file with the report's tables in the block of the report's sweep.

    ReportError: the file has no such block, or the report lacks a fact or table for it.
    """
    head = dict(HEAD.findall(report))  # facts at the top of the report: sweep, commit, device, …
    if lacking := {*HEADS} - {*head}:
        raise ReportError(
            f"The report lacks these facts: {', '.join(sorted(lacking))}. Take the report of a "
            "sweep that ran from a commit, so that its numbers can be reproduced."
        )
    name = head["Sweep"].split(" ")[0]  # of `name (id)`
    block = rf"(<!-- report {re.escape(name)} -->\n)(.*?)(<!-- end report -->)"
    match = re.search(block, readme, re.DOTALL)
    if match is None:
        raise ReportError(
            f"The Markdown file has no block for the sweep {name}. Add the lines "
            f"`<!-- report {name} -->` and `<!-- end report -->`."
        )
    source = (
        f"Measured by sweep {head['Sweep']} at commit {head['Commit'][:12]}, "
        f"{head['First started']}, on {head['Data set']}, {head['Device']}, {head['Threads']} "
        "thread per trial."
    )
    old_block = match.group(2)
    is_short = SHORT_MARK in old_block  # further metrics and notes are left out
    parts = [source, *([SHORT_MARK] if is_short else [])]
    notes: set[str] = set()  # notes of the tables so far, each of which is copied once
    for title in re.findall(r"<!-- table: (.*?) -->", old_block):
        section = extract_section(report, title)
        if is_short:
            section = section.partition(FURTHER_HEADING)[0]
        lines = [line for line in section.splitlines() if line not in notes]
        notes.update(line for line in lines if line.startswith("- "))
        text = "\n".join(lines).strip()
        parts.append(f"<!-- table: {title} -->\n**{title}**\n\n{text}")
    block_text = "\n\n".join(parts)
    return f"{readme[: match.start()]}{match.group(1)}{block_text}\n{readme[match.start(3) :]}"


def main(arguments: list[str]) -> int:
    """Copy a report's tables into a Markdown file, and its verdicts into `verdicts/` beside it."""
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    report, readme = map(Path, arguments)
    text = fill_block(readme.read_text("utf-8"), report.read_text("utf-8"))
    readme.write_text(text, "utf-8")
    verdicts = report.with_name("verdicts.json")
    copy = readme.parent / "verdicts" / f"{read_verdicts(verdicts).sweep}.json"
    copy.parent.mkdir(exist_ok=True)
    shutil.copyfile(verdicts, copy)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
