"""What figures of trained models share: which models they show, what was read of these, pictures.

What such a figure shows is read of a model once, by `trainables.jobs.views`, and logged with its
run (`Frame.view`): a kind has a file here that draws, and a function there that reads.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

import reports.figures.drawn as plot
from reports.frame import OTHER, Frame
from reports.kinds import figure_options
from reports.recipe import Figure, Recipe
from reports.tables.cells import gaps, protocol, run_ids, summaries
from reports.tables.labels import greek, lower_is_better, metric_label, slug

MOST_LINES = 8  # models in one picture
NOT_READ = "not read: its weights or its data were not at hand, see what the command said"
EDGE = 0.04  # of a picture's place, around it
LETTERS = 0.42  # of a place's height, below it

Pixels = np.ndarray[Any, Any]


class ModelOptions(plot.FigureOptions):
    """Of figures of trained models: what is read of them once, into their trials' folders.

    split: whose images are shown. cells: those of the study, by name; default: the best by the
    figure's metric, or where `every` is set all, up to `MOST_LINES`. Of a cell its first seed.
    """

    every: ClassVar[bool] = False
    split: Literal["train", "val", "test"] = "test"
    cells: tuple[str, ...] = Field((), max_length=MOST_LINES)

    def read(self) -> dict[str, Any]:
        """Return what the reader of a model is told."""
        return self.model_dump(mode="json", exclude={"cells"})

    def name(self, kind: str) -> str:
        """Name the file that holds what is read: the same for figures that ask for the same."""
        text = json.dumps(self.read(), sort_keys=True, separators=(",", ":"))
        return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class Seen:
    """A cell's first finished seed. why: how the cell was chosen."""

    cell: str
    seed: int
    trial_id: str
    run_id: str
    why: str = ""


@dataclass(frozen=True)
class Asked:
    """What is to be read of one trial. options: as the reader of models takes them."""

    trial_id: str
    run_id: str
    name: str
    kind: str
    options: dict[str, Any]


def asked(frame: Frame, recipe: Recipe) -> Iterator[Asked]:
    """Yield all that the figures of a recipe show, whether it was read or not; each once."""
    known: set[tuple[str, str]] = set()
    for figure in recipe.figures:
        kind = figure_options(figure.kind)
        if kind is None or not issubclass(kind, ModelOptions):
            continue
        options = kind.model_validate(figure.options)
        name = options.name(figure.kind)
        for each in seen(frame, figure, options):
            if (each.run_id, name) not in known:
                known.add((each.run_id, name))
                yield Asked(each.trial_id, each.run_id, name, figure.kind, options.read())


def seen(frame: Frame, figure: Figure, options: ModelOptions) -> list[Seen]:
    """Return the models that a figure shows: the first seed and fold of each cell with a result."""
    cells = frame.study(figure.studies[0])
    done = cells[cells["status"] == "done"]
    first = {str(row["cell"]): row for row in reversed(done.to_dict("records"))}
    why = ""
    if options.cells or options.every:
        # A row whose best is the baseline, shown under its own name, shows its method's best cell.
        wanted = [name for name in options.cells or map(str, done["cell"]) if name in first]
        shown = (name + OTHER if name + OTHER in first else name for name in wanted)
        names = list(dict.fromkeys(shown))[:MOST_LINES]
    else:
        sign = -1 if lower_is_better(figure.metric) else 1
        means = summaries(done, figure.metric)
        best = max(means, key=lambda name: sign * means[name].mean, default=None)
        names = list(first)[:1] if best is None else [best]
        why = f"the best by {metric_label(figure.metric)}" if means else "the first"
    return [
        Seen(name, int(row["seed"]), row["trial_id"], row["run_id"], why or _explain(name, first))
        for name in names
        for row in [first[name]]
    ]


def _explain(name: str, first: Mapping[str, Any]) -> str:
    """Say where a cell is not what its row's name leads a reader to expect; empty otherwise."""
    if name.endswith(OTHER):
        return (
            f"the best configuration with the method on, because the best of "
            f"{name.removesuffix(OTHER)} is the baseline itself"
        )
    trial = first[name]["trial_id"]
    twins = [
        cell
        for cell, row in first.items()
        if row["trial_id"] == trial and cell != name and not cell.endswith(OTHER)
    ]
    return f"the same model as {twins[0]}" if twins else ""


@dataclass(frozen=True)
class Views:
    """What a figure is drawn from. found: each model with what was read of it."""

    options: ModelOptions
    found: list[tuple[Seen, dict[str, Any]]]
    protocol: str

    def who(self, each: Seen) -> str:
        """Name a model in a caption: `plain, seed 0, the best by MAP@R`."""
        return f"{each.cell}, seed {each.seed}" + (f", {each.why}" if each.why else "")


@dataclass(frozen=True)
class Picture:
    """What is drawn of models: a figure, its caption, the marks that tell their values, and the
    strips as `Drawn` has them."""

    figure: plot.Canvas
    caption: str
    spots: tuple[plot.Spot, ...] = ()
    strips: tuple[plot.Strip, ...] = ()


def model_figure(
    options: type[ModelOptions], what: str, *, apart: bool = False
) -> Callable[[Callable[[Views, str], Picture]], plot.FigureKind]:
    """Declare the decorated function a kind of figure of trained models.

    It is given what was read, of one model at least, and the figure's title.

    Args:
        options: the options that the kind takes.
        what: what it shows, for the title where a recipe gives none.
        apart: whether it stands on a page of its own, as it holds pictures of images.
    """

    def declare(draw: Callable[[Views, str], Picture]) -> plot.FigureKind:
        def draw_models(frame: Frame, recipe: Figure, chosen: ModelOptions) -> plot.Drawn:
            study, name = recipe.studies[0], chosen.name(recipe.kind)
            models = seen(frame, recipe, chosen)
            read = [(each, frame.view(each.run_id, name)) for each in models]
            found = [(each, view) for each, view in read if view]
            lost = tuple(f"{each.cell}, seed {each.seed}: {NOT_READ}" for each, v in read if not v)
            cells = frame.study(study)
            shown = cells[cells["cell"].isin([each.cell for each in models])]
            trials = shown[shown["trial_id"].isin([each.trial_id for each in models])]
            title = greek(recipe.title) or f"{study}: {what}"
            views = Views(chosen, found, protocol(frame))
            picture = draw(views, title) if found else nothing(title)
            words = [greek(recipe.caption), picture.caption, *(f"{text}." for text in lost)]
            return plot.Drawn(
                slug(f"{recipe.kind}_{study}_{chosen.split}"),
                study,
                title,
                " ".join(filter(None, words)),
                picture.figure,
                run_ids(trials),
                gaps(shown if models else cells) + lost,
                picture.spots,
                apart,
                picture.strips,
            )

        return plot.FigureKind(options, draw_models)

    return declare


def nothing(title: str) -> Picture:
    """Return a figure of no model, which says so."""
    drawing, panel = plot.single(title, 1.2)
    panel.set_axis_off()
    plot.empty(panel, "nothing was read")
    return Picture(drawing, "Nothing was read.")


def model_panels(
    views: Views, title: str, heads: list[str], *, width: float = plot.WIDTH, room: float = 0.35
) -> tuple[plot.Canvas, list[plot.Axes]]:
    """Return a figure of a square panel a model, two in a row, without ticks.

    Args:
        heads: what stands above each panel, after the model's name.
        width: of the figure, in inches.
        room: above a panel, in inches.
    """
    side = plot.WIDTH / min(2, len(views.found))
    drawing, panels = plot.panel_grid(len(views.found), 2, title, (width, 0.4, side + room))
    for panel, (each, _), head in zip(panels, views.found, heads, strict=True):
        plot.title_panel(panel, f"{greek(each.cell)}: {head}", side)
        panel.set_xticks([])
        panel.set_yticks([])
    return drawing, panels


def put_thumbnail(
    panel: plot.Axes, at: Any, picture: str, zoom: float, colour: str, **place: Any
) -> None:
    """Draw a small picture at a point, in a frame of a colour."""
    from matplotlib.offsetbox import AnnotationBbox, OffsetImage

    image, frame = OffsetImage(pixels(picture), zoom=zoom), {"edgecolor": colour}
    panel.add_artist(AnnotationBbox(image, at, pad=0.1, bboxprops=frame, **place))


def pixels(picture: str) -> Pixels:
    """Decode a picture that was read, [H, W, 3]."""
    from PIL import Image

    with Image.open(BytesIO(base64.b64decode(picture)), formats=("JPEG",)) as image:
        return np.asarray(image.convert("RGB"))


def board(rows: int, columns: float, title: str) -> tuple[plot.Canvas, plot.Axes]:
    """Return a figure with room for rows of pictures, each with a line of letters below."""
    drawing = plot.canvas(plot.WIDTH, rows * plot.WIDTH / columns * (1 + LETTERS) + 0.4)
    panel = drawing.add_subplot()
    plot.heading(drawing, title)
    panel.set_xlim(0, columns)
    panel.set_ylim(rows * (1 + LETTERS), 0)
    panel.set_aspect("equal")
    panel.set_axis_off()
    return drawing, panel


def put_picture(
    panel: plot.Axes, at: tuple[int, float], picture: str, words: str, frame: tuple[str, str]
) -> tuple[float, float]:
    """Draw a picture at a row and column, words below it, in a frame of a colour and a dash; return
    where its middle is."""
    from matplotlib.patches import Rectangle

    (row, column), (colour, dash) = at, frame
    top = row * (1 + LETTERS)
    shown = pixels(picture)
    middle = column + 0.5, top + 0.5
    left, right, bottom, upper = extent = _extent(middle, shown)
    panel.imshow(shown, extent=extent, interpolation="antialiased", aspect="auto")
    line: dict[str, Any] = {"fill": False, "edgecolor": colour, "linewidth": 1.8, "linestyle": dash}
    panel.add_patch(Rectangle((left, upper), right - left, bottom - upper, **line))
    panel.text(middle[0], top + 1.0, words, ha="center", va="top", fontsize=6.5)
    return middle


def overlay(panel: plot.Axes, middle: tuple[float, float], picture: str, grid: Pixels) -> None:
    """Draw numbers in 0 … 1, [H, W], over a picture whose middle is here."""
    extent = _extent(middle, pixels(picture))
    shown = panel.imshow(grid, extent=extent, interpolation="bilinear", aspect="auto")
    shown.set(cmap="inferno", clim=(0.0, 1.0), alpha=0.6)


def _extent(middle: tuple[float, float], shown: Pixels) -> tuple[float, float, float, float]:
    """Return left, right, bottom and top of a picture in its place."""
    (x, y), (tall, wide) = middle, shown.shape[:2]
    room = 1 - 2 * EDGE
    w, h = room * wide / max(wide, tall), room * tall / max(wide, tall)
    return x - w / 2, x + w / 2, y + h / 2, y - h / 2
