"""Which trained models a figure shows, and what was read of them."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Canvas
from PIL import Image

from reports.figures.drawn import Drawn, Spot, Strip, said
from reports.frame import OTHER, Frame
from reports.parts.figures import FIGURES, MOST_LINES, ModelOptions
from reports.recipe import Figure, Recipe
from reports.stats.describe import summary
from reports.tables.cells import by_cell, gaps, protocol, run_ids
from reports.tables.labels import lower_is_better, metric_label, slug

NOT_READ = "not read: its weights or its data were not at hand, see what the command said"


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


def options_of(figure: Figure) -> ModelOptions | None:
    """A figure's options; None: it is of no model."""
    found = FIGURES.get(figure.kind)
    if found is None or not issubclass(found, ModelOptions):
        return None
    return found.model_validate(figure.options)


def asked(frame: Frame, recipe: Recipe) -> Iterator[Asked]:
    """All that the figures of a recipe show, whether it was read or not; each once."""
    known: set[tuple[str, str]] = set()
    for figure in recipe.figures:
        if (options := options_of(figure)) is None:
            continue
        name = options.name(figure.kind)
        for each in seen(frame, figure, options):
            if (each.run_id, name) not in known:
                known.add((each.run_id, name))
                yield Asked(each.trial_id, each.run_id, name, figure.kind, options.read())


def seen(frame: Frame, figure: Figure, options: ModelOptions) -> list[Seen]:
    """The models that a figure shows: the first seed (and fold) of each cell with a result."""
    cells = frame.study(figure.studies[0])
    done = cells[cells["status"] == "done"]
    first = {str(row["cell"]): row for row in reversed(done.to_dict("records"))}
    why = ""
    if options.cells:
        names = [_with_method(name, first) for name in options.cells if name in first]
    elif options.every:
        every = (_with_method(str(name), first) for name in done["cell"])
        names = list(dict.fromkeys(every))[:MOST_LINES]
    else:
        sign = -1 if lower_is_better(figure.metric) else 1
        means = {
            name: sign * found.mean
            for name, values in by_cell(done, figure.metric).items()
            if (found := summary(list(values.values())))
        }
        names = [max(means, key=means.__getitem__)] if means else list(first)[:1]
        why = f"the best by {metric_label(figure.metric)}" if means else "the first"
    return [
        Seen(name, int(row["seed"]), row["trial_id"], row["run_id"], why or _explain(name, first))
        for name in names
        for row in [first[name]]
    ]


def _with_method(name: str, first: Mapping[str, Any]) -> str:
    """Return the cell that stands for a row: where the row's best is the baseline, which is shown
    under its own name, the best cell that has the method on."""
    return name + OTHER if name + OTHER in first else name


def _explain(name: str, first: Mapping[str, Any]) -> str:
    """Say where a cell is not what its row's name leads a reader to expect; empty otherwise."""
    if name.endswith(OTHER):
        return (
            f"the best configuration with the method on, because the best of "
            f"{name.removesuffix(OTHER)} is the baseline itself"
        )
    trial = first[name]["trial_id"]
    twins = [cell for cell, row in first.items() if row["trial_id"] == trial and cell != name]
    own = [cell for cell in twins if not cell.endswith(OTHER)]
    return f"the same model as {own[0]}" if own else ""


@dataclass(frozen=True)
class Views:
    """What a figure is drawn from. found: each model with what was read of it."""

    options: ModelOptions
    found: list[tuple[Seen, dict[str, Any]]]
    run_ids: tuple[str, ...]
    gaps: tuple[str, ...]
    protocol: str
    lost: tuple[str, ...]

    def who(self, each: Seen) -> str:
        """For a caption: `plain, seed 0, the best by MAP@R`."""
        return f"{each.cell}, seed {each.seed}" + (f", {each.why}" if each.why else "")


def views(frame: Frame, figure: Figure) -> Views:
    """What was read for a figure; what was not is among the gaps."""
    options = options_of(figure)
    assert options is not None
    name = options.name(figure.kind)
    chosen = seen(frame, figure, options)
    read = [(each, frame.view(each.run_id, name)) for each in chosen]
    cells = frame.study(figure.studies[0])
    mine = cells[cells["cell"].isin([each.cell for each in chosen])]
    lost = tuple(f"{each.cell}, seed {each.seed}: {NOT_READ}" for each, told in read if not told)
    return Views(
        options,
        [(each, told) for each, told in read if told],
        run_ids(mine[mine["trial_id"].isin([each.trial_id for each in chosen])]),
        (gaps(mine) if chosen else gaps(cells)) + lost,
        protocol(frame),
        lost,
    )


@dataclass(frozen=True)
class Picture:
    """What is drawn of models: a figure, its caption, the marks that tell their values; apart,
    strips: as `Drawn` has them."""

    figure: Canvas
    caption: str
    spots: tuple[Spot, ...] = ()
    apart: bool = False
    strips: tuple[Strip, ...] = ()

    def of(self, recipe: Figure, told: Views, title: str) -> Drawn:
        """As all figures are."""
        study = recipe.studies[0]
        return Drawn(
            slug(f"{recipe.kind}_{study}_{told.options.split}"),
            study,
            title,
            said(recipe.caption, " ".join([self.caption, *(f"{text}." for text in told.lost)])),
            self.figure,
            told.run_ids,
            told.gaps,
            self.spots,
            self.apart,
            self.strips,
        )


def pixels(picture: str) -> np.ndarray[Any, Any]:
    """A picture that was read, [H, W, 3]."""
    with Image.open(BytesIO(base64.b64decode(picture)), formats=("JPEG",)) as image:
        return np.asarray(image.convert("RGB"))
