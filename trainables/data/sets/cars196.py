"""Cars196 (Krause et al., "3D Object Representations for Fine-Grained Categorization", 3dRR 2013).

Its makers offer the same 16,185 images in two ways, each with files of its own:

    cars_annos.mat, car_ims/
    devkit/cars_train_annos.mat, cars_train/, cars_test/, cars_test_annos_withlabels.mat
        (the last beside devkit/ or in it)

Classes 1–98 train, 99–196 are tested (Song et al., CVPR 2016, section 6), whichever of the folders
cars_train and cars_test an image lies in: these divide for classification.
"""

from collections.abc import Iterator
from pathlib import Path

from trainables.config.images import DataConfig
from trainables.data.dataset import DATASETS, Row
from trainables.data.files.data_set_markers import About, Count
from trainables.data.files.fileset import FileSet, Listing
from trainables.data.files.lists import build_damage_error, find_list
from trainables.words.errors import ConfigError

TRAINING = 98  # classes
LABELLED = "cars_test_annos_withlabels.mat"


@DATASETS.register("cars196")
class Cars196(FileSet):
    """196 models of cars, about 83 images of each; few are grey."""

    ABOUT = About(
        title="Cars196",
        markers=(
            ("cars_annos.mat",),
            ("devkit/cars_train_annos.mat",),
            ("cars_train/", "cars_test/"),
            ("cars_train_annos.mat",),
            (LABELLED,),
        ),
        folders=("cars196", "CARS196", "stanford_cars", "cars"),
        offered="https://ai.stanford.edu/~jkrause/cars/car_dataset.html (car_ims.tgz and "
        f"cars_annos.mat, or cars_train.tgz, cars_test.tgz, car_devkit.tgz and {LABELLED})",
        classes="its folders are no classes, which stand in cars_annos.mat (or devkit/)",
        counts={"train": Count(98, 8_054), "test": Count(98, 8_131)},
        counted="Song et al., CVPR 2016, section 6",
    )

    @classmethod
    def rows(cls, root: Path, config: DataConfig) -> Listing:
        """List the images by cars_annos.mat, or else by the two lists for training and test."""
        annotations = root / "cars_annos.mat"
        if annotations.exists():
            return Listing(root, annotations, _read_annotations(annotations, "relative_im_path"))
        train, test = (
            find_list(root, [name, f"devkit/{name}"], cls.ABOUT.offered)
            for name in ("cars_train_annos.mat", LABELLED)
        )
        rows = [
            *_read_annotations(train, "fname", "cars_train/"),
            *_read_annotations(test, "fname", "cars_test/"),
        ]
        return Listing(root, train, rows)


def _read_annotations(where: Path, path_field: str, folder: str = "") -> Iterator[Row]:
    """Yield the images whose paths and classes the array `annotations` of a MATLAB file lists."""
    from scipy.io import loadmat

    try:
        table = loadmat(where, variable_names=["annotations"], squeeze_me=True)["annotations"]
        names, labels = (table[field].reshape(-1) for field in (path_field, "class"))
    except Exception as error:  # parsers raise many types: ValueError, TypeError, zlib.error…
        raise ConfigError(
            str(where),
            f"the annotations cannot be read ({error})",
            "Use the makers' file, which has the format of MATLAB before 7.3",
        ) from error
    for name, label in zip(names, labels, strict=True):
        if not isinstance(label, int) or label < 1 or not isinstance(name, str):
            raise build_damage_error(where, f"the class {label!r} of {name!r} must be 1 or more")
        yield Row(folder + name, f"{label:03d}", "train" if label <= TRAINING else "test")
