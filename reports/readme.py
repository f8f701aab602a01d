"""Copy measured tables from a report into a Markdown file.

    python -m reports.readme runs/reports/ddml-…/report.md search_spaces/ddml.md

Between `<!-- report ddml -->` and `<!-- end report -->`, each line `<!-- table: TITLE -->` is
followed by the table with that title, which is replaced. Notes that the report numbers are copied
below the first table that refers to them. With `<!-- first columns alone -->` in the block, further
metrics and notes are left out. The report's `verdicts.json` is copied to `verdicts/` beside the
page, for overviews.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from reports.errors import ReportError
from reports.pages.verdict_file import read_verdicts

HEADS = ("Sweep", "First started", "Data set", "Commit", "Device", "Threads")
HEAD = re.compile(rf"^- ({'|'.join(HEADS)}): (.*)$", re.MULTILINE)
NOTES = re.compile(r"^## Notes\n+(.*?)(?=^##|\Z)", re.DOTALL | re.MULTILINE)
NUMBERED = re.compile(r"^(\d+)\. (.*)$", re.MULTILINE)
SHORT = "<!-- first columns alone -->"
FURTHER = "\n\nFurther metrics and statistics:"
REFERENCE = re.compile(r"\n*^Notes? ([\d, –]+)\.$", re.MULTILINE)


def extract_section(report: str, title: str) -> str:
    """Return the section under `### title` of a report, with its numbered notes written out.

    Raises:
        ReportError: there is no such title.
    """
    match = re.search(
        rf"^### {re.escape(title)}\n+(.*?)(?=^##|\Z)", report, re.DOTALL | re.MULTILINE
    )
    if match is None:
        titles = ", ".join(re.findall(r"^### (.*)$", report, re.MULTILINE))
        raise ReportError(f"The report has no table {title!r}. Its tables are {titles}.")
    text = match.group(1).strip()
    shared = NOTES.search(report)
    notes = dict(NUMBERED.findall(shared[1])) if shared else {}
    gap = "\n" if "\n- " not in text else ""  # a list that begins here stands off the table

    def write_out(reference: re.Match[str]) -> str:
        """Return the notes with these numbers (`1–3, 5`)."""
        spans = [[int(end) for end in span.split("–")] for span in reference[1].split(", ")]
        numbers = [number for span in spans for number in range(span[0], span[-1] + 1)]
        return gap + "".join(f"\n- {notes[str(number)]}" for number in numbers)

    return REFERENCE.sub(write_out, text)


def fill_block(readme: str, report: str) -> str:
    """Return the Markdown file with the block of the report's sweep filled again.

    Raises:
        ReportError: there is no block for this sweep, or a title is not in the report.
    """
    head = dict(HEAD.findall(report))
    if lacking := {*HEADS} - {*head}:
        raise ReportError(
            f"The report does not name its {', '.join(sorted(lacking))}. Take the report of a "
            "sweep that ran from a commit, so that its numbers can be reproduced."
        )
    name = head["Sweep"].split(" ")[0]
    block = re.compile(
        rf"(<!-- report {re.escape(name)} -->\n)(.*?)(<!-- end report -->)", re.DOTALL
    )
    match = block.search(readme)
    if match is None:
        raise ReportError(f"There is no `<!-- report {name} -->` … `<!-- end report -->` to fill.")
    source = (
        f"Measured by sweep {head['Sweep']} at commit {head['Commit'][:12]}, "
        f"{head['First started']}, on {head['Data set']}, {head['Device']}, {head['Threads']} "
        "thread per trial."
    )
    notes_seen: set[str] = set()

    def leave_out_seen(text: str) -> str:
        """Drop notes that an earlier table has."""
        kept = [line for line in text.splitlines() if line not in notes_seen]
        notes_seen.update(line for line in kept if line.startswith("- "))
        return "\n".join(kept).strip()

    short = SHORT in match.group(2)
    tables = []
    for title in re.findall(r"<!-- table: (.*?) -->", match.group(2)):
        section = extract_section(report, title)
        shortened = section.partition(FURTHER)[0] if short else leave_out_seen(section)
        tables.append(f"<!-- table: {title} -->\n**{title}**\n\n{shortened}")
    text = "\n\n".join([source, *([SHORT] if short else []), *tables])
    return f"{readme[: match.start()]}{match.group(1)}{text}\n{readme[match.start(3) :]}"


def main(arguments: list[str]) -> int:
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
