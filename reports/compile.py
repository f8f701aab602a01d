"""Compile a sweep's MLflow runs into files: tables, figures, page, best configurations."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from reports.errors import ReportError, StoreUnavailable
from reports.figures import curves, factor_curves, forest, heatmap, history
from reports.figures.figure import DrawnFigure
from reports.frame import Frame, Parent, load_frame
from reports.kinds import load_kind
from reports.pages import csv_table, figures, html, latex, markdown, markup, verdict
from reports.pages.best import format_best_config
from reports.pages.folder import remove_stale_files, write_atomically
from reports.pages.sources import KEY as SOURCES
from reports.pages.sources import build_source_sheet
from reports.pages.verdict import VerdictSection
from reports.pages.verdict_file import format_verdicts
from reports.recipe import Figure, Recipe
from reports.stats.importance import LEAST
from reports.store import open_client
from reports.tables.build import build_all
from reports.tables.cells import collect_trials
from reports.tables.labels import declare_metrics, to_slug
from reports.tables.model import Sheet, TableData
from reports.tables.verdict import judge_tables, summarize_verdicts
from reports.tables.warnings import find_warnings
from reports.uri import find_server_address, redact_text, redact_uri, run_page

CONTENT_TAG = "ablate.report_sha256"
NOTE = "mlflow.note.content"  # what MLflow shows as a run's description
FILES = {"log": "trial.log", "configuration": "config.json", "weights": "best.safetensors"}
LONGEST = 150  # characters of a file's name without its ending; a file system allows 255 bytes

Keyed = TypeVar("Keyed", bound="TableData | Sheet | DrawnFigure")


@dataclass(frozen=True)
class Report:
    """A compiled report.

    Attributes:
        text: verdict and tables for a terminal, and the studies that have not begun.
        html: the page.
        paths: all written files by name.
        frame: the runs from which it was made.
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
    supply: Callable[[Frame], None] | None = None,
) -> Report:
    """Compile the report of a sweep from its MLflow runs.

    The same runs give the same files, byte for byte. In the report of an incomplete sweep, missing
    results are marked, and studies that have not begun are named without tables and figures.

    Args:
        tracking_uri: any MLflow tracking URI.
        sweep_id: a sweep's id, or the id of one parent run.
        out_dir: parent of the report's folder `<name>-<sweep_id>`.
        supply: logs the views of trained models that figures lack.
        log_to_parent: also log the files as artifacts `report/…` of the parent run; equal content
            is logged once.

    Raises:
        ReportError: there is no such sweep, or the recipe names something that does not exist.
        StoreUnavailable: the store does not answer.
    """
    from mlflow.exceptions import MlflowException

    try:
        frame = load_frame(tracking_uri, sweep_id)
        declare_metrics(frame.document.get("metrics") or {})
        if supply is not None:
            supply(frame)
        return _write_report(tracking_uri, frame, Path(out_dir), log_to_parent=log_to_parent)
    except MlflowException as error:
        reason = redact_text((str(error).splitlines() or [""])[0], tracking_uri)
        raise StoreUnavailable(
            f"{redact_uri(tracking_uri)}: the store does not answer ({reason[:300]})."
        ) from error


def _write_report(tracking_uri: str, frame: Frame, out_dir: Path, *, log_to_parent: bool) -> Report:
    recipe = frame.recipe.restrict_to_studies({*frame.cells["study"]})
    folder = out_dir / f"{to_slug(frame.document['name'])}-{frame.document['sweep_id']}"
    folder.mkdir(parents=True, exist_ok=True)
    # tables and verdicts
    sources = build_source_sheet(frame, recipe)
    tables = _with_distinct_keys([*build_all(frame, recipe), *([sources] if sources else [])])
    shared, calls = markup.collect_footnotes(tables), judge_tables(frame, tables)
    summary, plot = summarize_verdicts(frame, calls), forest.draw_forest_plot(calls)
    texts = {name: text for table in tables for name, text in _format_table_files(table).items()}
    best = _format_best_configs(frame, recipe)
    texts |= best
    # figures
    size = heatmap.compute_heatmap_size(frame, recipe.heatmaps)
    early = [
        *([plot] if plot else []),
        *(heatmap.draw_heatmap(frame, part, size) for part in recipe.heatmaps),
        *(factor_curves.draw_factor_curves(frame, part) for part in recipe.factor_curves),
        *(
            history.draw_search_history(frame, part)
            for part in recipe.tables
            if part.kind == "search"
        ),
        *_draw_slices_of_small_searches(frame, recipe),
        *(curves.draw_learning_curves(frame, part) for part in recipe.curves),
    ]
    drawn = [
        (figure, figure.save_files(folder)) for figure in _with_distinct_keys(early, ["report"])
    ]
    late = [load_kind("figures", part.kind)(frame, part) for part in recipe.figures]
    reserved_names = ["report", *(figure.key for figure, _ in drawn)]
    drawn += [
        (figure, figure.save_files(folder)) for figure in _with_distinct_keys(late, reserved_names)
    ]
    paths = {path.name: path for _, saved in drawn for path in saved.values()}
    with_files = [(figure, saved["svg"]) for figure, saved in drawn]
    judged = VerdictSection(
        summary, calls, with_files.pop(0) if plot else None, find_warnings(frame)
    )
    texts |= {
        figures.build_page_name(figure): figures.render_figure_page(frame, figure, svg)
        for figure, svg in with_files
        if figures.has_own_page(figure, svg)
    }
    # pages
    pages = [run_page(parent.experiment_id, parent.run_id) for parent in frame.parents]
    addresses = (
        [server + page for page in pages] if (server := find_server_address(tracking_uri)) else []
    )
    texts["verdicts.json"] = format_verdicts(frame, calls)
    texts["report.md"] = markdown.format_report(
        frame, tables, judged, with_files, best, runs=addresses
    )
    rendered = [figures.render_in_report(figure, svg) for figure, svg in with_files]
    page = partial(
        html.render_page,
        frame,
        tracking_uri,
        tables=tables,
        judged=judged,
        figures=rendered,
        best=best,
    )
    texts["report.html"] = page(trials=list_trial_files(folder, frame))
    for name, text in texts.items():
        paths[name] = folder / name
        write_atomically(paths[name], text)
    remove_stale_files(folder, paths.values())
    if log_to_parent:
        parent = frame.parents[0]
        _log_report_artifacts(tracking_uri, parent.run_id, paths, page(trials={}))
        _set_run_description(tracking_uri, parent, judged)
    plain = "\n".join(
        [
            verdict.format_plain_verdict(summary, calls, judged.warnings),
            *(markup.format_plain_table(table, shared) for table in tables if table.key != SOURCES),
            markup.format_plain_notes(shared),
        ]
    )
    if best:
        plain += f"\nBest configurations, as YAML that runs: {', '.join(best)}.\n"
    if idle := frame.studies_without_cells:
        plain += f"\nNot begun, and not in the report: {', '.join(idle)}.\n"
    return Report(plain, paths["report.html"], dict(sorted(paths.items())), frame)


def _format_table_files(table: TableData | Sheet) -> dict[str, str]:
    """Return a table's CSV and LaTeX files by name."""
    csv = {f"{table.key}.csv": csv_table.to_csv(table)}
    if table.key == SOURCES:
        return csv  # hundreds of lines of words: no table of an article
    tex = {
        "": latex.format_latex(table),
        "_plain": latex.format_plain_latex(table),
    }
    return csv | {f"{table.key}{end}.tex": text for end, text in tex.items() if text is not None}


def _format_best_configs(frame: Frame, recipe: Recipe) -> dict[str, str]:
    """Return the best configurations as YAML files by name, of the studies that the recipe names or
    of all.
    """
    begun = [name for name in frame.study_order if name not in frame.studies_without_cells]
    studies = recipe.best if frame.recipe.best else begun
    names = make_file_names_distinct([f"best_{to_slug(study)}" for study in studies])
    return {
        f"{name}.yaml": text
        for name, study in zip(names, studies, strict=True)
        if (text := format_best_config(frame, study)) is not None
    }


def _with_distinct_keys(parts: list[Keyed], reserved: Sequence[str] = ()) -> list[Keyed]:
    """Return the parts with unique keys, because a study may have several tables or figures."""
    keys = make_file_names_distinct([*reserved, *(part.key for part in parts)])[len(reserved) :]
    return [replace(part, key=key) for part, key in zip(parts, keys, strict=True)]


def make_file_names_distinct(keys: Sequence[str]) -> list[str]:
    """Return unique file names: repeated keys get a number (`a`, `a_2`), long ones are cut."""
    names: list[str] = []
    for key in keys:
        digest = hashlib.sha256(key.encode()).hexdigest()[:8]
        fit = key if len(key) <= LONGEST else f"{key[: LONGEST - 9]}_{digest}"
        numbered = (f"{fit}_{number}" for number in itertools.count(2))
        names.append(next(name for name in itertools.chain([fit], numbered) if name not in names))
    return names


def list_trial_files(folder: Path, frame: Frame) -> dict[str, dict[str, str]]:
    """Return trial → its files in the report's output folder, with their addresses."""
    trials = folder.parent.parent / "trials"
    files = {
        trial: {
            label: f"../../trials/{trial}/{name}"
            for label, name in FILES.items()
            if (trials / trial / name).is_file()
        }
        for trial in frame.trials["trial_id"]
        if Path(trial).name == trial  # a store can be a stranger's, and a page must not lead away
    }
    return {trial: paths for trial, paths in files.items() if paths}


def _log_report_artifacts(
    tracking_uri: str, run_id: str, paths: dict[str, Path], page: str
) -> None:
    """Log the files as artifacts once; the page without links to local files."""
    client = open_client(tracking_uri)
    content = hashlib.sha256()
    for name, path in sorted(paths.items()):
        text = page.encode() if name == "report.html" else path.read_bytes()
        content.update(name.encode() + b"\0" + text)
    digest = content.hexdigest()
    if client.get_run(run_id).data.tags.get(CONTENT_TAG) == digest:
        return
    for name, path in sorted(paths.items()):
        if name == "report.html":
            client.log_text(run_id, page, f"report/{name}")
        else:
            client.log_artifact(run_id, str(path), "report")
    client.set_tag(run_id, CONTENT_TAG, digest)


def _draw_slices_of_small_searches(frame: Frame, recipe: Recipe) -> list[DrawnFigure]:
    """Draw the trials of each search that is too small for importances."""
    studies = [part for part in recipe.tables if part.kind == "search"]
    drawn = {study for part in recipe.figures if part.kind == "slices" for study in part.studies}
    draw = load_kind("figures", "slices")
    return [
        draw(frame, Figure(kind="slices", studies=(part.study,), metric=part.metrics[0]))
        for part in studies
        if part.study not in drawn
        and frame.get_declared_study(part.study).get("space")
        and 1 < len(collect_trials(frame.select_study(part.study), part.metrics[0]).trials) < LEAST
    ]


def _set_run_description(tracking_uri: str, parent: Parent, judged: VerdictSection) -> None:
    """Set the verdict as the parent run's description, unless somebody has written one."""
    present = parent.tags.get(NOTE, "")
    page = run_page(parent.experiment_id, parent.run_id, "report/report.html")
    text = verdict.format_run_description(judged, page)
    if present != text and (not present or present.startswith(verdict.TITLE)):
        open_client(tracking_uri).set_tag(parent.run_id, NOTE, text)


__all__ = ["Report", "ReportError", "StoreUnavailable", "compile_report"]
