"""Choose the trained models that a figure shows, load the data about them, and place pictures.

The data are computed from a model once, by a function in `trainables.jobs.views`, and logged with
its run (`Frame.load_model_view`); a kind of figure has a file here that draws them.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, update_wrapper
from io import BytesIO
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

import reports.figures.figure as plot
from reports.frame import OTHER, Frame
from reports.kinds import find_figure_options
from reports.recipe import Figure, FigureOptions, Recipe
from reports.tables import labels
from reports.tables.cells import find_protocol, find_sign, summarize_cells
from trainables.words.metrics import format_metric_label

MAX_MODELS = 8  # in one figure
NOT_READ = "the model's weights or data were not available; the command's output gives the reason"
FILL = 0.92  # share of a cell of a picture board that its picture fills
LETTERS = 0.42  # height of the letters below a picture, as a share of the cell's side

Pixels = np.ndarray[Any, Any]


class ModelOptions(FigureOptions):
    """Options of figures of trained models, whose data are computed once, in the trials' folders.

    split: whose images are shown.
    cells: cells of the study, by name, each by its first seed. Default: the best by the figure's
        metric, or where `every` is set all, up to `MAX_MODELS`.
    """

    every: ClassVar[bool] = False
    split: Literal["train", "val", "test"] = "test"
    cells: tuple[str, ...] = Field((), max_length=MAX_MODELS)

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
    """The data that a figure needs of one trial. options: as their reader takes them."""

    trial_id: str
    run_id: str
    name: str
    kind: str
    options: dict[str, Any]


def list_requested_views(frame: Frame, recipe: Recipe) -> Iterator[ViewRequest]:
    """Yield a request for each piece of data about a trained model that a recipe's figures need.

    Data that were computed before are requested too; no request comes twice.
    """
    requested: set[tuple[str, str]] = set()
    for figure in recipe.figures:
        options_class = find_figure_options(figure.kind)
        if options_class is None or not issubclass(options_class, ModelOptions):
            continue  # the figure shows no trained model
        options = options_class.model_validate(figure.options)
        name, request = options.build_file_name(figure.kind), options.build_read_request()
        for model in select_models(frame, figure, options):
            if (model.run_id, name) not in requested:
                requested.add((model.run_id, name))
                yield ViewRequest(model.trial_id, model.run_id, name, figure.kind, request)


def select_models(frame: Frame, figure: Figure, options: ModelOptions) -> list[ModelRef]:
    """Return a figure's models, the first finished seed and fold of each cell that it shows.

    It shows the cells that the options name, or all (`every`), or the best by the figure's metric.
    """
    cells = frame.select_study(figure.studies[0])
    done = cells[cells["status"] == "done"]
    first_rows = {str(row["cell"]): row for row in reversed(done.to_dict("records"))}  # first wins
    reason = ""
    if options.cells or options.every:
        names = [name for name in options.cells or map(str, done["cell"]) if name in first_rows]
        # where tuning switched a row's method off, show its best cell with the method on (OTHER)
        names = [name + OTHER if name + OTHER in first_rows else name for name in names]
    else:
        means = summarize_cells(done, figure.metric)
        sign = find_sign(frame, figure.studies[0], figure.metric)
        names = sorted(means, key=lambda name: -sign * means[name].mean)[:1]
        reason = f"the best by {format_metric_label(figure.metric)}"
    models = []
    for name in list(dict.fromkeys(names))[:MAX_MODELS]:
        row = first_rows[name]
        seed, trial_id, run_id = int(row["seed"]), row["trial_id"], row["run_id"]
        why = reason or _explain_model_choice(name, first_rows)
        models.append(ModelRef(name, seed, trial_id, run_id, why))
    return models


def _explain_model_choice(name: str, first_rows: dict[str, Any]) -> str:
    """Return why a cell's model is another one than a reader expects; empty if it is not.

    A cell `<name>, not neutral` is the best one with the method on, which is worse than the
    baseline; and two cells may have the same trial. first_rows: cell → its first finished trial.
    """
    if name.endswith(OTHER):
        reason = f"because the best of {name.removesuffix(OTHER)} is the baseline itself"
        return f"the best configuration with the method on, {reason}"
    trial_id = first_rows[name]["trial_id"]
    cells = [cell for cell, row in first_rows.items() if row["trial_id"] == trial_id]
    others = [cell for cell in cells if cell != name and not cell.endswith(OTHER)]
    return f"the same model as {others[0]}" if others else ""


@dataclass(frozen=True)
class Views:
    """Options of a figure, and each of its models with the data about it."""

    options: Any
    readings: list[tuple[ModelRef, dict[str, Any]]]
    protocol: str


@dataclass(frozen=True)
class ModelDrawing:
    """A drawing of models, its caption, and its tooltips."""

    figure: plot.Canvas
    caption: str
    spots: Sequence[plot.Tooltip] = ()


def register_model_figure(
    options: type[ModelOptions], subject: str, *, apart: bool = False
) -> Callable[[Callable[[Views, str], ModelDrawing]], plot.FigureKind]:
    """Declare that the decorated function draws a kind of figure of trained models.

    The function takes the data of the models, and the figure's title, which names `subject` if the
    recipe has no title. apart: whether the figure has a page of its own.
    """

    def declare(draw: Callable[[Views, str], ModelDrawing]) -> plot.FigureKind:
        drawn = partial(_draw_models, draw=draw, subject=subject, apart=apart)
        return plot.FigureKind(options, update_wrapper(drawn, draw))

    return declare


def _draw_models(
    frame: Frame,
    recipe: Figure,
    options: ModelOptions,
    *,
    draw: Callable[[Views, str], ModelDrawing],
    subject: str,
    apart: bool,
) -> plot.DrawnFigure:
    """Draw the trained models whose data were logged; the caption names the other models."""
    study, file_name = recipe.studies[0], options.build_file_name(recipe.kind)
    models = select_models(frame, recipe, options)
    views = [(model, frame.load_model_view(model.run_id, file_name)) for model in models]
    title = labels.replace_greek_names(recipe.title) or f"{study}: {subject}"
    if readings := [(model, view) for model, view in views if view]:
        picture = draw(Views(options, readings, find_protocol(frame)), title)
    else:
        drawing, panel = plot.create_single_panel(title, 1.2)
        panel.set_axis_off()
        plot.draw_empty_message(panel, "nothing was read")
        picture = ModelDrawing(drawing, "Nothing was read.")
    missing = [f"{m.cell}, seed {m.seed}: {NOT_READ}." for m, view in views if not view]
    caption = " ".join([picture.caption, *missing])
    cells = frame.select_study(study)
    model_keys = {(model.cell, model.trial_id) for model in models}
    cell_keys = zip(cells["cell"], cells["trial_id"], strict=True)
    cells = cells[[key in model_keys for key in cell_keys]]
    key = f"{recipe.kind}_{study}_{options.split}"
    texts = {"title": title, "caption": caption, "key": key}
    figure = plot.build_figure(recipe, cells, picture.figure, picture.spots, **texts)
    return replace(figure, apart=apart)


def create_model_panels(
    views: Views, title: str, heads: list[str]
) -> tuple[plot.Canvas, list[plot.Axes]]:
    """Return a drawing and its square panels without ticks: one per model, two in a row.

    heads: texts that follow the models' names in the titles of the panels.
    """
    count = len(views.readings)
    side = plot.WIDTH / min(2, count)
    drawing, panels = plot.create_panel_grid(count, 2, title, (plot.WIDTH, 0.4, side + 0.35))
    for panel, (model, _), head in zip(panels, views.readings, heads, strict=True):
        plot.set_panel_title(panel, f"{labels.replace_greek_names(model.cell)}: {head}", side)
        panel.set(xticks=[], yticks=[])
    return drawing, panels


def put_thumbnail(
    panel: plot.Axes, point: Any, picture: str, zoom: float, colour: str, **box_options: Any
) -> None:
    """Draw a small picture (JPEG in base64) at a point of a panel, in a coloured frame."""
    from matplotlib.offsetbox import AnnotationBbox, OffsetImage

    image, frame = OffsetImage(decode_picture(picture), zoom=zoom), {"edgecolor": colour}
    panel.add_artist(AnnotationBbox(image, point, pad=0.1, bboxprops=frame, **box_options))


def decode_picture(picture: str) -> Pixels:
    """Return the pixels, [H, W, 3], of a JPEG in base64."""
    from PIL import Image

    with Image.open(BytesIO(base64.b64decode(picture)), formats=("JPEG",)) as image:
        return np.asarray(image.convert("RGB"))


class PictureBoard:
    """A figure with rows of pictures, each with a line of letters below."""

    def __init__(self, rows: int, columns: float, title: str) -> None:
        """Create an empty drawing with room for rows of square pictures and letters below each."""
        height = rows * plot.WIDTH / columns * (1 + LETTERS) + 0.4
        self.drawing = plot.create_canvas(plot.WIDTH, height)
        self.panel = self.drawing.add_subplot()
        self.spots: list[plot.Tooltip] = []
        plot.draw_heading(self.drawing, title)
        self.panel.set(xlim=(0, columns), ylim=(rows * (1 + LETTERS), 0), aspect="equal")
        self.panel.set_axis_off()

    def put(
        self,
        position: tuple[int, float],
        picture: str,
        words: str,
        frame: tuple[str, str],
        tip: str,
        *,
        heat: Pixels | None = None,
    ) -> None:
        """Draw a picture with a frame, words below it and a tooltip.

        position: row and column. picture: JPEG in base64. frame: colour and dash of the line.
        heat: map in 0 … 1, [h, w], that is drawn over the picture.
        """
        from matplotlib.patches import Rectangle

        pixels, (row, column) = decode_picture(picture), position
        height, width = (FILL * side / max(pixels.shape[:2]) for side in pixels.shape[:2])
        x, y = column + 0.5, row * (1 + LETTERS) + 0.5
        extent = x - width / 2, x + width / 2, y + height / 2, y - height / 2  # y points down
        self.panel.imshow(pixels, extent=extent, interpolation="antialiased", aspect="auto")
        edge: dict[str, Any] = {"edgecolor": frame[0], "linestyle": frame[1], "linewidth": 1.8}
        self.panel.add_patch(Rectangle((extent[0], extent[3]), width, height, fill=False, **edge))
        self.panel.text(x, y + 0.5, words, ha="center", va="top", fontsize=6.5)
        if heat is not None:
            over: dict[str, Any] = {"cmap": "inferno", "vmin": 0, "vmax": 1, "alpha": 0.6}
            self.panel.imshow(heat, extent=extent, interpolation="bilinear", aspect="auto", **over)
        self.spots.append(plot.Tooltip(self.panel, x, y, tip))
