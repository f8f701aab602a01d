"""Data sets as their makers offer them: find the files, compare counts, read lists, hash images.

Training on a tenth of SOP works without complaint and gives another recall than the paper's. So a
difference from the makers' counts is an error, unless `data.allow_partial` (`--allow-partial`)
accepts it.

`data.root` is the folder of a data set. Without it, the folder is searched by its usual names in
the folders of `$ABLATE_DATA` (separated as in PATH). Each machine of a cluster searches separately.

Lists are text files; an error names file, line and its content. Unchanged files are hashed once. A
file counts as unchanged if size, modification time, change time and inode are equal. `tar -x`,
`rsync -t` and normalised archives restore the first two; no program can set the others.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from trainables.config.images import DataConfig
from trainables.data.cache import explain_write_errors
from trainables.machine.processes import count_cores
from trainables.words.errors import ConfigError
from trainables.words.files import write_atomically
from trainables.words.terminal import ImageProgress
from trainables.words.texts import expand_user_path

VARIABLE = "ABLATE_DATA"
MOST_NAMES = 8  # in a message
MOST_CHARACTERS = 80  # of a line, in a message
AT_ONCE = 256  # files a task: handing over a single one costs more than looking at its stamp
COPIES = 4  # of a file: nodes may share a cache and each have the data on a disk of its own


@dataclass(frozen=True)
class Count:
    """Number of classes (None: the makers do not state it) and images in a part of a data set."""

    classes: int | None
    images: int

    def __str__(self) -> str:
        classes = "" if self.classes is None else f" of {self.classes:,} classes"
        return f"{self.images:,} images{classes}"


@dataclass(frozen=True)
class About:
    """A data set as it is downloaded.

    Attributes:
        title: its name for readers.
        markers: sets of files (names may have wildcards) and folders (with a final slash) in its
            folder; each set is sufficient, so that an incomplete folder is recognised too.
        folders: usual names of its folder, in any case.
        offered: where its makers offer it, and under which file names.
        classes: why its folders must not be used as classes; empty if they may.
        counts: of its parts: train, val, test, query, gallery.
        counted: the source of the counts.
        metrics: metrics by which its makers compare, for `ablate evaluate`.
    """

    title: str
    markers: tuple[tuple[str, ...], ...]
    folders: tuple[str, ...]
    offered: str
    classes: str = ""
    counts: Mapping[str, Count] = field(default_factory=dict)
    counted: str = ""
    metrics: tuple[str, ...] = ()

    def find_markers(self, root: Path) -> str | None:
        """Return the files that show that `root` is this data set, as "A and B"; or None."""
        for names in self.markers:
            paths = [(next(root.glob(name), root / name), name.endswith("/")) for name in names]
            if all(path.is_dir() if is_folder else path.is_file() for path, is_folder in paths):
                return " and ".join(names)
        return None

    def list_differences(self, counts: Mapping[str, Count]) -> list[str]:
        """Return a text for each part whose count in `counts` is not what the makers state."""
        differences = []
        for part, stated in self.counts.items():
            count = counts.get(part, Count(0, 0))
            if count != stated and (stated.classes is not None or count.images != stated.images):
                differences.append(f"{part}: {count}, not {stated} ({self.counted})")
        return differences


class DataMissing(ConfigError):
    """A published data set is not on this machine."""


def join_names(names: Sequence[str]) -> str:
    """Return the first names, and the number of the others."""
    others = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + others


def build_unreadable_error(root: Path | str, error: OSError) -> ConfigError:
    return ConfigError(
        "data.root",
        f"{error.filename or root} cannot be read ({error.strerror})",
        "Check the path and its permissions",
    )


def list_data_folders() -> list[Path]:
    """Return the folders of `$ABLATE_DATA`."""
    parts = os.environ.get(VARIABLE, "").split(os.pathsep)
    return [expand_user_path(part, VARIABLE) for part in parts if part.strip()]


def resolve_data_root(config: DataConfig) -> Path | None:
    """Return `data.root` as an absolute path, or None."""
    if config.root is None:
        return None
    return Path(os.path.realpath(expand_user_path(config.root, "data.root")))


def locate_root(config: DataConfig, about: About) -> Path:
    """Return `data.root` or the data set's folder in $ABLATE_DATA; refuse one without its files."""
    root = resolve_data_root(config)
    if root is None:
        folders = list_data_folders()
        root = _find_usual_folder(folders, about)
        if root is None:
            raise DataMissing(
                "data.root",
                f"no folder is given, and no folder {join_names(about.folders)} is found "
                + (f"in {', '.join(map(str, folders))} (${VARIABLE})" if folders else "anywhere"),
                f"Set {VARIABLE} to the folder that has {about.title} in it, or give its own: "
                f"data.root in a spec, --data-root DIR, for `ablate evaluate` {config.name}=DIR. "
                f"{about.title} is at {about.offered}",
            )
    try:
        if about.find_markers(root) is None:
            names = sorted(entry.name for entry in root.iterdir() if entry.name[0] != ".")
            markers = " or ".join(" and ".join(marker) for marker in about.markers)
            raise ConfigError(
                "data.root",
                f"{root} holds {join_names(names) or 'nothing'}, but must hold {markers}",
                f"Give the folder to which {about.title}, offered at {about.offered}, was unpacked",
            )
    except OSError as error:
        raise build_unreadable_error(root, error) from error
    return root


def _find_usual_folder(folders: Iterable[Path], about: About) -> Path | None:
    """Return the first folder in `folders` with a usual name of the data set, in any case."""
    for base in folders:
        with suppress(OSError):  # `ablate data list` says which folders cannot be read
            by_name = {entry.name.casefold(): entry for entry in sorted(base.iterdir())}
            for name in about.folders:
                folder = by_name.get(name.casefold())
                if folder is not None and folder.is_dir():
                    return Path(os.path.realpath(folder))
    return None


def build_damage_error(where: Path | str, fault: str) -> ConfigError:
    """Return the error for a file that differs from what its makers offer."""
    return ConfigError(str(where), fault, "Unpack the data set again")


def find_list(root: Path, names: Sequence[str], offered: str) -> Path:
    """Return the first of the files `names` in `root` that exists; `offered` says where it is."""
    path = next((root / name for name in names if (root / name).is_file()), None)
    if path is None:
        raise ConfigError(
            "data.root",
            f"{root} has no {' or '.join(names)}",
            f"Put the file there; it is offered at {offered}",
        )
    return path


def build_line_error(path: Path, number: int, line: str, expected: str) -> ConfigError:
    excerpt = line if len(line) <= MOST_CHARACTERS else f"{line[:MOST_CHARACTERS]}…"
    return build_damage_error(f"{path}:{number}", f"the line {excerpt!r} must be {expected}")


@contextmanager
def name_unreadable_file(path: Path | str) -> Iterator[None]:
    """Turn an OSError into a ConfigError that names the file."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            str(path),
            f"the file cannot be read ({error.strerror})",
            "Check its permissions, or unpack the data set again",
        ) from error


def iterate_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number (from 1) and text of each line that is not empty."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise build_damage_error(path, f"the list cannot be read ({error})") from error
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line.strip()


def iterate_fields(
    path: Path, expected: str, types: Sequence[Callable[[str], Any]], start: int = 0
) -> Iterator[tuple[int, list[Any]]]:
    """Yield the number and the parsed fields of each line; only the last field may contain blanks.

    Args:
        expected: how a line must look, for the error message.
        types: parsers of the fields, which raise ValueError.
        start: number of header lines to skip.
    """
    for number, line in islice(iterate_lines(path), start, None):
        try:
            texts = line.split(maxsplit=len(types) - 1)
            yield number, [parse(text) for parse, text in zip(types, texts, strict=True)]
        except ValueError:
            raise build_line_error(path, number, line, expected) from None


def hash_files(root: Path, names: Sequence[str], cache: Path) -> dict[str, str]:
    """Return each file's SHA-256 (hex) by name; read only files without a valid one in `cache`."""
    index = cache / f"hashes-{hashlib.sha256(str(root).encode()).hexdigest()[:16]}.json"
    try:
        _, brace, rest = index.read_bytes().partition(b"{")  # 0.2.0 wrote a line before the JSON
        earlier = json.loads(brace + rest)
    except (OSError, ValueError):  # the index does not exist, or is damaged
        earlier = {}
    base = os.fspath(root)

    def hash_file(name: str) -> tuple[str, list[list[str]]]:
        """Return a file's SHA-256, and pairs [stamp, SHA-256] of its copies on several machines."""
        path = os.path.join(base, name)  # noqa: PTH118 - a Path costs more than the stamp
        copies = earlier.get(name, [])
        with name_unreadable_file(path):
            stamp = _read_stamp(os.stat(path))  # noqa: PTH116 - the stamp changes with the file
            for copy_stamp, digest in copies:
                if copy_stamp == stamp:
                    return digest, copies
            with Path(path).open("rb") as opened:
                stamp = _read_stamp(os.fstat(opened.fileno()))
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
        return digest, [[stamp, digest], *copies][:COPIES]

    results: dict[str, tuple[str, list[list[str]]]] = {}
    progress = ImageProgress(f"hashing {root}", len(names))
    blocks = [names[start : start + AT_ONCE] for start in range(0, len(names), AT_ONCE)]
    with ThreadPoolExecutor(count_cores()) as pool:
        hashed = pool.map(lambda block: list(map(hash_file, block)), blocks)
        for block, block_results in zip(blocks, hashed, strict=True):
            results |= zip(block, block_results, strict=True)
            progress.update(len(results))
    entries = {name: copies for name, (_, copies) in results.items()}
    if entries != earlier:
        with explain_write_errors(cache):
            write_atomically(index, json.dumps(entries).encode())
    return {name: digest for name, (digest, _) in results.items()}


def forget_hashes(cache: Path) -> None:
    """Delete the cached hashes, so that every file is read again."""
    with explain_write_errors(cache):
        for index in cache.glob("hashes-*.json"):
            index.unlink()


def _read_stamp(stat: os.stat_result) -> str:
    return f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns} {stat.st_ino}"
