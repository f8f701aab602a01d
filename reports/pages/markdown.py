"""Write the report as one Markdown file, from which `tests.reports.readme` copies tables."""

from collections.abc import Mapping, Sequence

from reports.figures.figure import DrawnFigure
from reports.frame import Frame
from reports.pages import markup, verdict
from reports.pages.facts import collect_facts, collect_provenance
from reports.pages.verdict import VerdictSection
from reports.tables.cells import find_protocol
from reports.tables.model import AnyTable


def format_report(
    frame: Frame,
    tables: Sequence[AnyTable],
    judged: VerdictSection,
    figures: Sequence[DrawnFigure],
    best: Mapping[str, str],
) -> str:
    """Write verdict, facts, tables, shared notes, figures and best configurations."""
    shared = markup.collect_footnotes(tables)
    facts = collect_facts(frame) + collect_provenance(frame)
    lines = [
        f"# {frame.document.get('title') or frame.document['name']}",
        "",
        f"**{find_protocol(frame)}**",
        "",
        *verdict.format_verdict_section(judged),
        *(f"- {name}: {value}" for name, value in facts),
        *("", "## Tables", ""),
        *(markup.format_markdown_table(table, shared) for table in tables),
    ]
    lines += [markup.format_markdown_notes(shared)] if shared else []
    lines += ["## Figures", ""] if figures else []
    for figure in figures:
        image = f"![{figure.title}]({figure.key}.png)"
        if figure.apart:
            image = f"[{image}]({figure.key}.html)"
        lines += [image, "", f"{figure.title}. {figure.caption}", ""]
    for name, text in best.items():
        lines += [f"## {name}", "", "```yaml", text.rstrip(), "```", ""]
    return "\n".join(lines)
