"""What figures of trained models share: which models they show, what was read of these, pictures.

What such a figure shows is read of a model once, by `trainables.jobs.views`, and logged with its
run (`Frame.load_model_view`): a kind has a file here that draws, and a function there that reads.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

import reports.figures.figure as plot
from reports.frame import OTHER, Frame
from reports.kinds import find_figure_options
from reports.recipe import Figure, Recipe
from reports.tables import labels
from reports.tables.cells import find_protocol, summarize_cells

MOST_LINES = 8  # models in one picture
NOT_READ = "not read: its weights or its data were not at hand, see what the command said"
ROOM = 0.92  # of a picture's place, which the picture fills
LETTERS = 0.42  # of a place's height, below it

Pixels = np.ndarray[Any, Any]
Strip = tuple[str, tuple[plot.Tile, ...]]


class ModelOptions(plot.FigureOptions):
    """Options of figures of trained models, whose data are computed once, in the trials' folders.

    split: whose images are shown.
    cells: those of the study, by name; default: the best by the figure's metric, or where
        `every` is set all, up to `MOST_LINES`. Of a cell its first seed.
    """

    every: ClassVar[bool] = False
    split: Literal["train", "val", "test"] = "test"
    cells: tuple[str, ...] = Field((), max_length=MOST_LINES)

    def build_read_request(self) -> dict[str, Any]:
        """Return the options that the reader of a model takes."""
        return self.model_dump(mode="json", exclude={"cells"})

    def build_file_name(self, kind: str) -> str:
        """Name the file that holds what is read: the same for figures that ask for the same."""
        text = json.dumps(self.build_read_request(), sort_keys=True, separators=(",", ":"))
        return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class ModelRef:
    """A cell's first finished seed. why: how the cell was chosen."""

    cell: str
    seed: int
    trial_id: str
    run_id: str
    why: str = ""

    def describe(self) -> str:
        """Name the model in a caption: `plain, seed 0, the best by MAP@R`."""
        return f"{self.cell}, seed {self.seed}" + (f", {self.why}" if self.why else "")


@dataclass(frozen=True)
class ViewRequest:
    """What is to be read of one trial. options: as the reader of models takes them."""

    trial_id: str
    run_id: str
    name: str
    kind: str
    options: dict[str, Any]


def list_requested_views(frame: Frame, recipe: Recipe) -> Iterator[ViewRequest]:
    """Yield all that the figures of a recipe show, whether it was read or not; each once."""
    requested: set[tuple[str, str]] = set()
    for figure in recipe.figures:
        kind = find_figure_options(figure.kind)
        if kind is None or not issubclass(kind, ModelOptions):
            continue
        options = kind.model_validate(figure.options)
        name, request = options.build_file_name(figure.kind), options.build_read_request()
        for model in select_models(frame, figure, options):
            if (model.run_id, name) not in requested:
                requested.add((model.run_id, name))
                yield ViewRequest(model.trial_id, model.run_id, name, figure.kind, request)


def select_models(frame: Frame, figure: Figure, options: ModelOptions) -> list[ModelRef]:
    """Return the models that a figure shows: the first seed and fold of each cell with a result."""
    cells = frame.select_study(figure.studies[0])
    done = cells[cells["status"] == "done"]
    first = {str(row["cell"]): row for row in reversed(done.to_dict("records"))}
    why = ""
    if options.cells or options.every:
        # A row whose best is the baseline, shown under its own name, shows its method's best cell.
        names = [name for name in options.cells or map(str, done["cell"]) if name in first]
        names = [name + OTHER if name + OTHER in first else name for name in names]
    elif means := summarize_cells(done, figure.metric):
        sign = -1 if labels.is_lower_better(figure.metric) else 1
        names = [max(means, key=lambda name: sign * means[name].mean)]
        why = f"the best by {labels.format_metric_label(figure.metric)}"
    else:
        names, why = list(first)[:1], "the first"
    return [
        ModelRef(
            name,
            int(first[name]["seed"]),
            first[name]["trial_id"],
            first[name]["run_id"],
            why or _explain_model_choice(name, first),
        )
        for name in list(dict.fromkeys(names))[:MOST_LINES]
    ]


def _explain_model_choice(name: str, first: dict[str, Any]) -> str:
    """Say where a cell is not what its row's name leads a reader to expect; empty otherwise."""
    if name.endswith(OTHER):
        return (
            f"the best configuration with the method on, because the best of "
            f"{name.removesuffix(OTHER)} is the baseline itself"
        )
    for cell, row in first.items():
        alike = row["trial_id"] == first[name]["trial_id"]
        if alike and cell != name and not cell.endswith(OTHER):
            return f"the same model as {cell}"
    return ""


@dataclass(frozen=True)
class Views:
    """What a figure is drawn from. readings: each model with what was read of it."""

    options: Any
    readings: list[tuple[ModelRef, dict[str, Any]]]
    protocol: str


@dataclass(frozen=True)
class Picture:
    """What is drawn of models: a figure, its caption, the marks that tell their values, and the
    strips as `DrawnFigure` has them."""

    figure: plot.Canvas
    caption: str
    spots: Sequence[plot.Tooltip] = ()
    strips: Sequence[Strip] = ()


@dataclass(frozen=True)
class ArtifactFigure(plot.FigureKind):
    """A kind of figure of trained models.

    draw: is given what was read, of one model at least, and the figure's title. what: what it
    shows, for the title where a recipe gives none. apart: it stands on a page of its own.
    """

    what: str
    apart: bool

    @plot.use_report_style()
    def __call__(self, frame: Frame, recipe: Figure) -> plot.DrawnFigure:
        options = self.options.model_validate(recipe.options)
        assert isinstance(options, ModelOptions)
        study, name = recipe.studies[0], options.build_file_name(recipe.kind)
        models = select_models(frame, recipe, options)
        views = [(model, frame.load_model_view(model.run_id, name)) for model in models]
        title = labels.replace_greek_names(recipe.title) or f"{study}: {self.what}"
        if readings := [(model, view) for model, view in views if view]:
            picture = self.draw(Views(options, readings, find_protocol(frame)), title)
        else:
            drawing, panel = plot.create_single_panel(title, 1.2)
            panel.set_axis_off()
            plot.draw_empty_message(panel, "nothing was read")
            picture = Picture(drawing, "Nothing was read.")
        lost = [
            f"{model.cell}, seed {model.seed}: {NOT_READ}." for model, view in views if not view
        ]
        caption = [labels.replace_greek_names(recipe.caption), picture.caption, *lost]
        cells, shown_models = (
            frame.select_study(study),
            {(model.cell, model.trial_id) for model in models},
        )
        pairs = zip(cells["cell"], cells["trial_id"], cells["run_id"], strict=True)
        return plot.DrawnFigure(
            labels.to_slug(f"{recipe.kind}_{study}_{options.split}"),
            study,
            title,
            " ".join(filter(None, caption)),
            picture.figure,
            tuple(run for cell, trial, run in pairs if run and (cell, trial) in shown_models),
            tuple(picture.spots),
            self.apart,
            tuple(picture.strips),
        )


def register_model_figure(
    options: type[ModelOptions], what: str, *, apart: bool = False
) -> Callable[[Callable[[Any, str], Picture]], ArtifactFigure]:
    """Declare the decorated function a kind of figure of trained models (`ArtifactFigure`)."""
    return lambda draw: ArtifactFigure(options, draw, what, apart)


def create_model_panels(
    views: Views, title: str, heads: list[str], *, width: float = plot.WIDTH, room: float = 0.35
) -> tuple[plot.Canvas, list[plot.Axes]]:
    """Return a figure of one square panel per model, two in a row, without ticks.

    Args:
        heads: what stands above each panel, after the model's name.
        width: of the figure, in inches.
        room: above a panel, in inches.
    """
    count = len(views.readings)
    side = plot.WIDTH / min(2, count)
    drawing, panels = plot.create_panel_grid(count, 2, title, (width, 0.4, side + room))
    for panel, (model, _), head in zip(panels, views.readings, heads, strict=True):
        plot.set_panel_title(panel, f"{labels.replace_greek_names(model.cell)}: {head}", side)
        panel.set(xticks=[], yticks=[])
    return drawing, panels


def put_thumbnail(
    panel: plot.Axes, at: Any, picture: str, zoom: float, colour: str, **place: Any
) -> None:
    """Draw a small picture at a point, in a frame of a colour."""
    from matplotlib.offsetbox import AnnotationBbox, OffsetImage

    image, frame = OffsetImage(decode_picture(picture), zoom=zoom), {"edgecolor": colour}
    panel.add_artist(AnnotationBbox(image, at, pad=0.1, bboxprops=frame, **place))


def decode_picture(picture: str) -> Pixels:
    """Decode a picture that was read, [H, W, 3]."""
    from PIL import Image

    with Image.open(BytesIO(base64.b64decode(picture)), formats=("JPEG",)) as image:
        return np.asarray(image.convert("RGB"))


class PictureBoard:
    """A figure with room for rows of pictures, each with a line of letters below."""

    def __init__(self, rows: int, columns: float, title: str) -> None:
        height = rows * plot.WIDTH / columns * (1 + LETTERS) + 0.4
        self.drawing = plot.create_canvas(plot.WIDTH, height)
        self.panel = self.drawing.add_subplot()
        self.spots: list[plot.Tooltip] = []
        plot.draw_heading(self.drawing, title)
        self.panel.set(xlim=(0, columns), ylim=(rows * (1 + LETTERS), 0), aspect="equal")
        self.panel.set_axis_off()

    def put(
        self,
        at: tuple[int, float],
        picture: str,
        words: str,
        frame: tuple[str, str],
        tip: str,
        *,
        heat: Pixels | None = None,
    ) -> None:
        """Draw a picture.

        Args:
            at: the row and the column.
            picture: JPEG in base64.
            words: what stands below it.
            frame: colour and dash of the line around it.
            tip: what it tells on hover.
            heat: numbers in 0 … 1, [h, w], that are drawn over it.
        """
        from matplotlib.patches import Rectangle

        pixels, (row, column) = decode_picture(picture), at
        tall, wide = (ROOM * side / max(pixels.shape[:2]) for side in pixels.shape[:2])
        x, y = column + 0.5, row * (1 + LETTERS) + 0.5
        extent = x - wide / 2, x + wide / 2, y + tall / 2, y - tall / 2
        self.panel.imshow(pixels, extent=extent, interpolation="antialiased", aspect="auto")
        edge: dict[str, Any] = {"edgecolor": frame[0], "linestyle": frame[1], "linewidth": 1.8}
        self.panel.add_patch(Rectangle((extent[0], extent[3]), wide, tall, fill=False, **edge))
        self.panel.text(x, y + 0.5, words, ha="center", va="top", fontsize=6.5)
        if heat is not None:
            over: dict[str, Any] = {"cmap": "inferno", "vmin": 0, "vmax": 1, "alpha": 0.6}
            self.panel.imshow(heat, extent=extent, interpolation="bilinear", aspect="auto", **over)
        self.spots.append(plot.Tooltip(self.panel, x, y, tip))
