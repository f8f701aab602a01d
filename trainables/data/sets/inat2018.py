"""iNaturalist 2018 (Van Horn et al., CVPR 2018), in the split for retrieval of Smooth-AP.

The pictures are those of train_val2018.tar.gz; the lists are in Inat_dataset_splits.zip of the
authors of Smooth-AP, and are used by ROADMAP and the Recall@k surrogate:

    Inat_dataset_splits/Inaturalist_train_set1.txt, Inaturalist_test_set1.txt
        train_val2018/<group>/<species id>/<file>.jpg

The lists may also lie beside train_val2018/. A class is a species, and no species is in both lists.

References:
    Brown et al., "Smooth-AP: Smoothing the Path Towards Large-Scale Image Retrieval", ECCV 2020.
    https://arxiv.org/abs/2007.12163
"""

from collections.abc import Iterator
from pathlib import Path

from trainables.config.images import DataConfig
from trainables.data.dataset import DATASETS, Row
from trainables.data.files.data_set_markers import About, Count
from trainables.data.files.fileset import FileSet, Listing
from trainables.data.files.lists import build_line_error, find_list, iterate_lines

FOLDER, LIST = "Inat_dataset_splits", "Inaturalist_{}_set1.txt"
LINE = "train_val2018/<group>/<species id>/<file>"


@DATASETS.register("inat2018")
class INaturalist2018(FileSet):
    """8,142 species of living beings, about 57 images of each; their numbers differ much."""

    ABOUT = About(
        title="iNaturalist 2018",
        markers=(
            (f"{FOLDER}/{LIST.format('train')}",),
            (LIST.format("train"),),
            ("train_val2018/",),
        ),
        folders=("Inaturalist", "iNaturalist2018", "inat2018", "inaturalist_2018"),
        offered="https://github.com/visipedia/inat_comp/tree/master/2018 (train_val2018.tar.gz) "
        "and https://github.com/Andrew-Brown1/Smooth_AP (Inat_dataset_splits.zip)",
        classes=f"its lists {LIST.format('train')} and {LIST.format('test')} divide the classes",
        counts={"train": Count(5_690, 325_846), "test": Count(2_452, 136_093)},
        counted="Brown et al., ECCV 2020",
    )

    @classmethod
    def rows(cls, root: Path, config: DataConfig) -> Listing:
        lists = {}
        for part in ("train", "test"):
            name = LIST.format(part)
            lists[part] = find_list(root, [f"{FOLDER}/{name}", name], cls.ABOUT.offered)
        return Listing(root, lists["train"], _build_rows(lists))


def _build_rows(lists: dict[str, Path]) -> Iterator[Row]:
    """Yield the images of the lists by part."""
    for part, where in lists.items():
        for line, path in iterate_lines(where):
            folders = path.split("/")
            if len(folders) != 4 or not folders[2].isdecimal():
                raise build_line_error(where, line, path, LINE)
            # zeros before the number let species of a group sort as numbers do
            yield Row(path, f"{folders[1]}/{int(folders[2]):04d}", part)
