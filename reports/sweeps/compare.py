"""The way in: two sweeps, of one store or of two, as text or as files."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from reports.errors import ReportError
from reports.frame import load
from reports.stores.client import open_client
from reports.sweeps import pages
from reports.sweeps.matched import Matched, match
from reports.tables.labels import slug
from reports.uri import redacted


@dataclass(frozen=True)
class Place:
    """A sweep's id or name, the store it is in, and the folder that holds its own report."""

    sweep: str
    uri: str = field(repr=False)
    reports: Path | None = None


def compare(first: Place, second: Place) -> Matched:
    """Read both.

    Raises:
        ReportError: no such sweep.
    """
    return match(*(load(place.uri, sweep_id(place)) for place in (first, second)))


def sweep_id(place: Place) -> str:
    """The id of the latest sweep of this id or name.

    Raises:
        ReportError: there is none.
    """
    client = open_client(place.uri)
    if "'" in place.sweep:  # which no id has, and MLflow's search has no way to write
        raise ReportError(f"found {place.sweep!r}; expected a sweep's id, or a name without quotes")
    experiments = [each.experiment_id for each in client.search_experiments()]
    for condition in (
        f"tags.`ablate.sweep_id` = '{place.sweep}'",
        f"attributes.run_name = '{place.sweep}'",
    ):
        found = client.search_runs(
            experiments,
            f"tags.`ablate.kind` = 'sweep' and {condition}",
            max_results=1,
            order_by=["attributes.start_time DESC"],
        )
        if found:
            return str(found[0].data.tags["ablate.sweep_id"])
    raise ReportError(
        f"{redacted(place.uri)}: found no sweep {place.sweep!r}; expected its id or its name"
    )


def write(told: Matched, places: tuple[Place, Place], out_dir: Path) -> dict[str, Path]:
    """The comparison's files in `<out_dir>/<first>-and-<second>`, by name."""
    names = [
        f"{slug(f.document['name'])}-{f.document['sweep_id']}" for f in (told.first, told.second)
    ]
    folder = out_dir / "-and-".join(names)
    folder.mkdir(parents=True, exist_ok=True)
    links = {}
    for side, name, place in zip(pages.NAMES, names, places, strict=True):
        own = place.reports / name / "report.html" if place.reports else None
        if own is not None and own.is_file():
            links[side] = Path(os.path.relpath(own, folder)).as_posix()
    texts = {
        "compared.html": pages.page(told, links),
        "compared.md": pages.markdown(told),
        "compared.csv": pages.to_csv(told),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return {name: folder / name for name in texts}
