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
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reports.uri import redact_text, redact_uri
from trainables.errors import ConfigError

OPTION = "--storage"
ENV = "env:"
SCHEMES = ("file", "s3", "gs", "gcs", "hdfs", "viewfs")
PIECE = 1 << 20  # bytes
LISTINGS = 5  # of a folder that comes and goes meanwhile
DRAFT = ".tmp"  # ends the name of a file that is being written


class StorageError(OSError):
    """The storage does not answer, or refuses; its message contains no secret."""


class Storage:
    """Read and write files by name (with `/` for folders) below one URI.

    Every method that reaches the storage raises StorageError where that fails.

    Args:
        address: the URI, a path, or `env:NAME`, the variable that holds one.

    Attributes:
        uri: the URI or path. shown: the same without a password.
        files, root: pyarrow's file system, and the place in it.

    Raises:
        ConfigError: there is no such variable, or pyarrow does not know this kind of URI.
    """

    def __init__(self, address: str) -> None:
        import pyarrow.fs

        self.uri = address
        if address.startswith(ENV):
            self.uri = os.environ.get(address.removeprefix(ENV), "")
            if not self.uri:
                raise ConfigError(OPTION, f"{address} names no such variable; set it")
        self.shown = redact_uri(self.uri)
        scheme, separator, _ = self.uri.partition("://")
        if separator and scheme not in SCHEMES:
            raise ConfigError(OPTION, f"{self.shown} is no path, s3://, gs:// or hdfs:// address")
        self.files: Any
        try:
            self.files, root = pyarrow.fs.FileSystem.from_uri(self.address)
        except (ValueError, OSError, TypeError, NotImplementedError) as error:
            fault = f"{self.shown} is no address that pyarrow takes ({self._redact_error(error)})"
            raise ConfigError(OPTION, fault) from None
        self.root = root.rstrip("/")
        self._clocks: tuple[float, float] | None = None  # the storage's and ours, at one moment

    @property
    def address(self) -> str:
        """The storage as pyarrow takes it: a URI, or an absolute path."""
        return self.uri if "://" in self.uri else str(Path(self.uri).expanduser().resolve())

    def upload(self, name: str, path: Path) -> None:
        """Store a file of this machine, in place of one of that name."""
        target = f"{self.root}/{name}"
        draft = f"{target}.{uuid.uuid4().hex}{DRAFT}"
        with self._translate_errors(f"write {name}"):
            self.files.create_dir(target.rpartition("/")[0], recursive=True)
            try:
                # The stream is closed whatever happens in the block, and closing it completes an
                # upload: what is broken off becomes an object too, cut short.
                with path.open("rb") as source, self.files.open_output_stream(draft) as stream:
                    shutil.copyfileobj(source, stream, PIECE)
                self.files.move(draft, target)
            except BaseException:
                with contextlib.suppress(OSError):  # it has not begun, or the storage is away
                    self.files.delete_file(draft)
                raise

    def download(self, name: str, path: Path) -> bool:
        """Bring a file to this machine, whole or not at all; return False if there is none.

        Raises:
            OSError: `path` cannot be written.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with self._translate_errors(f"read {name}"):
                if self._find_info(name) is None:
                    return False
                place = f"{self.root}/{name}"
                with self.files.open_input_stream(place) as stream, draft.open("wb") as target:
                    shutil.copyfileobj(stream, target, PIECE)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        return True

    def read_bytes(self, name: str) -> bytes | None:
        """Return the content of a small file; None: there is none."""
        with self._translate_errors(f"read {name}"):
            if self._find_info(name) is None:
                return None
            with self.files.open_input_stream(f"{self.root}/{name}") as stream:
                return bytes(stream.read())

    def list_folder(self, folder: str = "") -> list[str]:
        """Return the names of the files and folders directly in a folder."""
        import pyarrow.fs

        place = f"{self.root}/{folder}".rstrip("/")
        selector = pyarrow.fs.FileSelector(place, allow_not_found=True)
        with self._translate_errors(f"list {folder}"):
            # A folder that is made between the listing and pyarrow's look whether it is missing
            # counts as missing, although it was allowed to be: asked again, it is there.
            for _ in range(LISTINGS - 1):
                with contextlib.suppress(FileNotFoundError):
                    return [info.base_name for info in self.files.get_file_info(selector)]
            return [info.base_name for info in self.files.get_file_info(selector)]

    def get_age(self, name: str) -> float:
        """Return for how many seconds a file has been there, by the storage's clock; 0: it is not.

        Clocks of machines may be minutes apart. The storage's is asked once, by a small file that
        is written and removed; from there a clock goes on that nobody sets.
        """
        if self._clocks is None:
            probe = f"clock.{uuid.uuid4().hex}{DRAFT}"
            with self._translate_errors("write"):
                self.files.create_dir(self.root, recursive=True)
                with self.files.open_output_stream(f"{self.root}/{probe}") as stream:
                    stream.write(b"?")
                info = self._find_info(probe)
                self.files.delete_file(f"{self.root}/{probe}")
            there = info.mtime_ns / 1e9 if info and info.mtime_ns else time.time()
            self._clocks = there, time.monotonic()
        with self._translate_errors(f"look at {name}"):
            info = self._find_info(name)
        now = self._clocks[0] + time.monotonic() - self._clocks[1]
        return max(0.0, now - info.mtime_ns / 1e9) if info and info.mtime_ns else 0.0

    def put_folder(self, name: str, folder: Path) -> None:
        """Store the files of a folder, and of those in it."""
        import pyarrow.fs

        with self._translate_errors(f"write {name}"):
            self.files.create_dir(f"{self.root}/{name}", recursive=True)
            pyarrow.fs.copy_files(
                str(folder),
                f"{self.root}/{name}",
                source_filesystem=pyarrow.fs.LocalFileSystem(),
                destination_filesystem=self.files,
            )

    def delete_folder(self, name: str) -> None:
        """Remove a folder with all that is in it, if it is there."""
        with self._translate_errors(f"remove {name}"), contextlib.suppress(FileNotFoundError):
            self.files.delete_dir(f"{self.root}/{name}")

    def _find_info(self, name: str) -> Any | None:
        """Return pyarrow's description of a file; None: there is none."""
        (info,) = self.files.get_file_info([f"{self.root}/{name}"])
        return None if info.type.name == "NotFound" else info

    @contextlib.contextmanager
    def _translate_errors(self, action: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            message = f"{self.shown}: cannot {action} ({self._redact_error(error)})"
            raise StorageError(message) from None

    def _redact_error(self, error: Exception) -> str:
        return " ".join(redact_text(str(error), self.uri).split())[:300]
