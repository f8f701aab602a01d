"""GPR1200 (Schall et al., MMM 2022), as GPR1200.zip unpacks; for evaluation only.

    images/<category>_<original name>.jpg

Its categories, 10 images of each, were chosen by hand from six data sets: landmarks (Google
Landmarks v2), nature (iNaturalist), sketches (ImageNet Sketch), objects (INSTRE), products
(Stanford Online Products) and faces (IMDB-WIKI). A model that trained on one of these may have seen
some of the images.

Every image is searched among all others. The makers' code counts the query itself as the first hit;
the metric `map_with_query` does so, too, and `map` does not.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from trainables.config.images import DataConfig
from trainables.data.dataset import DATASETS, Row
from trainables.data.files.data_set_markers import About, Count
from trainables.data.files.fileset import FileSet, Listing
from trainables.data.files.lists import build_damage_error
from trainables.data.sets.folder import SUFFIXES


@DATASETS.register("gpr1200")
class Gpr1200(FileSet):
    """1,200 categories from six domains, 10 images of each; no image is for training."""

    ABOUT = About(
        title="GPR1200",
        markers=(("images/0_*",),),
        folders=("GPR1200",),
        offered="https://visual-computing.com/project/GPR1200/ (GPR1200.zip)",
        classes="its file names carry the classes",
        counts={"test": Count(1_200, 12_000)},
        counted="Schall et al., MMM 2022",
        metrics=("map_with_query",),
    )

    @classmethod
    def rows(cls, root: Path, config: DataConfig) -> Listing:
        folder = root / "images"
        return Listing(folder, folder, _build_rows(folder))


def _build_rows(folder: Path) -> Iterator[Row]:
    """Yield the images of the folder; other files are passed over."""
    for name in sorted(os.listdir(folder)):  # noqa: PTH208 - a Path for each is slow
        if name.startswith(".") or not name.lower().endswith(SUFFIXES):
            continue
        category = re.match(r"(\d+)_.", name, re.ASCII)
        if category is None:
            raise build_damage_error(
                folder, f"the name {name!r} does not begin with a category's number and _"
            )
        yield Row(name, f"{int(category[1]):04d}", "test")
