"""The base of data sets that are image files and a list of them: their rows are all that differs.

    @DATASETS.register("mine")
    class Mine(FileSet):
        REVISION, ABOUT = 1, About(…)

        @classmethod
        def rows(cls, root, config):
            return Listing(root / "images", root / "index.txt", (Row(path, label, "train"), …))

An image that is listed and absent, or counts that are not the makers', is an error before any
trial starts; `data.allow_partial` goes on, and says so. The fingerprint is of classes, parts,
roles, boxes, names and contents of the images, and of nothing else: a data set can be moved, and a
partial one has another.

A plan decodes the images of a small data set once, so that it names all damaged ones. Those of a
large one are decoded by the run before its first trial, and by `ablate data check`.
"""

import hashlib
import logging
from abc import abstractmethod
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import ClassVar

from trainables.config.images import DataConfig
from trainables.data.archives import build_unreadable_error, hash_files, join_names, locate_root
from trainables.data.dataset import ROLES, Dataset, DataSource, Listing, Row, count_parts
from trainables.data.pixel_store import load_stored
from trainables.data.survey import Survey, examine_images, name_survey, read_notes

LOG = logging.getLogger(__name__)
MOST_BYTES = 2**28  # of the image files that a plan decodes, in about five seconds on two cores


@dataclass(frozen=True)
class Reading:
    """The content of a data set's folder.

    Attributes:
        listing: the images that exist.
        rows: the data set of these images, without pixels.
        problems: a line for each difference from what its makers say.
    """

    listing: Listing
    rows: Dataset
    problems: list[str]


class FileSet(DataSource):
    """A data set of image files."""

    REVISION: ClassVar[int] = 1

    @classmethod
    @abstractmethod
    def rows(cls, root: Path, config: DataConfig) -> Listing:
        """Return the rows that the data set's files list; ConfigError names file and line."""

    @classmethod
    def locate_root(cls, config: DataConfig) -> Path:
        """Return the folder of the data set; ConfigError if it does not exist."""
        assert cls.ABOUT is not None
        return locate_root(config, cls.ABOUT)

    @classmethod
    def read_listing(cls, config: DataConfig) -> Reading:
        """Return the listed images that exist, and what differs from list and makers' counts."""
        try:
            listing = cls.rows(cls.locate_root(config), config)
            listing.check_paths()
            # is_file: a pipe or device is no image, and reading it would block
            absent = {
                row.path: row for row in listing.rows if not (listing.base / row.path).is_file()
            }
        except OSError as failure:
            raise build_unreadable_error(config.root or config.name, failure) from failure
        problems: list[str] = []
        if absent:
            missing = f"{len(absent):,} of {len(listing.rows):,} images are missing"
            problems.append(f"{missing} ({join_names([*absent])})")
            if len(absent) == len(listing.rows):  # which --allow-partial does not accept
                raise cls.build_difference_error(listing.base, problems)
        present = [row for row in listing.rows if row.path not in absent]
        listing = replace(listing, rows=present)
        dataset = listing.to_plan_dataset()
        if cls.ABOUT is not None:
            problems += cls.ABOUT.list_differences(count_parts(dataset))
        return Reading(listing, dataset, problems)

    @classmethod
    def check_listing(cls, config: DataConfig) -> Reading:
        """Return the listed images that exist; refuse a partial set unless data.allow_partial.

        The error for class folders without images names all other faults, too, if images are few.
        """
        reading = cls.read_listing(config)
        listing = reading.listing
        if listing.empty:
            survey = Survey(listing, config.grey_range)
            if not cls.is_large(listing):
                survey = examine_images(listing, config.grey_range)
            survey.check()
        if reading.problems and not config.allow_partial:
            raise cls.build_difference_error(listing.base, reading.problems)
        return reading

    @classmethod
    def fingerprint(cls, config: DataConfig, cache: Path) -> str:
        """Return SHA-256 over classes, names, parts, roles, boxes and contents."""
        return cls.compute_digest(config.name, cls.check_listing(config).listing, cache)

    @classmethod
    def compute_digest(cls, name: str, listing: Listing, cache: Path) -> str:
        """Return a SHA-256 of path, content, class, part, role and box of all listed images."""
        paths = [row.path for row in listing.rows]
        hashes = hash_files(listing.base, paths, Path(cache) / name)
        digest = hashlib.sha256(f"{name} {cls.REVISION}".encode())
        for row in listing.rows:
            digest.update(f"\x1e{row.path}\x1f{hashes[row.path]}{cls.describe_row(row)}".encode())
        return digest.hexdigest()

    @classmethod
    def describe_row(cls, row: Row) -> str:
        """Return classes, part, role and box of a row as a text, which the fingerprint hashes."""
        box = "" if row.box is None else row.box
        further = "".join(f"\x1f{label}" for label in row.further)
        return f"\x1f{row.label}\x1f{row.part}\x1f{ROLES[row.role]}\x1f{box}{further}"

    @classmethod
    def without_pixels(cls, config: DataConfig, cache: Path) -> Dataset | None:
        return cls.check_listing(config).rows

    @classmethod
    def check_images(cls, config: DataConfig, cache: Path, fingerprint: str) -> str:
        """Refuse images that cannot be decoded, unless their files are too large for a plan.

        Greys that fill a small part of their type are refused, too. The result is kept in the
        cache, beside decoded images, which are known to be readable.
        """
        listing = cls.check_listing(config).listing
        folder = Path(cache) / config.name / fingerprint[:16]
        survey = name_survey(folder, config.grey_range)
        if not survey.is_dir():
            if cls.is_large(listing):
                stores = folder.parent.glob(f"{folder.name}-*")
                if any(store.is_dir() and not store.suffix for store in stores):  # not .tmp-…
                    return ""
                return (
                    f"{listing.base}: the plan did not decode the {len(listing.rows):,} images, "
                    f"whose files are larger than {MOST_BYTES >> 20} MiB. The run does so before "
                    "its first trial; `ablate data check` does so now, and names all damaged "
                    "images."
                )
            examine_images(listing, config.grey_range).save(folder)
        return " ".join(f"warning: {note}" for note in read_notes(survey))

    @classmethod
    def is_large(cls, listing: Listing) -> bool:
        """Return whether the files of the images are too large to be decoded by a plan."""
        sizes = (image.path.stat().st_size for image in listing.images)
        return any(total > MOST_BYTES for total in accumulate(sizes))

    @classmethod
    def load(cls, config: DataConfig, cache: Path) -> Dataset:
        """Return the images that exist, from the cache, where the first call stores them."""
        reading = cls.check_listing(config)
        listing = reading.listing
        if reading.problems:
            LOG.warning(
                "the data set %s in %s is partial, as data.allow_partial allows: %s",
                config.name,
                listing.base,
                "; ".join(reading.problems),
            )
        digest = cls.compute_digest(config.name, listing, cache)
        folder = Path(cache) / config.name / digest[:16]
        images = load_stored(folder, listing, config)
        survey = name_survey(folder, config.grey_range)
        if not survey.is_dir() and cls.ABOUT is None:  # stored by a version without surveys
            examine_images(listing, config.grey_range).save(folder)
        for note in read_notes(survey) if survey.is_dir() else ():
            LOG.warning("%s: %s", listing.base, note)
        return replace(reading.rows, images=images, fingerprint=digest)
