"""Define what a figure is, declare kinds of figures, and draw all in one style.

A kind is one file here, or a function of another package (`reports/kinds.py`):

    @figure(AxesOptions)
    def slices(frame: Frame, recipe: Figure, options: AxesOptions) -> DrawnFigure: ...

Colours: cividis for magnitudes (perceptually uniform, the same to colour-blind readers) and
Okabe and Ito's palette with line styles for cells. Figures are the same bytes for the same runs.
Matplotlib is imported when something is drawn, so that a plan, which checks options, stays quick.
"""

import math
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports.frame import DataFrame, Frame
from reports.recipe import Figure, FigureOptions
from reports.tables.cells import find_unit, run_ids
from reports.tables.labels import replace_greek_names, to_slug

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

    Axes = matplotlib.axes.Axes
    Canvas = matplotlib.figure.Figure
else:
    Axes = Canvas = Any

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
DASHES = ("-", "--", "-.", ":")
TEXT = 9.0  # points, of all letters in all figures
WIDTH, HEIGHT = 5.6, 3.5  # inches, of a figure of one panel
SHORT_LEGEND = 4  # lines of a legend that finds room within the axes
MAX_PIXELS = 5_500_000  # of a PNG
LETTERS_PER_INCH = 13
LINE = 0.18  # inches, of a line of a legend
MAX_TOOLTIPS = 1000  # a figure with more marks has none, and draws the marks as pixels
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize"), TEXT),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), TEXT),
    **dict.fromkeys(("legend.fontsize", "legend.title_fontsize"), TEXT),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    **{"axes.linewidth": 0.8, "axes.titlelocation": "left", "axes.axisbelow": True},
    **{"grid.color": "#e4e4e4", "grid.linewidth": 0.7, "lines.markersize": 4},
    **{"svg.hashsalt": "ablate", "svg.fonttype": "path", "mathtext.fontset": "dejavusans"},
    **{"errorbar.capsize": 3, "figure.dpi": 100, "savefig.dpi": 200},
}


@contextmanager
def use_report_style() -> Iterator[None]:
    """Draw with the report's settings in place of matplotlib's: a context and a decorator."""
    import matplotlib.style

    with matplotlib.style.context(["default", STYLE]):
        yield


@dataclass(frozen=True)
class Tooltip:
    """Values of a mark, shown on a page under the pointer or by arrow keys.

    x, y: position of the mark in the data of its axes.
    of: (study, cell) of the runs to which a click on the mark leads.
    """

    axes: Axes
    x: float
    y: float
    text: str
    of: tuple[str, str] | None = None


@dataclass(frozen=True)
class DrawnFigure:
    """A figure with its files' name, (first) study, title, caption, runs and tooltips.

    apart: whether it has a page of its own, because it holds pictures of images.
    """

    key: str
    study: str
    title: str
    caption: str
    figure: Canvas
    run_ids: tuple[str, ...]
    spots: tuple[Tooltip, ...] = ()
    apart: bool = False

    def locate_spots(self) -> list[tuple[float, float, Tooltip]]:
        """Return (x, y, tooltip) of each mark of a saved figure; empty if there are too many.

        x and y are shares of the width from the left and of the height from the top.
        """
        if len(self.spots) > MAX_TOOLTIPS:
            return []
        to_share = self.figure.transFigure.inverted()
        spots = []
        for spot in self.spots:
            pixel = spot.axes.transData.transform((spot.x, spot.y))
            x, y = to_share.transform(pixel)
            spots.append((float(x), float(1 - y), spot))
        return spots

    @use_report_style()
    def save_files(self, folder: Path, *, png: bool = True) -> dict[str, Path]:
        """Write `key.png` and `key.svg`, and return `{"png": path, "svg": path}`.

        A PNG has 200 dpi, or fewer if it would have more than `MAX_PIXELS`.
        """
        kinds = ("png", "svg") if png else ("svg",)
        paths = {kind: folder / f"{self.key}.{kind}" for kind in kinds}
        width, height = self.figure.get_size_inches()
        dpi = min(STYLE["savefig.dpi"], math.sqrt(MAX_PIXELS / (width * height)))
        if engine := self.figure.get_layout_engine():  # lay out once, not in each `savefig`
            screen_dpi, self.figure.dpi = self.figure.dpi, dpi
            engine.execute(self.figure)
            self.figure.dpi = screen_dpi
            self.figure.set_layout_engine("none")
        if png:
            self.figure.savefig(paths["png"], dpi=dpi, metadata={"Software": None})
        self.figure.savefig(paths["svg"], dpi=dpi, metadata={"Date": None, "Creator": None})
        return paths


@dataclass(frozen=True)
class FigureKind:
    """A kind of figure: its options, and the function that draws it."""

    options: type[FigureOptions]
    draw: Callable[..., Any]

    @use_report_style()
    def __call__(self, frame: Frame, recipe: Figure) -> DrawnFigure:
        """Draw the figure that a recipe asks for."""
        drawn: DrawnFigure = self.draw(frame, recipe, self.options.model_validate(recipe.options))
        return drawn


def figure(
    options: type[FigureOptions],
) -> Callable[[Callable[[Frame, Figure, Any], DrawnFigure]], FigureKind]:
    """Declare that the decorated function draws a kind of figure with these options."""
    return lambda draw: FigureKind(options, draw)


def build_figure(
    recipe: Figure,
    cells: DataFrame,
    drawing: Canvas,
    spots: Iterable[Tooltip] = (),
    *,
    title: str,
    caption: str,
    key: str = "",
) -> DrawnFigure:
    """Return a drawing with title, caption, run ids and tooltips as a figure.

    caption: text after the recipe's own caption. key: name of the files; by default of the kind,
        the studies and the metric.
    """
    key = key or "_".join([recipe.kind, *recipe.studies, recipe.metric])
    text = " ".join(filter(None, (replace_greek_names(recipe.caption), caption)))
    slug, runs = to_slug(key), run_ids(cells)
    return DrawnFigure(slug, recipe.studies[0], title, text, drawing, runs, tuple(spots))


def create_canvas(width: float = WIDTH, height: float = HEIGHT) -> Canvas:
    """Return an empty drawing of this size in inches."""
    from matplotlib.figure import Figure as MatplotlibFigure

    return MatplotlibFigure(figsize=(width, height), layout="constrained")


def create_single_panel(title: str, height: float = HEIGHT) -> tuple[Canvas, Axes]:
    """Return a drawing of one panel with a title."""
    drawing = create_canvas(height=height)
    axes = drawing.add_subplot()
    axes.set_title(textwrap.fill(title, 60), fontweight="bold", pad=8)
    return drawing, axes


def create_panel_grid(
    count: int, across: int, title: str, size: tuple[float, float, float], *, sharey: bool = False
) -> tuple[Canvas, list[Axes]]:
    """Return a new drawing with a heading and `count` panels, `across` in a row, and the panels.

    size: width, height without the rows of panels, and height of a row of panels, in inches.
    """
    width, base, row = size
    across = max(1, min(across, count))
    row_count = max(1, math.ceil(count / across))
    drawing = create_canvas(width, base + row * row_count)
    panels = drawing.subplots(row_count, across, sharey=sharey, squeeze=False).ravel().tolist()
    for panel in panels[count:]:  # places of the last row without a panel
        panel.set_axis_off()
    if count == 0:
        draw_empty_message(panels[0], "nothing to show")
    draw_heading(drawing, title)
    return drawing, panels[:count]


def draw_heading(drawing: Canvas, title: str) -> None:
    """Write the title of a figure of several panels at the left, in lines of 60 letters."""
    text = textwrap.fill(title, 60)
    drawing.suptitle(text, x=0.01, ha="left", fontweight="bold", fontsize=TEXT)


def set_panel_title(panel: Axes, title: str, inches: float) -> None:
    """Set the title of a panel that is `inches` wide, broken into lines that fit this width.

    Names of cells, which have no space after a comma, are broken after a comma too.
    """
    words = " ".join(title.replace(",", ", ").split())
    panel.set_title(textwrap.fill(words, int(inches * LETTERS_PER_INCH)))


def draw_empty_message(axes: Axes, reason: str = "no finished runs") -> None:
    """Write in the middle of a panel why nothing is drawn."""
    axes.text(0.5, 0.5, reason, ha="center", va="center", transform=axes.transAxes)


def select_line_style(index: int) -> dict[str, Any]:
    """Return the colour and the dash of one of several lines; no two of the first 32 are alike."""
    dash = DASHES[(index + index // len(COLOURS)) % len(DASHES)]
    return {"color": COLOURS[index % len(COLOURS)], "linestyle": dash}


def set_log_ticks(axes: Axes, low: float, high: float) -> None:
    """Set a few ticks on a logarithmic x axis: powers of ten, or numbers on less than 2 decades."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.xaxis.set_minor_locator(NullLocator())
    if high >= 100 * low:
        axes.xaxis.set_major_locator(LogLocator(numticks=4))
    else:
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 3) if high >= 10 * low else (1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")


def draw_legend(axes: Axes, count: int, title: str | None = None) -> None:
    """Draw a legend of `count` lines within the axes if it is short, else below.

    A legend below the axes makes the figure taller.
    """
    if count <= SHORT_LEGEND:
        axes.legend(loc="best", title=title)
        return
    handles, labels = axes.get_legend_handles_labels()
    columns = 1 if max(map(len, labels)) > 40 else 2
    lines = math.ceil(count / columns) + (title is not None)
    drawing: Any = axes.figure
    drawing.set_figheight(drawing.get_figheight() + LINE * lines)
    drawing.legend(handles, labels, loc="outside lower left", ncols=columns, title=title)


def name_units(studies: Iterable[DataFrame]) -> str:
    """Name what n counts in the cells of studies: `seeds`, `splits`, or `seeds or splits`."""
    return " or ".join(dict.fromkeys(f"{find_unit(cells)}s" for cells in studies))


def format_counts(counts: list[int], units: str = "seeds") -> str:
    """Write the range of cells' n: `n = 2–3 seeds`, `n = 1 split`, `no finished runs`."""
    positive = [n for n in counts if n]
    if not positive:
        return "no finished runs"
    low, high = min(positive), max(positive)
    span = str(low) if low == high else f"{low}–{high}"
    singular = re.sub(r"s\b", "", units)
    return f"n = {span} {singular if high == 1 else units}"


def sort_levels(values: list[Any]) -> list[Any]:
    """Return the distinct levels in ascending order; numbers before words."""
    unique = list({repr(v): v for v in values}.values())
    return sorted(unique, key=lambda v: (isinstance(v, str), v if isinstance(v, str) else float(v)))
