"""Read and write files in storage through pyarrow: a folder, `s3://`, `gs://` or `hdfs://`.

    s3://bucket/folder?region=eu-west-1
    s3://bucket/folder?scheme=http&endpoint_override=127.0.0.1:9000    another S3 server

Credentials are found as by the provider's own tools (`AWS_ACCESS_KEY_ID`, a profile, a role of the
machine, `GOOGLE_APPLICATION_CREDENTIALS`) and must allow reading, writing and deleting. A file is
uploaded under a draft name and then moved, so it is never incomplete (in S3 and GCS the server
copies it, at most 5 GB in S3, and deletes the draft).
"""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainables.words.errors import ConfigError
from trainables.words.secrets import redact_text, redact_uri

OPTION = "--storage"
ENV = "env:"
PIECE = 1 << 20  # bytes
DRAFT = ".tmp"  # end of the name of an incomplete upload


def expand_variable(address: str, option: str) -> str:
    """Return an address or, for `env:NAME`, the value of the environment variable NAME."""
    if not address.startswith(ENV):
        return address
    name = address.removeprefix(ENV)
    if value := os.environ.get(name, ""):
        return value
    raise ConfigError(
        option,
        f"{address!r} names an environment variable that is not set",
        f"Run `export {name or 'NAME'}=URI`, or give the URI itself",
    )


class StorageError(OSError):
    """A failure of the storage, with a message that contains no secret."""


class Storage:
    """Read and write files by name (with `/` for folders) below one URI.

    Every method that accesses the storage raises StorageError on failure.

    Args:
        address: a URI, a path, or `env:NAME` for the value of an environment variable.

    Attributes:
        uri: the URI or path.
        files: pyarrow's file system.
        root: the path in it.

    Raises:
        ConfigError: the variable does not exist, or pyarrow does not support the URI.
    """

    def __init__(self, address: str) -> None:
        """Find pyarrow's file system and the path in it for a URI, a path or `env:NAME`."""
        import pyarrow.fs

        self.uri = expand_variable(address, OPTION)
        self.files: Any
        try:
            self.files, root = pyarrow.fs.FileSystem.from_uri(self.address)
        except (ValueError, OSError, TypeError, NotImplementedError) as error:
            raise ConfigError(
                OPTION,
                f"pyarrow does not accept {self} ({self._redact_error(error)})",
                "Use a path or an s3://, gs:// or hdfs:// URI",
            ) from None
        self.root = root.rstrip("/")

    def __str__(self) -> str:
        return redact_uri(self.uri)

    @property
    def address(self) -> str:
        """The URI or absolute path that pyarrow takes."""
        return self.uri if "://" in self.uri else str(Path(self.uri).expanduser().resolve())

    def upload(self, name: str, path: Path) -> None:
        """Upload a local file under a draft name, then rename it, so `name` is never incomplete."""
        target = f"{self.root}/{name}"
        draft = f"{target}.{uuid.uuid4().hex}{DRAFT}"
        with self._translate_errors(f"write {name}"):
            self.files.create_dir(target.rpartition("/")[0], recursive=True)
            try:
                with path.open("rb") as source, self.files.open_output_stream(draft) as stream:
                    shutil.copyfileobj(source, stream, PIECE)
                self.files.move(draft, target)
            except BaseException:  # closing the stream has saved a draft: delete it
                with contextlib.suppress(OSError):
                    self.files.delete_file(draft)
                raise

    def download(self, name: str, path: Path) -> bool:
        """Download a file to `path` completely or not at all; return False if it does not exist."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with self._translate_errors(f"read {name}"):
                if self._find_info(name) is None:
                    return False
                source = f"{self.root}/{name}"
                with self.files.open_input_stream(source) as stream, draft.open("wb") as target:
                    shutil.copyfileobj(stream, target, PIECE)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        return True

    def read_bytes(self, name: str) -> bytes | None:
        """Return the content of a small file, or None if it does not exist."""
        with self._translate_errors(f"read {name}"):
            if self._find_info(name) is None:
                return None
            with self.files.open_input_stream(f"{self.root}/{name}") as stream:
                return bytes(stream.read())

    def list_folder(self, folder: str = "") -> list[str]:
        """Return the names of the files and folders directly in a folder."""
        import pyarrow.fs

        path = f"{self.root}/{folder}".rstrip("/")
        selector = pyarrow.fs.FileSelector(path, allow_not_found=True)
        with self._translate_errors(f"list {folder}"):
            # pyarrow raises FileNotFoundError if a folder is made or deleted meanwhile: try again
            for _ in range(4):
                with contextlib.suppress(FileNotFoundError):
                    return [info.base_name for info in self.files.get_file_info(selector)]
            return [info.base_name for info in self.files.get_file_info(selector)]

    def get_age(self, name: str) -> float:
        """Return the age of a file in seconds by the storage's clock; 0 if it does not exist.

        Clocks of machines can differ by minutes, so the time now is that of a new probe file.
        """
        probe = f"clock.{uuid.uuid4().hex}{DRAFT}"
        with self._translate_errors(f"read the age of {name}"):
            with self.files.open_output_stream(f"{self.root}/{probe}") as stream:
                stream.write(b"?")
            now, then = self._find_info(probe), self._find_info(name)
            self.files.delete_file(f"{self.root}/{probe}")
        if not (now and then and now.mtime_ns and then.mtime_ns):  # some storages tell no time
            return 0.0
        return max(0.0, float(now.mtime_ns - then.mtime_ns) / 1e9)

    def put_folder(self, name: str, folder: Path) -> None:
        """Upload a local folder with its subfolders to the folder `name` in storage."""
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
        """Delete a folder with its content, if it exists."""
        with self._translate_errors(f"delete {name}"), contextlib.suppress(FileNotFoundError):
            self.files.delete_dir(f"{self.root}/{name}")

    def _find_info(self, name: str) -> Any | None:
        """Return pyarrow's description of a file, or None if it does not exist."""
        (info,) = self.files.get_file_info([f"{self.root}/{name}"])
        return None if info.type.name == "NotFound" else info

    @contextlib.contextmanager
    def _translate_errors(self, action: str) -> Iterator[None]:
        """Turn an OSError into a StorageError without secrets, which names the failed `action`."""
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"{self}: ablate cannot {action} there ({self._redact_error(error)})"
            ) from None

    def _redact_error(self, error: Exception) -> str:
        return " ".join(redact_text(str(error), self.uri).split())[:300]
