"""What a figure is, and the style of all of them, drawn without a display.

Colours: cividis for magnitudes (perceptually uniform, the same to colour-blind readers) and
Okabe and Ito's palette with line styles for cells. Figures are the same bytes for the same runs.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from reports.tables.labels import greek

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
    "font.size": TEXT,
    "axes.titlesize": TEXT,
    "axes.labelsize": TEXT,
    "xtick.labelsize": TEXT,
    "ytick.labelsize": TEXT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": TEXT,
    "legend.title_fontsize": TEXT,
    "svg.hashsalt": "ablate",
    "svg.fonttype": "path",
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "mathtext.fontset": "dejavusans",
}


@dataclass(frozen=True)
class Spot:
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
class Strip:
    """A row of pictures: what it is, the first one, and those beside it."""

    words: str
    first: Tile
    others: tuple[Tile, ...]


@dataclass(frozen=True)
class Drawn:
    """A figure with what stands beside it: its files' name, its (first) study, title, caption,
    the runs behind it, what is missing, and the marks that tell their values.

    apart: it stands on a page of its own, as it holds pictures of images. strips: these pictures,
    which that page shows instead of the figure, so that they fit a screen of any width.
    """

    key: str
    study: str
    title: str
    caption: str
    figure: Figure
    run_ids: tuple[str, ...]
    gaps: tuple[str, ...]
    spots: tuple[Spot, ...] = ()
    apart: bool = False
    strips: tuple[Strip, ...] = ()

    def places(self) -> list[tuple[float, float, str]]:
        """Each spot in shares of the picture from its left and top; of one that is saved. None of
        more than `MANY`."""
        if len(self.spots) > MANY:
            return []
        width, height = self.figure.bbox.size
        found = []
        for spot in self.spots:
            x, y = spot.axes.transData.transform((spot.x, spot.y))
            found.append((float(x / width), float(1 - y / height), spot.text))
        return found

    def save(self, folder: Path) -> dict[str, Path]:
        """Write PNG (200 dpi, fewer where it would have more than `PIXELS`) and SVG;
        `{"png": path, "svg": path}`."""
        paths = {kind: folder / f"{self.key}.{kind}" for kind in ("png", "svg")}
        with style():
            width, height = self.figure.get_size_inches()
            dpi = min(mpl.rcParams["savefig.dpi"], math.sqrt(PIXELS / (width * height)))
            self._lay_out(dpi)
            self.figure.savefig(paths["png"], dpi=dpi, metadata={"Software": None})
            self.figure.savefig(paths["svg"], dpi=dpi, metadata={"Date": None, "Creator": None})
        return paths

    def _lay_out(self, dpi: float) -> None:
        """Put all in its place once, as in the PNG, where it stays; `savefig` would draw the figure
        for that, beside drawing it."""
        engine = self.figure.get_layout_engine()
        if engine is None:
            return
        own = self.figure.dpi
        self.figure.dpi = dpi
        engine.execute(self.figure)
        self.figure.dpi = own
        self.figure.set_layout_engine("none")


@contextmanager
def style() -> Iterator[None]:
    """Our settings, whatever the caller's matplotlib has been told."""
    with mpl.rc_context():
        mpl.rcdefaults()
        settings: Any = mpl.rcParams
        settings.update(STYLE)
        yield


def heading(figure: Axes | Figure, title: str, width: int = 60) -> None:
    """The title at the left, in lines of `width` letters."""
    text = textwrap.fill(title, width)
    if isinstance(figure, Figure):
        figure.suptitle(text, x=0.01, ha="left", fontweight="bold", fontsize=TEXT)
    else:
        figure.set_title(text, loc="left", fontweight="bold", pad=8)


def title_panel(panel: Axes, title: str, inches: float) -> None:
    """Set the title of one of several panels in lines that are no wider than the panel.

    Names of cells break after a comma too, which has no space behind it.
    """
    letters = int(inches * LETTERS)
    words = title.replace(",", ", ")
    panel.set_title("\n".join(textwrap.wrap(" ".join(words.split()), letters)), loc="left")


def said(own: str, found: str) -> str:
    """A caption: what the recipe says, then what was found."""
    return f"{greek(own)} {found}" if own else found


def empty(axes: Axes, words: str = "no finished runs") -> None:
    axes.text(0.5, 0.5, words, ha="center", va="center", transform=axes.transAxes)


def lined(axes: Axes, axis: Literal["x", "y", "both"] = "both") -> None:
    """Grey lines behind what is drawn."""
    axes.grid(axis=axis, color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)


def log_ticks(axes: Axes, low: float, high: float) -> None:
    """A few ticks on a logarithmic x: powers of ten, or plain numbers within two decades."""
    axes.xaxis.set_minor_locator(NullLocator())
    decades = math.log10(high / low)
    if decades >= 2:
        axes.xaxis.set_major_locator(LogLocator(numticks=4))
        return
    steps = (1, 2, 5) if decades < 1.3 else (1, 3)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [step * 10.0**power for power in powers for step in steps]
    shown = [value for value in found if low <= value <= high]
    axes.set_xticks(shown, [f"{value:g}" for value in shown])


def legend(axes: Axes, count: int, title: str | None = None) -> None:
    """Where it hides nothing: within the axes while it is short, else below them, the figure being
    taller by as much."""
    if count <= SHORT:
        axes.legend(loc="best", title=title)
        return
    handles, labels = axes.get_legend_handles_labels()
    across = 1 if max(map(len, labels)) > 40 else 2
    figure = axes.get_figure(root=True)
    assert figure is not None
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + LINE * (-(-count // across) + (title is not None)))
    figure.legend(handles, labels, loc="outside lower left", ncols=across, title=title)


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
