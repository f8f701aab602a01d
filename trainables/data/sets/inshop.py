"""In-Shop Clothes Retrieval of DeepFashion (Liu et al., CVPR 2016), as it is unpacked.

    list_eval_partition.txt    also in Eval/: a count, a head, and lines of
                               <path>  <item>  train | query | gallery

with any number of blanks between. Its images, img.zip, lie in img/ or Img/img/. A query is looked
for in the gallery alone; validation classes, which come out of the training items and have no such
roles, are evaluated each image among all others.
"""

from collections.abc import Iterator
from pathlib import Path

from trainables.config.images import DataConfig
from trainables.data.dataset import DATASETS, Row
from trainables.data.files.data_set_markers import About, Count
from trainables.data.files.fileset import FileSet, Listing
from trainables.data.files.lists import build_line_error, iterate_fields
from trainables.words.errors import ConfigError

PARTITION = "list_eval_partition.txt"
LINE = "<path> <item> train, query or gallery"
HEAD = 2  # lines


@DATASETS.register("inshop")
class InShop(FileSet):
    """7,982 items of clothes, about 7 images of each; queries are searched in a gallery."""

    ABOUT = About(
        title="In-Shop Clothes Retrieval",
        markers=((PARTITION,), (f"Eval/{PARTITION}",)),
        folders=(
            *("In-shop Clothes Retrieval Benchmark", "In-shop_Clothes_Retrieval_Benchmark"),
            *("inshop", "In-Shop"),
        ),
        offered="https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion/InShopRetrieval.html "
        "(img.zip and list_eval_partition.txt)",
        classes=f"its folders are kinds of clothes, the classes are the items of {PARTITION}",
        counts={
            "train": Count(3_997, 25_882),
            "query": Count(3_985, 14_218),
            "gallery": Count(3_985, 12_612),
        },
        counted="Liu et al., CVPR 2016, and its partition file",
    )

    @classmethod
    def rows(cls, root: Path, config: DataConfig) -> Listing:
        """List the images of the partition file, whose paths begin with img/."""
        lists = [root / PARTITION, root / "Eval" / PARTITION]
        where = next(path for path in lists if path.exists())
        base = next((root / name for name in ("", "Img") if (root / name / "img").is_dir()), None)
        if base is None:
            raise ConfigError(
                "data.root", f"{root} has neither img/ nor Img/img/", "Unpack img.zip in it"
            )
        return Listing(base, where, _build_rows(where))


def _build_rows(where: Path) -> Iterator[Row]:
    """Yield the images of the partition file `where`; test images are queries or gallery."""
    for line, (path, item, kind) in iterate_fields(where, LINE, (str, str, str), start=HEAD):
        if kind not in ("train", "query", "gallery"):
            raise build_line_error(where, line, f"{path} {item} {kind}", LINE)
        part, role = ("train", "") if kind == "train" else ("test", kind)
        yield Row(path, item, part, role)
