"""Stanford Online Products (Song et al., CVPR 2016), as Stanford_Online_Products.zip unpacks.

The two lists are the division; their first line is a head:

    Ebay_train.txt, Ebay_test.txt    <image id> <class id> <super class id> <folder>/<file>
"""

from pathlib import Path

from trainables.config.images import DataConfig
from trainables.data.dataset import DATASETS, Row
from trainables.data.files.data_set_markers import About, Count
from trainables.data.files.fileset import FileSet, Listing
from trainables.data.files.lists import iterate_fields

LINE = "<image id> <class id> <super class id> <path>, below a head"


@DATASETS.register("sop")
class StanfordOnlineProducts(FileSet):
    """22,634 products, about 5 images of each."""

    ABOUT = About(
        title="Stanford Online Products",
        markers=(("Ebay_train.txt",), ("Ebay_test.txt",), ("Ebay_info.txt",), ("bicycle_final/",)),
        folders=("Stanford_Online_Products", "SOP", "online_products", "OnlineProducts"),
        offered="https://cvgl.stanford.edu/projects/lifted_struct/ (Stanford_Online_Products.zip)",
        classes="its 12 folders are super-classes, the classes stand in Ebay_train.txt and "
        "Ebay_test.txt",
        counts={"train": Count(11_318, 59_551), "test": Count(11_316, 60_502)},
        counted="Song et al., CVPR 2016, section 6",
    )

    @classmethod
    def rows(cls, root: Path, config: DataConfig) -> Listing:
        rows = []
        for part in ("train", "test"):
            lines = iterate_fields(root / f"Ebay_{part}.txt", LINE, (str, int, str, str), start=1)
            # labels are filled with zeros, so that they sort as numbers do
            rows += [Row(path, f"{label:05d}", part) for _, (_, label, _, path) in lines]
        return Listing(root, root / "Ebay_train.txt and Ebay_test.txt", rows)
