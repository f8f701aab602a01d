"""Files in a place that outlives a machine: a folder, `s3://`, `gs://` or `hdfs://`, by pyarrow.

    s3://bucket/folder?region=eu-west-1
    s3://bucket/folder?scheme=http&endpoint_override=127.0.0.1:9000    another maker's S3

Credentials come as the maker's own tools take them (`AWS_ACCESS_KEY_ID`, a profile, a machine's
role, `GOOGLE_APPLICATION_CREDENTIALS`); they need the right to read, write and delete there. A file
is there whole or not at all: it is written as a draft and then moved to its place (in S3 and GCS a
copy that the server makes, of at most 5 GB in S3, and a deletion).
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from pathlib import Path
from typing import Any

from reports.uri import redacted, scrubbed
from trainables.errors import ConfigError

OPTION = "--storage"
ENV = "env:"
SCHEMES = ("file", "s3", "gs", "gcs", "hdfs", "viewfs")
PIECE = 1 << 20  # bytes
LISTINGS = 5  # of a folder that comes and goes meanwhile
DRAFT, DRAFT_SECONDS = ".tmp", 600.0  # ends the name of a file that is being written; its life
CLOCK = "clock."  # begins the names of files that are written for the time they get


class StorageError(OSError):
    """The storage does not answer, or refuses; what it said, without a secret."""


class Storage:
    """Files by name below one URI.

    given: the URI, a path, or `env:NAME`, the variable that holds one.

    Raises:
        ConfigError: no such variable, or a URI of a kind that pyarrow does not know.
    """

    def __init__(self, given: str) -> None:
        self.given, self.uri = given, _resolved(given)
        self.shown = redacted(self.uri)
        self.files, self.root = self._opened()
        self._began: tuple[float, float] | None = None  # its time, and this process's, at once

    def put(self, name: str, path: Path) -> None:
        """A file of this machine as `name` (with `/` for folders), in place of one before.

        Raises:
            StorageError: it cannot be written.
        """
        to = f"{self.root}/{name}"
        draft = f"{to}.{uuid.uuid4().hex}{DRAFT}"
        with self._told(f"write {name}"):
            self.files.create_dir(to.rpartition("/")[0], recursive=True)
            try:
                # The stream is closed whatever happens in the block, and closing it completes an
                # upload: what is broken off becomes an object too, cut short.
                with path.open("rb") as source, self.files.open_output_stream(draft) as stream:
                    while piece := source.read(PIECE):
                        stream.write(piece)
                self.files.move(draft, to)
            except BaseException:
                with contextlib.suppress(OSError):  # it has not begun, or the storage is away
                    self.files.delete_file(draft)
                raise

    def get(self, name: str, path: Path) -> bool:
        """`name` as a file of this machine, whole or not at all; False: there is none.

        Raises:
            StorageError: it cannot be read.
            OSError: `path` cannot be written.
        """
        import pyarrow.fs

        place = f"{self.root}/{name}"
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with self._told(f"read {name}"):
                (info,) = self.files.get_file_info([place])
                if info.type == pyarrow.fs.FileType.NotFound:
                    return False
                with self.files.open_input_stream(place) as stream, draft.open("wb") as target:
                    while piece := stream.read(PIECE):
                        target.write(piece)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        return True

    def read(self, name: str) -> bytes | None:
        """The content of a small file; None: there is none.

        Raises:
            StorageError: it cannot be read.
        """
        import pyarrow.fs

        with self._told(f"read {name}"):
            (info,) = self.files.get_file_info([f"{self.root}/{name}"])
            if info.type == pyarrow.fs.FileType.NotFound:
                return None
            with self.files.open_input_stream(f"{self.root}/{name}") as stream:
                return bytes(stream.read())

    def folders(self, folder: str = "") -> list[str]:
        """Names of what lies directly in a folder, folders too.

        Raises:
            StorageError: it cannot be read.
        """
        import pyarrow.fs

        place = f"{self.root}/{folder}".rstrip("/")
        with self._told(f"list {folder}"):
            chosen = pyarrow.fs.FileSelector(place, allow_not_found=True)
            return [info.base_name for info in self._info(chosen)]

    def written(self, name: str) -> float:
        """When a file was written, in seconds since 1970; now, if it is there no more.

        Raises:
            StorageError: it cannot be read.
        """
        with self._told(f"look at {name}"):
            (info,) = self.files.get_file_info([f"{self.root}/{name}"])
        return float(info.mtime_ns) / 1e9 if info.mtime_ns else self.now()

    def now(self) -> float:
        """The storage's own time, which `written` and `listed` tell times by, in seconds since
        1970: clocks of machines may be minutes apart. Asked for once, by a small file that is
        written and removed; from there a clock goes on that nobody sets.

        Raises:
            StorageError: nothing can be written there.
        """
        if self._began is None:
            place = f"{self.root}/{CLOCK}{uuid.uuid4().hex}{DRAFT}"
            with self._told("write"):
                self.files.create_dir(self.root, recursive=True)
                with self.files.open_output_stream(place) as stream:
                    stream.write(b"?")
                (info,) = self.files.get_file_info([place])
                self.files.delete_file(place)
            there = float(info.mtime_ns) / 1e9 if info.mtime_ns else time.time()
            self._began = there, time.monotonic()
        there, here = self._began
        return there + time.monotonic() - here

    def delete(self, name: str) -> None:
        """Remove `name`; nothing, if it is not there.

        Raises:
            StorageError: it cannot be removed.
        """
        import pyarrow.fs

        place = f"{self.root}/{name}"
        with self._told(f"remove {name}"):
            (info,) = self.files.get_file_info([place])
            if info.type != pyarrow.fs.FileType.NotFound:
                self.files.delete_file(place)

    def put_folder(self, name: str, folder: Path) -> None:
        """Store the files of a folder, and of those in it, as `name`.

        Raises:
            StorageError: it cannot be written.
        """
        import pyarrow.fs

        with self._told(f"write {name}"):
            self.files.create_dir(f"{self.root}/{name}", recursive=True)
            pyarrow.fs.copy_files(
                str(folder),
                f"{self.root}/{name}",
                source_filesystem=pyarrow.fs.LocalFileSystem(),
                destination_filesystem=self.files,
            )

    def delete_folder(self, name: str) -> None:
        """Remove a folder with all that is in it; nothing, if it is not there.

        Raises:
            StorageError: it cannot be removed.
        """
        with self._told(f"remove {name}"), contextlib.suppress(FileNotFoundError):
            self.files.delete_dir(f"{self.root}/{name}")

    @property
    def address(self) -> str:
        """The storage as pyarrow takes it: a URI, or a path as a whole."""
        return self.uri if "://" in self.uri else str(Path(self.uri).expanduser().resolve())

    def _opened(self) -> tuple[Any, str]:
        import pyarrow.fs

        scheme, sep, _ = self.uri.partition("://")
        if sep and scheme not in SCHEMES:
            raise ConfigError(
                OPTION, self.shown, "a path, or s3://, gs://, hdfs://", "Correct the address"
            )
        try:
            files, root = pyarrow.fs.FileSystem.from_uri(self.address)
        except (ValueError, OSError, TypeError, NotImplementedError) as error:
            said = " ".join(scrubbed(str(error), self.uri).split())[:300]
            raise ConfigError(
                OPTION, f"{self.shown} ({said})", "an address that pyarrow takes", "Correct it"
            ) from None
        return files, root.rstrip("/")

    def _info(self, chosen: Any) -> list[Any]:
        """What a selector finds. A folder that comes between a listing and the question whether it
        is missing is called missing although it was allowed to be: asked again, it is there."""
        for _ in range(LISTINGS - 1):
            with contextlib.suppress(FileNotFoundError):
                return list(self.files.get_file_info(chosen))
        return list(self.files.get_file_info(chosen))

    def _told(self, what: str) -> _Told:
        return _Told(self, what)


class _Told:
    """Makes what pyarrow raises one error, its secrets taken out."""

    def __init__(self, storage: Storage, what: str) -> None:
        self.storage, self.what = storage, what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            said = " ".join(scrubbed(str(error), self.storage.uri).split())[:300]
            raise StorageError(f"{self.storage.shown}: cannot {self.what} ({said})") from None


def _resolved(given: str) -> str:
    if not given.startswith(ENV):
        return given
    name = given.removeprefix(ENV)
    if not os.environ.get(name):
        raise ConfigError(OPTION, f"{given}, and no such variable", "one that is set")
    return os.environ[name]
