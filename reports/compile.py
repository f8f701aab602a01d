"""Compile a sweep's results into files: tables, figures, page, best configurations."""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from reports.best import format_best_config
from reports.figures import forest
from reports.figures.figure import DrawnFigure
from reports.frame import Frame, load_frame
from reports.kinds import FIGURES
from reports.pages import html, markup, table_files, verdict_text
from reports.pages.verdict_text import VerdictSection, format_verdicts
from reports.store import open_client
from reports.tables.build import SOURCES, build_all
from reports.tables.labels import to_slug
from reports.tables.model import AnyTable, Sheet, TableData
from reports.tables.notes import EFFECT_SIZES
from reports.tables.verdict import judge_tables, summarize_verdicts
from reports.tables.warnings import find_warnings
from trainables.words.errors import StoreUnavailable
from trainables.words.files import write_atomically
from trainables.words.secrets import (
    SERVED,
    build_run_path,
    find_server_address,
    redact_text,
    redact_uri,
)

CONTENT_TAG = "ablate.report_sha256"
DESCRIPTION_TAG = "mlflow.note.content"  # what MLflow shows as a run's description
MAX_NAME_LENGTH = 150  # of a file without its ending; a file system allows 255 bytes

Keyed = TypeVar("Keyed", bound="TableData | Sheet | DrawnFigure")


@dataclass(frozen=True)
class Report:
    """A compiled report.

    Attributes:
        text: verdict and tables for a terminal, and the studies that have not begun.
        html: the page.
        paths: all written files by name.
        frame: the results from which it was made.
    """

    text: str
    html: Path
    paths: dict[str, Path]
    frame: Frame


def compile_report(
    tracking_uri: str,
    sweep_id: str,
    out_dir: str | Path,
    *,
    log_to_parent: bool = True,
    load: Callable[[str, str], Frame] = load_frame,
) -> Report:
    """Compile the report of a sweep.

    The same results give the same files, byte for byte. In the report of an incomplete sweep,
    missing results are marked; studies that have not begun are named, but have no tables or
    figures.

    Args:
        tracking_uri: any MLflow tracking URI.
        sweep_id: a sweep's id.
        out_dir: parent of the report's folder `<name>-<sweep_id>`.
        log_to_parent: also log the files as artifacts `report/…` of the sweep's parent run, unless
            it has the same files already, or is not in MLflow.
        load: reads the results of a sweep in a store.

    Raises:
        ReportError: there is no such sweep, or the recipe names something that does not exist.
        StoreUnavailable: the store does not answer.
    """
    from mlflow.exceptions import MlflowException

    try:
        frame = load(tracking_uri, sweep_id)
        folder = locate_report(out_dir, frame.document["name"], sweep_id)
        return _write_report(tracking_uri, frame, folder, log_to_parent)
    except MlflowException as error:
        raise StoreUnavailable(
            f"The MLflow store {redact_uri(tracking_uri)} does not answer "
            f"({redact_text((str(error).splitlines() or [''])[0], tracking_uri)[:300]})."
        ) from error


def locate_report(out_dir: str | Path, name: str, sweep_id: str) -> Path:
    """Return the folder of a sweep's report."""
    return Path(out_dir) / f"{to_slug(name)}-{sweep_id}"


def compile_live_page(
    tracking_uri: str,
    sweep_id: str,
    out_dir: str | Path,
    progress: Mapping[str, tuple[int, int]],
    load: Callable[[str, str], Frame] = load_frame,
) -> Path:
    """Write the page of a running sweep, without the report's other files.

    Figures of trained models, best configurations, and verdicts of studies in which a trial has not
    ended are left out. progress: see `Frame`; load: reads the results of a sweep in a store.
    """
    frame = load(tracking_uri, sweep_id)
    frame.progress = progress
    folder = locate_report(out_dir, frame.document["name"], sweep_id)
    with TemporaryDirectory() as drafts:
        tables, judged, drawings = _compile_content(frame, Path(drafts), png=False)
        rendered = [html.render_inline(*each) for each in drawings if not each[0].apart]
        page = html.render_page(
            frame, tracking_uri, tables=tables, judged=judged, figures=rendered, best={}
        )
    write_atomically(folder / "report.html", page.encode())
    if frame.parents[0].run_id:
        _set_run_description(tracking_uri, frame, judged, folder)
    return folder / "report.html"


def mark_as_stopped(page: Path) -> None:
    """Let a page say that its sweep does not run any more, and reload no more."""
    text = page.read_text(encoding="utf-8").replace(html.LIVE, html.STOPPED, 1)
    write_atomically(page, text.encode())


def _compile_content(
    frame: Frame, folder: Path, *, png: bool = True
) -> tuple[list[AnyTable], VerdictSection, list[tuple[DrawnFigure, Path]]]:
    """Return a report's tables, verdicts, and figures with the SVG files drawn into a folder."""
    recipe = frame.recipe.restrict_to_studies({*frame.cells["study"]})  # those that have begun
    tables = _make_keys_distinct(build_all(frame, recipe))
    verdicts = judge_tables(frame, tables)
    headline = summarize_verdicts(frame, verdicts, tables)
    forest_plot = forest.draw_forest_plot(verdicts)
    drawn = [
        *([forest_plot] if forest_plot else []),
        *(FIGURES[figure.kind](frame, figure) for _, figure in recipe.list_figures()),
    ]
    drawings = [
        (figure, figure.save_files(folder, png=png)["svg"]) for figure in _make_keys_distinct(drawn)
    ]
    plot = drawings.pop(0) if forest_plot else None  # the first drawing stands by the verdict
    return tables, VerdictSection(headline, verdicts, plot, find_warnings(frame)), drawings


def _write_report(tracking_uri: str, frame: Frame, folder: Path, log_to_parent: bool) -> Report:
    """Write all files of a report into a folder, and log them to the parent run if asked."""
    folder.mkdir(parents=True, exist_ok=True)
    tables, judged, drawings = _compile_content(frame, folder)
    best = _format_best_configs(frame)
    texts = best | {"verdicts.json": format_verdicts(frame, judged.verdicts)}  # file name → text
    for table in tables:
        texts |= format_table_files(table)
    svg_files = [svg for _, svg in [*([judged.plot] if judged.plot else []), *drawings]]
    paths = {path.name: path for svg in svg_files for path in (svg, svg.with_suffix(".png"))}
    # pages
    for figure, svg in drawings:
        if figure.apart:  # the figure has a page of its own
            texts[f"{figure.key}.html"] = html.render_figure_page(frame, figure, svg)
    texts["report.md"] = markup.format_report(
        frame, tables, judged, [figure for figure, _ in drawings], best
    )
    rendered = [html.render_in_report(figure, svg) for figure, svg in drawings]
    texts["report.html"] = html.render_page(
        frame, tracking_uri, tables=tables, judged=judged, figures=rendered, best=best
    )
    for name, text in texts.items():
        paths[name] = folder / name
        write_atomically(paths[name], text.encode())
    if log_to_parent and frame.parents[0].run_id:
        _log_report_artifacts(tracking_uri, frame.parents[0].run_id, paths)
        _set_run_description(tracking_uri, frame, judged, folder)
    text = format_terminal_text(frame, tables, judged, best)
    return Report(text, paths["report.html"], dict(sorted(paths.items())), frame)


def format_table_files(table: AnyTable) -> dict[str, str]:
    """Return file name → text of a table's CSV and LaTeX files."""
    texts = {f"{table.key}.csv": table_files.to_csv(table)}
    if table.key != SOURCES:  # the sources of settings have too many words for an article
        texts[f"{table.key}.tex"] = table_files.format_latex(table)
    if isinstance(table, TableData):
        texts[f"{table.key}_plain.tex"] = table_files.format_plain_latex(table)
    return texts


def _format_best_configs(frame: Frame) -> dict[str, str]:
    """Return file name → YAML of the best configuration of each study in `best` (empty: of all)."""
    recipe = frame.recipe.restrict_to_studies({*frame.cells["study"]})
    begun = [name for name in frame.study_order if name not in frame.studies_without_cells]
    studies = recipe.best if frame.recipe.best else begun  # `recipe`: only begun studies
    names = make_file_names_distinct([f"best_{to_slug(study)}" for study in studies])
    return {
        f"{name}.yaml": text
        for name, study in zip(names, studies, strict=True)
        if (text := format_best_config(frame, study)) is not None
    }


def _make_keys_distinct(parts: list[Keyed]) -> list[Keyed]:
    """Return tables or figures with distinct keys, none of which is the page's name `report`."""
    _, *keys = make_file_names_distinct(["report", *(part.key for part in parts)])
    return [replace(part, key=key) for part, key in zip(parts, keys, strict=True)]


def make_file_names_distinct(keys: Sequence[str]) -> list[str]:
    """Return unique file names: a repeated key gets a number (`a_2`), a long one is cut."""
    names: list[str] = []
    for key in keys:
        digest = hashlib.sha256(key.encode()).hexdigest()[:8]
        stem = key if len(key) <= MAX_NAME_LENGTH else f"{key[: MAX_NAME_LENGTH - 9]}_{digest}"
        numbered = (f"{stem}_{number}" for number in itertools.count(2))
        names.append(next(name for name in itertools.chain([stem], numbered) if name not in names))
    return names


def format_terminal_text(
    frame: Frame, tables: Sequence[AnyTable], judged: VerdictSection, best: Iterable[str]
) -> str:
    """Write verdicts, tables (except that of the settings' sources) and notes for a terminal."""
    shared = markup.collect_footnotes(tables)
    notes = [note for note in shared if not note.startswith(EFFECT_SIZES)]  # as tables print none
    parts = [
        verdict_text.format_plain_verdict(judged),
        *(markup.format_plain_table(table, notes) for table in tables if table.key != SOURCES),
        markup.format_plain_notes(notes),
    ]
    if best:
        parts.append(f"The best configurations are YAML files that run: {', '.join(best)}.\n")
    if studies := frame.studies_without_cells:
        parts.append(f"Studies that have not begun are not shown: {', '.join(studies)}.\n")
    return "\n".join(parts)


def _log_report_artifacts(tracking_uri: str, run_id: str, paths: dict[str, Path]) -> None:
    """Log a report's files as artifacts of a run, unless its tag has the hash of these files."""
    client = open_client(tracking_uri)
    digest = hashlib.sha256()
    for name, path in sorted(paths.items()):
        digest.update(name.encode() + b"\0" + path.read_bytes())
    if client.get_run(run_id).data.tags.get(CONTENT_TAG) == digest.hexdigest():
        return
    for path in paths.values():
        client.log_artifact(run_id, str(path), "report")
    client.set_tag(run_id, CONTENT_TAG, digest.hexdigest())


def _set_run_description(
    tracking_uri: str, frame: Frame, judged: VerdictSection, folder: Path
) -> None:
    """Set the verdict as the parent run's description in MLflow, unless a person wrote one."""
    parent = frame.parents[0]
    old_text = parent.tags.get(DESCRIPTION_TAG, "")
    page = build_run_path(parent.experiment_id, parent.run_id, "report/report.html")
    page = "" if frame.progress else page  # the page of a running sweep is not logged
    local = "" if find_server_address(tracking_uri) else f"{SERVED}{folder.name}/report.html"
    text = verdict_text.format_run_description(judged, page, local)
    written_by_person = old_text and not old_text.startswith(verdict_text.TITLE)
    if old_text != text and not written_by_person:
        open_client(tracking_uri).set_tag(parent.run_id, DESCRIPTION_TAG, text)
