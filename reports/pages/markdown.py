"""The report as one Markdown file, of which `reports.readme` copies tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from reports.figures.drawn import Drawn
from reports.frame import Frame
from reports.pages import markup, verdict
from reports.pages.facts import facts, provenance
from reports.pages.figures import file_name, stands_apart
from reports.pages.verdict import Judged
from reports.tables.cells import protocol
from reports.tables.model import AnyTable


def report(
    frame: Frame,
    tables: Sequence[AnyTable],
    judged: Judged,
    figures: Sequence[tuple[Drawn, Path]],
    best: Mapping[str, str],
    *,
    runs: Sequence[str] = (),
) -> str:
    """Write verdict, facts, tables, notes of several of them once, figures, best configurations.

    runs: addresses of the parent runs, on a server that is known.
    """
    shared = markup.footnotes(tables)
    title = frame.document.get("title") or frame.document["name"]
    lines = [f"# {title}", "", f"**{protocol(frame)}**", "", *verdict.markdown(judged)]
    lines += [f"- {name}: {value}" for name, value in facts(frame) + provenance(frame)]
    lines += [f"- MLflow: <{address}>" for address in runs]
    lines += ["", "## Tables", ""] + [markup.markdown(table, shared) for table in tables]
    lines += [markup.markdown_notes(shared)] if shared else []
    if figures:
        lines += ["## Figures", ""]
    for figure, svg in figures:
        shown = f"![{figure.title}]({figure.key}.png)"
        lines += [
            f"[{shown}]({file_name(figure)})" if stands_apart(figure, svg) else shown,
            "",
            f"{figure.title}. {figure.caption}",
            "",
        ]
    for name, text in best.items():
        lines += [f"## {name}", "", "```yaml", text.rstrip(), "```", ""]
    return "\n".join(lines)
