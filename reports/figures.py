"""Heatmaps and convergence curves, drawn without a display.

Colours: cividis for magnitudes (perceptually uniform, the same to colour-blind readers) and
Okabe and Ito's palette with line styles for cells. Figures are the same bytes for the same runs.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from reports import stats
from reports.frame import Frame
from reports.names import (
    coordinate_name,
    level,
    metric_label,
    number,
    scale,
    slug,
    ticks,
)  # fmt: skip
from reports.recipe import Curves, Heatmap
from reports.tables import by_seed, gaps, protocol

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
DASHES = ("-", "--", "-.", ":")
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans", "font.size": 9, "axes.titlesize": 10, "axes.labelsize": 10,
    "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.8,
    "legend.frameon": False, "legend.fontsize": 8.5,
    "svg.hashsalt": "ablate", "svg.fonttype": "path",
    "figure.dpi": 100, "savefig.dpi": 200, "mathtext.fontset": "dejavusans",
}  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """A figure with what stands beside it: its files' name, its (first) study, title, caption,
    the runs behind it and what is missing."""

    key: str
    study: str
    title: str
    caption: str
    figure: Figure
    run_ids: tuple[str, ...]
    gaps: tuple[str, ...]

    def save(self, folder: Path) -> dict[str, Path]:
        """Write PNG (200 dpi) and SVG; `{"png": path, "svg": path}`."""
        paths = {kind: folder / f"{self.key}.{kind}" for kind in ("png", "svg")}
        with style():
            self.figure.savefig(paths["png"], metadata={"Software": None})
            self.figure.savefig(paths["svg"], metadata={"Date": None, "Creator": None})
        return paths


@contextmanager
def style() -> Iterator[None]:
    """Our settings, whatever the caller's matplotlib has been told."""
    with mpl.rc_context():
        mpl.rcdefaults()
        settings: Any = mpl.rcParams
        settings.update(STYLE)
        yield


def seeds_text(counts: list[int]) -> str:
    """`n = 3 seeds`, `n = 2–3 seeds`, `no runs`."""
    known = [n for n in counts if n]
    if not known:
        return "no finished runs"
    low, high = min(known), max(known)
    span = str(low) if low == high else f"{low}–{high}"
    return f"n = {span} seed{'' if high == 1 else 's'}"


def ordered(values: list[Any]) -> list[Any]:
    """Levels in ascending order; numbers before words."""
    unique = list({repr(v): v for v in values}.values())
    return sorted(unique, key=lambda v: (isinstance(v, str), v if isinstance(v, str) else float(v)))


def heatmap(frame: Frame, recipe: Heatmap) -> Drawn:
    """Mean over seeds at each pair of levels, with ± sd where there are two or more seeds.

    Cells without a result are hatched. Each level has the same width, so that a grid in powers
    of ten looks logarithmic.

    Raises:
        ReportError: unknown study.
    """
    cells = frame.study(recipe.study)
    for axis in (recipe.x, recipe.y):
        if axis not in cells.columns:
            cells[axis] = None
    xs, ys = ordered(list(cells[recipe.x].dropna())), ordered(list(cells[recipe.y].dropna()))
    means = np.full((len(ys), len(xs)), np.nan)
    texts: dict[Any, str] = {}
    counts: list[int] = []
    for i, y in enumerate(ys):
        for j, x in enumerate(xs):
            here = cells[(cells[recipe.x] == x) & (cells[recipe.y] == y)]
            found = stats.summary(list(by_seed(here, recipe.metric).values()))
            counts.append(found.n if found else 0)
            if found:
                factor = scale(recipe.metric)
                means[i, j] = found.mean * factor
                sd = "" if found.sd is None else f"\n± {number(found.sd * factor, recipe.digits)}"
                texts[i, j] = number(means[i, j], recipe.digits) + sd
            elif len(here):
                texts[i, j] = str(here["status"].iloc[0])
    title = recipe.title or recipe.study
    with style():
        figure = _heatmap_figure(means, texts, (xs, ys), recipe=recipe, title=title)
    caption = (
        f"{metric_label(recipe.metric)}, {protocol(frame)}: mean"
        f"{' ± sd' if max(counts, default=0) > 1 else ''}, {seeds_text(counts)}"
        f" for each of {len(xs)} × {len(ys)} settings; hatched: no result."
    )
    if recipe.caption:
        caption = f"{recipe.caption} {caption}"
    runs = tuple(run for run in cells["run_id"] if run)
    key = slug(f"heatmap_{recipe.study}_{recipe.metric}")
    return Drawn(key, recipe.study, title, caption, figure, runs, gaps(cells))


def _heatmap_figure(
    means: Any,
    texts: dict[Any, str],
    levels: tuple[list[Any], list[Any]],
    *,
    recipe: Heatmap,
    title: str,
) -> Figure:
    xs, ys = levels
    columns, lines = max(1, len(xs)), max(1, len(ys))
    figure = Figure(figsize=(2.0 + 0.86 * columns, 1.5 + 0.62 * lines), layout="constrained")
    axes = figure.add_subplot()
    known = means[np.isfinite(means)]
    low, high = (known.min(), known.max()) if known.size else (0.0, 1.0)
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    image = axes.imshow(
        np.ma.masked_invalid(means), cmap="cividis", vmin=low, vmax=high, aspect="auto",
        origin="lower", interpolation="nearest",
    )  # fmt: skip
    for i in range(len(ys)):
        for j in range(len(xs)):
            if not np.isfinite(means[i, j]):
                axes.add_patch(
                    Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor="#f2f2f2", edgecolor="#9a9a9a",
                              hatch="////", linewidth=0)
                )  # fmt: skip
                light, box = False, {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
            else:
                red, green, blue, _ = image.cmap(image.norm(means[i, j]))
                light, box = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5, None
            axes.text(
                j, i, texts.get((i, j), "not run"), ha="center", va="center", fontsize=8.5,
                color="white" if light else "black", bbox=box, linespacing=1.15,
            )  # fmt: skip
    axes.set_xticks(range(len(xs)), ticks(xs))
    axes.set_yticks(range(len(ys)), ticks(ys))
    axes.set_xticks(np.arange(len(xs) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(ys) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="both", length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xlabel(coordinate_name(recipe.x))
    label = coordinate_name(recipe.y)
    axes.set_ylabel(label, rotation=0 if len(label) < 3 else 90, labelpad=12, va="center")
    axes.set_title(textwrap.fill(title, 16 + 11 * columns), pad=8, loc="left", fontweight="bold")
    bar = figure.colorbar(image, ax=axes, pad=0.03, fraction=0.06)
    bar.outline.set_visible(False)
    bar.set_label(metric_label(recipe.metric))
    bar.locator = MaxNLocator(4)
    bar.update_ticks()
    return figure


def curves(frame: Frame, recipe: Curves) -> Drawn:
    """A line per cell: the mean over seeds at each epoch, with a band of ± one sd.

    Only epochs that all finished seeds of a cell reported are drawn.
    """
    parts: list[tuple[str, Any]] = []
    rank = scale(recipe.metric)
    for study in recipe.studies:
        cells = frame.study(study)
        names = [c for c in dict.fromkeys(cells["cell"]) if not recipe.cells or c in recipe.cells]
        if frame.design(study) == "search":
            best = {
                c: stats.summary(list(by_seed(cells[cells["cell"] == c], recipe.metric).values()))
                for c in names
            }
            names = sorted(
                (c for c in names if best[c]), key=lambda c: -getattr(best[c], "mean", 0.0)
            )[: recipe.top]
        prefix = f"{study}: " if len(recipe.studies) > 1 else ""
        for cell in names:
            mine = cells[(cells["cell"] == cell)]
            coords = mine["coords"].iloc[0]
            label = str(coords.get("variant") or _cell_label(cell, coords))
            parts.append((prefix + label, mine))
    lines: list[tuple[str, Any, int]] = []
    missing: list[str] = []
    runs: list[str] = []
    for label, mine in parts:
        done = mine[mine["status"] == "done"]
        found = frame.curves(recipe.metric, done["run_id"])
        runs += list(done["run_id"])
        missing += gaps(mine)
        grouped = found.groupby("epoch")["value"]
        table = grouped.agg(["mean", "count", "std"])
        table = table[table["count"] == len(done)] if len(table) else table
        lines.append((label, table * [rank, 1, rank], len(done)))
    title = recipe.title or metric_label(recipe.metric)
    with style():
        figure = _curves_figure(lines, recipe, title)
    counts = [n for _, _, n in lines]
    band = "; band: ± one sd over seeds" if max(counts, default=0) > 1 else ""
    caption = f"{metric_label(recipe.metric)} after each epoch: mean, {seeds_text(counts)}{band}."
    if recipe.caption:
        caption = f"{recipe.caption} {caption}"
    key = slug(f"curves_{'_'.join(recipe.studies)}_{recipe.metric}")
    return Drawn(key, recipe.studies[0], title, caption, figure, tuple(runs), tuple(missing))


def _cell_label(cell: str, coords: dict[str, Any]) -> str:
    if set(map(str, coords.values())) <= {"on", "off"}:
        return " + ".join(k for k, v in coords.items() if v == "on") or "none"
    if len(coords) > 3:
        return f"trial {cell}"
    return ", ".join(f"{coordinate_name(k)} = {level(v)}" for k, v in coords.items())


def _curves_figure(lines: list[tuple[str, Any, int]], recipe: Curves, title: str) -> Figure:
    figure = Figure(figsize=(5.6, 3.5), layout="constrained")
    axes = figure.add_subplot()
    drawn = 0
    for i, (label, table, n) in enumerate(lines):
        if not len(table):
            continue
        drawn += 1
        colour = COLOURS[i % len(COLOURS)]
        dash = DASHES[(i // len(COLOURS) + i) % len(DASHES)]
        x, y = table.index.to_numpy(), table["mean"].to_numpy()
        axes.plot(x, y, color=colour, linestyle=dash, linewidth=1.8, label=f"{label} ({n})",
                  marker="o" if len(x) < 8 else None, markersize=3.5)  # fmt: skip
        sd = table["std"].to_numpy()
        if n > 1 and np.isfinite(sd).all():
            axes.fill_between(x, y - sd, y + sd, color=colour, alpha=0.18, linewidth=0)
    if not drawn:
        axes.text(0.5, 0.5, "no finished runs", ha="center", transform=axes.transAxes)
    axes.set_xlabel("epoch")
    axes.set_ylabel(metric_label(recipe.metric))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(color="#e4e4e4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_title(textwrap.fill(title, 60), loc="left", fontweight="bold", pad=8)
    if drawn:
        axes.legend(loc="best", title="(number of seeds)", title_fontsize=7.5)
    return figure
