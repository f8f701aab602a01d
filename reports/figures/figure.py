"""What a figure is, how a kind of it is declared, and the style of all, drawn without a display.

A kind is one file here, or a function of another package (`reports/kinds.py`):

    @figure(SliceOptions)
    def slices(frame: Frame, recipe: Figure, options: SliceOptions) -> Drawn: ...

Colours: cividis for magnitudes (perceptually uniform, the same to colour-blind readers) and
Okabe and Ito's palette with line styles for cells. Figures are the same bytes for the same runs.
Matplotlib is imported when something is drawn, so that a plan, which checks options, stays quick.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from reports.frame import Frame
from reports.recipe import Curves, FactorCurves, Figure, Heatmap, RecipePart, list_part_studies
from reports.tables.cells import run_ids
from reports.tables.labels import replace_greek_names, to_slug

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure
    import pandas as pd

    Axes = matplotlib.axes.Axes
    Canvas = matplotlib.figure.Figure
else:
    Axes = Canvas = Any

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
DASHES = ("-", "--", "-.", ":")
TEXT = 9.0  # points, of all letters in all figures
WIDTH, HEIGHT = 5.6, 3.5  # inches, of a figure of one panel
GRID = "#e4e4e4"
PANEL = "#f2f2f2"  # behind what is missing
# Letters on a colour that stays as it is on a dark page, where black and white are exchanged.
DARK_INK, LIGHT_INK = "#010101", "#fefefe"
SHORT = 4  # lines of a legend that finds room within the axes
PIXELS = 5_500_000  # of a PNG, at most
LETTERS = 13  # in an inch of text, at least
LINE = 0.18  # inches, of a legend
MANY = 1000  # marks, from which they are pixels within the picture and have no values to hover over
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize"), TEXT),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), TEXT),
    **dict.fromkeys(("legend.fontsize", "legend.title_fontsize"), TEXT),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    **{"axes.linewidth": 0.8, "axes.titlelocation": "left", "axes.axisbelow": True},
    **{"grid.color": GRID, "grid.linewidth": 0.7, "lines.markersize": 4, "errorbar.capsize": 3},
    **{"svg.hashsalt": "ablate", "svg.fonttype": "path", "mathtext.fontset": "dejavusans"},
    **{"figure.dpi": 100, "savefig.dpi": 200},
}


@contextmanager
def use_report_style() -> Iterator[None]:
    """Draw with our settings, whatever matplotlib's are; a function may be decorated with it."""
    import matplotlib.style

    with matplotlib.style.context(["default", STYLE]):
        yield


@dataclass(frozen=True)
class Tooltip:
    """A mark that tells its values where a page is read with a pointer or with arrow keys.

    x, y: where it is, in the data of its axes.
    """

    axes: Axes
    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Tile:
    """A picture of an image. picture: JPEG in base64; words: below it; text: more of it, told on
    hover; edge: what its frame says: "hit", "miss" or neither, ""."""

    picture: str
    words: str
    text: str
    edge: str = ""


@dataclass(frozen=True)
class DrawnFigure:
    """A figure with what stands beside it: its files' name, its (first) study, title, caption,
    the runs behind it, and the marks that tell their values.

    apart: it stands on a page of its own, as it holds pictures of images. strips: rows of these,
    each with what it is, which that page shows instead of the figure, so that they fit a screen of
    any width; the first picture of a row stands before the others.
    """

    key: str
    study: str
    title: str
    caption: str
    figure: Canvas
    run_ids: tuple[str, ...]
    spots: tuple[Tooltip, ...] = ()
    apart: bool = False
    strips: tuple[tuple[str, tuple[Tile, ...]], ...] = ()

    def locate_spots(self) -> list[tuple[float, float, str]]:
        """Return each spot of a saved figure in shares of the picture from its left and top; none
        of more than `MANY`."""
        if len(self.spots) > MANY:
            return []
        width, height = self.figure.bbox.size
        points = [spot.axes.transData.transform((spot.x, spot.y)) for spot in self.spots]
        return [
            (float(x / width), float(1 - y / height), spot.text)
            for spot, (x, y) in zip(self.spots, points, strict=True)
        ]

    @use_report_style()
    def save_files(self, folder: Path) -> dict[str, Path]:
        """Write PNG (200 dpi, fewer where it would have more than `PIXELS`) and SVG, and return
        `{"png": path, "svg": path}`."""
        paths = {kind: folder / f"{self.key}.{kind}" for kind in ("png", "svg")}
        width, height = self.figure.get_size_inches()
        dpi = min(STYLE["savefig.dpi"], math.sqrt(PIXELS / (width * height)))
        if engine := self.figure.get_layout_engine():  # once: `savefig` would do it each time
            screen_dpi, self.figure.dpi = self.figure.dpi, dpi
            engine.execute(self.figure)
            self.figure.dpi = screen_dpi
            self.figure.set_layout_engine("none")
        self.figure.savefig(paths["png"], dpi=dpi, metadata={"Software": None})
        self.figure.savefig(paths["svg"], dpi=dpi, metadata={"Date": None, "Creator": None})
        return paths


class FigureOptions(RecipePart):
    """What every kind says of the studies that it is of.

    shown_as: the kind of tables that such a study has too (`search`, `effects`, `promoted`);
        empty: any study.
    several: whether it is of several at once.
    """

    shown_as: ClassVar[str] = ""
    several: ClassVar[bool] = False

    def factors(self) -> Mapping[str, tuple[str, ...]]:
        """Return option → the names in it that must be among those that the study varies."""
        return {}


@dataclass(frozen=True)
class FigureKind:
    """A kind of figure: the options that it takes, and what draws it."""

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
    """Declare the decorated function a kind of figure that takes these options."""
    return lambda draw: FigureKind(options, draw)


def build_figure(
    recipe: Figure | Curves | FactorCurves | Heatmap,
    cells: pd.DataFrame,
    drawing: Canvas,
    spots: Iterable[Tooltip] = (),
    *,
    title: str,
    caption: str,
    key: str = "",
) -> DrawnFigure:
    """Return a drawing as a figure of these cells, its caption after what the recipe says.

    key: its files' name; default: kind, studies and metric.
    """
    if isinstance(recipe, Figure):
        key = key or "_".join([recipe.kind, *recipe.studies, recipe.metric])
    words = " ".join(filter(None, (replace_greek_names(recipe.caption), caption)))
    study = list_part_studies(recipe)[0]
    return DrawnFigure(to_slug(key), study, title, words, drawing, run_ids(cells), tuple(spots))


def create_canvas(width: float = WIDTH, height: float = HEIGHT) -> Canvas:
    """Return an empty drawing of this size in inches."""
    from matplotlib.figure import Figure as New

    return New(figsize=(width, height), layout="constrained")


def create_single_panel(title: str, height: float = HEIGHT) -> tuple[Canvas, Axes]:
    """Return a drawing of one panel with a title."""
    drawing = create_canvas(height=height)
    axes = drawing.add_subplot()
    draw_heading(axes, title)
    return drawing, axes


def create_panel_grid(
    count: int, across: int, title: str, size: tuple[float, float, float], *, sharey: bool = False
) -> tuple[Canvas, list[Axes]]:
    """Return a drawing of so many panels, `across` in a row, and the panels.

    size: width, height beside the rows and height of a row, in inches.
    """
    width, base, row = size
    across = min(across, count)
    down = -(-count // across)
    drawing = create_canvas(width, base + row * down)
    panels = drawing.subplots(down, across, sharey=sharey, squeeze=False).ravel().tolist()
    for panel in panels[count:]:
        panel.set_axis_off()
    draw_heading(drawing, title)
    return drawing, panels[:count]


def draw_heading(part: Axes | Canvas, title: str) -> None:
    """Write the title at the left, in lines of 60 letters."""
    text = textwrap.fill(title, 60)
    if hasattr(part, "suptitle"):
        part.suptitle(text, x=0.01, ha="left", fontweight="bold", fontsize=TEXT)
    else:
        part.set_title(text, fontweight="bold", pad=8)


def set_panel_title(panel: Axes, title: str, inches: float) -> None:
    """Set the title of one of several panels in lines that are no wider than the panel.

    Names of cells break after a comma too, which has no space behind it.
    """
    words = " ".join(title.replace(",", ", ").split())
    panel.set_title(textwrap.fill(words, int(inches * LETTERS)))


def draw_empty_message(axes: Axes, words: str = "no finished runs") -> None:
    """Say in the middle of a panel why nothing is drawn."""
    axes.text(0.5, 0.5, words, ha="center", va="center", transform=axes.transAxes)


def select_line_style(index: int) -> dict[str, Any]:
    """Return the colour and the dash of one of several lines."""
    turn = index // len(COLOURS) + index
    return {"color": COLOURS[index % len(COLOURS)], "linestyle": DASHES[turn % len(DASHES)]}


def draw_bars(axes: Axes, names: list[str], values: list[float], colour: str, height: float) -> Any:
    """Draw a horizontal bar a name, the first on top."""
    drawing = axes.barh(range(len(names)), values, height=height, color=colour)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    return drawing


def trim_colormap(name: str, low: float, high: float) -> Any:
    """Return the part of one of matplotlib's colour maps from a share to another."""
    import matplotlib as mpl
    import numpy as np
    from matplotlib.colors import ListedColormap

    return ListedColormap(mpl.colormaps[name](np.linspace(low, high, 256)))


def log_ticks(axes: Axes, low: float, high: float) -> None:
    """Set a few ticks on a logarithmic x: powers of ten, or plain numbers within two decades."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.xaxis.set_minor_locator(NullLocator())
    decades = math.log10(high / low)
    if decades >= 2:
        axes.xaxis.set_major_locator(LogLocator(numticks=4))
        return
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if decades < 1.3 else (1, 3)
    values = [step * 10.0**power for power in powers for step in steps]
    visible = [value for value in values if low <= value <= high]
    axes.set_xticks(visible, [f"{value:g}" for value in visible])


def limit_ticks(axis: Any, most: int | None = None) -> None:
    """Set at most so many ticks on an axis, or ticks at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(most) if most else MaxNLocator(integer=True))


def draw_legend(axes: Axes, count: int, title: str | None = None) -> None:
    """Set the legend where it hides nothing: within the axes while it is short, else below them,
    the figure being taller by as much."""
    if count <= SHORT:
        axes.legend(loc="best", title=title)
        return
    handles, labels = axes.get_legend_handles_labels()
    across = 1 if max(map(len, labels)) > 40 else 2
    drawing: Any = axes.figure
    lines = -(-count // across) + (title is not None)
    drawing.set_figheight(drawing.get_figheight() + LINE * lines)
    drawing.legend(handles, labels, loc="outside lower left", ncols=across, title=title)


def format_seed_counts(counts: list[int]) -> str:
    """Write `n = 3 seeds`, `n = 2–3 seeds` or `no finished runs`."""
    positive = [n for n in counts if n]
    if not positive:
        return "no finished runs"
    low, high = min(positive), max(positive)
    span = str(low) if low == high else f"{low}–{high}"
    return f"n = {span} seed{'' if high == 1 else 's'}"


def sort_levels(values: list[Any]) -> list[Any]:
    """Return levels in ascending order; numbers before words."""
    unique = list({repr(v): v for v in values}.values())
    return sorted(unique, key=lambda v: (isinstance(v, str), v if isinstance(v, str) else float(v)))
