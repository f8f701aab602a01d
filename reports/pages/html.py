"""Write the self-contained page: no requests, readable in light, dark and print.

Figures with pictures of images would make the report too large; it shows a thumbnail with a link to
a page of their own, which requests nothing either. In MLflow's list of files, a page is shown in a
frame without links to others, so it names them.
"""

import base64
import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from io import BytesIO
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from reports.figures.figure import DrawnFigure, use_report_style
from reports.frame import ENDED, Frame
from reports.pages import markup, verdict_text
from reports.pages.facts import collect_facts, collect_provenance, summarize_studies
from reports.pages.verdict_text import VerdictSection
from reports.tables.cells import EMPTY, find_protocol, find_split_unit
from reports.tables.labels import format_number, to_slug
from reports.tables.model import AnyTable, TableData
from trainables.words.metrics import display_scale, format_metric_label
from trainables.words.secrets import build_sweep_path, find_server_address, redact_uri

# what a browser does not need of matplotlib's SVG, and what stands in its place
SHORTER_SVG = (
    (r"(?s)<!--.*?-->|<metadata>.*?</metadata>", ""),
    (r" id=\"\w+_\d+\"(?=/?>)", ""),
    (r"(?<!scale\(0)(\.\d\d)\d+", r"\1"),
    (r"\s+", " "),
    (r"(?<=[>;:]) | (?=[/<])", ""),
    ("xlink:href", "href"),
    ("DejaVuSans-", "f"),
)
SVG_LETTERS = " !$'()*+,-./:;=?@[]^_`{|}~"  # that stand as they are
CSS_INCH = 96  # CSS pixels
THUMBNAIL_SIDE = 260  # CSS pixels of the longer side of a thumbnail, which has two pixels for each


def build_run_anchor(study: str, cell: str) -> str:
    """Return the id of a cell's first run in the list of runs."""
    return f"runs-{to_slug(study)}-{to_slug(cell)}"


def load_template(name: str) -> jinja2.Template:
    """Load a Jinja template of this folder, with the filter `slug` for file names and anchors."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["slug"] = to_slug
    return environment.get_template(name)


def render_in_report(drawn: DrawnFigure, svg: Path) -> dict[str, Any]:
    """Return a figure's fields in the report's template: a thumbnail if it has its own page."""
    if not drawn.apart:
        return render_inline(drawn, svg)
    webp, side = BytesIO(), max(drawn.figure.get_size_inches())
    dpi = 2 * THUMBNAIL_SIDE / side  # two pixels for each CSS pixel, for sharp screens
    with use_report_style():
        drawn.figure.savefig(webp, dpi=dpi, format="webp", pil_kwargs={"quality": 82})
    width = THUMBNAIL_SIDE * drawn.figure.get_figwidth() / side
    source = f"data:image/webp;base64,{base64.b64encode(webp.getvalue()).decode()}"
    page = f"{drawn.key}.html"
    return {"drawn": drawn, "source": source, "width": round(width), "spots": "", "page": page}


def render_inline(drawn: DrawnFigure, svg: Path) -> dict[str, Any]:
    """Return a full figure's template fields, with tooltips' positions in 1/1000 of its size."""
    spots: list[list[Any]] = []
    for x, y, spot in drawn.locate_spots():
        anchor = [build_run_anchor(*spot.of)] if spot.of else []
        spots.append([round(1000 * x), round(1000 * y), spot.text, *anchor])
    text = json.dumps(spots, ensure_ascii=False, separators=(",", ":")) if spots else ""
    width = round(drawn.figure.get_figwidth() * CSS_INCH)
    source = encode_svg(svg.read_text(encoding="utf-8"))
    return {"drawn": drawn, "source": source, "width": width, "spots": text, "page": ""}


def encode_svg(svg: str) -> Markup:
    """Return a drawing as the address of its own data, in half of the letters that base64 takes.

    Coordinates get two decimals, a hundredth of a point; names and marks are shortened.
    """
    for pattern, text in SHORTER_SVG:
        svg = re.sub(pattern, text, svg)
    svg = svg.replace("'", "&apos;").replace('"', "'")  # the address stands between double quotes
    return Markup(f"data:image/svg+xml,{quote(svg, safe=SVG_LETTERS)}")


def render_figure_page(frame: Frame, drawn: DrawnFigure, svg: Path) -> str:
    """Return the HTML (well-formed XML too) of a figure's own page, which links to the report."""
    return load_template("apart.html.j2").render(
        title=drawn.title,
        caption=drawn.caption,
        sweep=f"{frame.document['name']} ({frame.document['sweep_id']})",
        protocol=find_protocol(frame),
        runs=", ".join(drawn.run_ids),
        back=f"report.html#{drawn.key}",
        figure=render_inline(drawn, svg),
    )


PROTOCOLS = {
    "test-selected": "Paper protocol: the epoch and the settings were picked on the TEST classes. "
    "Comparable with published numbers; optimistic for unseen data.",
    "validation-selected": "Choices (of settings and, unless the last epoch counts, of the epoch) "
    "were made on validation classes, which are used neither for training nor for the test.",
    EMPTY: "No trial has a result: tables and figures show what was planned.",
}
# beginning of a running sweep's notice, and what replaces it once the sweep does not run any more
LIVE = '<p id="live" data-seconds="60"><b>The sweep is running, and the page reloads itself.</b>'
STOPPED = '<p id="live"><b>The sweep has stopped. `ablate report` makes its report.</b>'
FIRST_VERDICTS = 12  # verdicts on the first screen; the others open on a click


def render_page(
    frame: Frame,
    tracking_uri: str,
    *,
    tables: Sequence[AnyTable],
    judged: VerdictSection,
    figures: Sequence[Mapping[str, Any]],
    best: Mapping[str, str],
) -> str:
    """Return the HTML of the report's page (well-formed XML too)."""
    server = find_server_address(tracking_uri)
    cells = frame.cells
    lost = cells[cells["status"] != "done"]  # cells without a result
    incomplete = frame.find_incomplete_studies()
    if frame.progress:  # trials that have not ended are counted, and not listed
        lost = lost[lost["status"].isin(ENDED)]
    notes = markup.collect_footnotes(tables)
    # the protocol in words
    protocol = find_protocol(frame)
    protocol_text = PROTOCOLS[protocol].replace("classes", find_split_unit(frame))
    has_published = any(table.published is not None for table in frame.recipe.tables)
    if has_published and protocol == "validation-selected":
        protocol_text += " Published numbers are test-selected."
    # questions on the first screen, and those that open on a click
    counts = accumulate(question.count_answers() for question in judged.questions)
    first_count = max(1, sum(count <= FIRST_VERDICTS for count in counts))
    questions = judged.questions[:first_count], judged.questions[first_count:]
    # the command that made the sweep, or one with the resolved spec
    resolved = f"python -m ablate.run {frame.document['name']}.yaml"
    resolved += "   # the resolved spec: sweep.json of the parent run"
    rerun = (frame.document.get("provenance") or {}).get("command") or resolved
    # links to the sections that have content
    sections = [
        ("Verdict", "verdict", True),
        ("Tables", "tables", tables),
        ("Notes", "notes", notes),
        ("Figures", "figures", figures),
        ("Studies", "studies", True),
        ("Best configurations", "best", best),
        ("Without a result", "lost", len(lost)),
        ("Provenance", "provenance", True),
        ("Runs", "runs", True),
    ]
    return load_template("page.html.j2").render(
        title=frame.document.get("title") or frame.document["name"],
        protocol=protocol,
        protocol_text=protocol_text,
        unfinished=f"{len(lost)} of {len(frame.cells)} cells" if len(lost) else "",
        live=LIVE if frame.progress else "",
        now=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        incomplete=incomplete,
        study_names=frame.study_order,
        facts=collect_facts(frame),
        sections=[(name, anchor) for name, anchor, content in sections if content],
        judged=judged,
        first_questions=questions[0],
        further_questions=questions[1],
        further_count=sum(question.count_answers() for question in questions[1]),
        plot=render_inline(*judged.plot) if judged.plot else None,
        verdict=verdict_text,
        run_anchor=build_run_anchor,
        tables=[(table, _build_table_parts(table)) for table in tables],
        markup=markup,
        notes=notes,
        figures=figures,
        studies=summarize_studies(frame),
        best=list(best.items()),
        lost=lost.to_dict("records"),
        provenance=collect_provenance(frame),
        rerun=rerun,
        store=redact_uri(tracking_uri),
        server=server,
        experiment_id=frame.parents[0].experiment_id,
        sweep_page=build_sweep_path(frame.parents[0].experiment_id, frame.document["sweep_id"]),
        runs=_list_runs(frame, tables),
    )


def _build_table_parts(table: AnyTable) -> list[dict[str, Any]]:
    """Return a table's template fields; a field links to its runs (`of`) or those of its row."""
    study = table.recipe.study
    # of each row: whether it is the baseline, and the anchor of its runs
    marks = [(False, f"runs-{to_slug(study)}")] * len(table.rows)
    if isinstance(table, TableData):
        marks = [(row.baseline, build_run_anchor(study, row.cell)) for row in table.rows]
    parts = []
    for grid in markup.split_further_columns(markup.build_grid(table)):
        rows = [
            {
                "fields": fields,
                "baseline": baseline,
                "hrefs": [build_run_anchor(*field.of) if field.of else href for field in fields],
            }
            for (baseline, href), fields in zip(marks, grid.rows, strict=True)
        ]
        parts.append({"headers": grid.headers, "labels": grid.labels, "rows": rows})
    return parts


def _list_runs(frame: Frame, tables: Sequence[AnyTable]) -> list[dict[str, Any]]:
    """Return each study's runs, with the objective and the metrics of tables that link to runs."""
    # metrics of each study, in order
    metrics = {study: {frame.main_objective: None} for study in frame.study_order}
    for table in tables:
        cells = (field.of for row in markup.build_grid(table).rows for field in row if field.of)
        linked = {table.recipe.study, *(linked_study for linked_study, _ in cells)}
        for study in linked & metrics.keys():
            metrics[study] |= dict.fromkeys(table.recipe.metrics)
    # runs of each study; the first run of a cell has the anchor to which tables link
    anchors: set[str] = set()
    groups = []
    for study, study_metrics in metrics.items():
        rows = []
        for cell in frame.cells[frame.cells["study"] == study].to_dict("records"):
            anchor = build_run_anchor(study, cell["cell"])
            row = {
                "anchor": "" if anchor in anchors else anchor,
                "values": [_format_run_value(cell, metric) for metric in study_metrics],
            }
            rows.append(cell | row)
            anchors.add(anchor)
        names = [format_metric_label(metric) for metric in study_metrics]
        groups.append(
            {"key": f"runs-{to_slug(study)}", "name": study, "metrics": names, "rows": rows}
        )
    return groups


def _format_run_value(cell: Mapping[Any, Any], metric: str) -> str:
    """Write a run's metric with two digits; a dash without a result."""
    value = float(cell.get(metric, math.nan)) * display_scale(metric)
    return format_number(value, 2) if math.isfinite(value) else "–"
