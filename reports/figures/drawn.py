"""What a figure is, and the style of all of them, drawn without a display.

Colours: cividis for magnitudes (perceptually uniform, the same to colour-blind readers) and
Okabe and Ito's palette with line styles for cells. Figures are the same bytes for the same runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
DASHES = ("-", "--", "-.", ":")
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "svg.hashsalt": "ablate",
    "svg.fonttype": "path",
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "mathtext.fontset": "dejavusans",
}


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
