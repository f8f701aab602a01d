"""Files in storage: in a folder and in S3, whole or not at all, and errors without a secret."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Self, cast

import pytest

from ablate.storage.store import Storage, StorageError
from tests.s3 import CREDENTIALS, server
from trainables.errors import ConfigError


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.slow)])
def storage(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Storage]:
    if request.param == "folder":
        yield Storage(str(tmp_path / "there"))
        return
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with server(tmp_path / "s3.log") as made:
        yield Storage(made.uri)


def names(storage: Storage, folder: str) -> list[str]:
    import pyarrow.fs

    place = pyarrow.fs.FileSelector(f"{storage.root}/{folder}")
    return sorted(info.base_name for info in storage.files.get_file_info(place))


def test_what_is_put_is_what_is_got(storage: Storage, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "deep" / "target"
    assert storage.read_bytes("a/b") is None and not storage.download("a/b", target)
    for content in (bytes(range(256)) * 20_000, b"", b"shorter"):  # more than one piece; less
        source.write_bytes(content)
        storage.upload("a/b", source)
        assert storage.download("a/b", target) and target.read_bytes() == content
        assert storage.read_bytes("a/b") == content
    assert [path.name for path in target.parent.iterdir()] == ["target"]
    assert names(storage, "a") == ["b"]


class Broken:
    """A file of which one piece can be read; then `error` comes."""

    def __init__(self, error: BaseException) -> None:
        self.error, self.pieces = error, [b"cut"]

    def open(self, _: str) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def read(self, _: int) -> bytes:
        if not self.pieces:
            raise self.error
        return self.pieces.pop()


@pytest.mark.parametrize(
    ("error", "told"), [(KeyboardInterrupt(), KeyboardInterrupt), (OSError("away"), StorageError)]
)
def test_a_write_that_is_broken_off_leaves_what_was_there(
    storage: Storage, tmp_path: Path, error: BaseException, told: type[BaseException]
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"whole")
    storage.upload("a/name", source)
    with pytest.raises(told):
        storage.upload("a/name", cast(Path, Broken(error)))
    assert storage.read_bytes("a/name") == b"whole"
    with pytest.raises(told):
        storage.upload("a/other", cast(Path, Broken(error)))
    assert names(storage, "a") == ["name"]


def test_an_address_of_no_known_kind() -> None:
    with pytest.raises(ConfigError, match=r"--storage: ftp://h/x is no path, s3"):
        Storage("ftp://h/x")


def test_a_variable_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_THERE", raising=False)
    with pytest.raises(ConfigError, match="no such variable"):
        Storage("env:NOT_THERE")


def test_a_secret_in_the_address_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    word = "w0rd-of-a-kind"
    uri = f"s3://key:{word}@bucket/x?scheme=http&endpoint_override=127.0.0.1:9&region=us-east-1"
    monkeypatch.setenv("WHERE", uri)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    storage = Storage("env:WHERE")
    assert word not in storage.shown
    with pytest.raises(StorageError) as caught:
        storage.read_bytes("name")
    assert word not in str(caught.value) and "cannot read name" in str(caught.value)


def test_what_is_listed_and_what_is_deleted(storage: Storage, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"four")
    assert storage.list_folder("a") == []
    for name in ("a/b", "a/deep/c", "ab/d"):
        storage.upload(name, source)
    assert sorted(storage.list_folder("a")) == ["b", "deep"]
    assert sorted(storage.list_folder()) == ["a", "ab"]
    assert 0 <= storage.get_age("a/b") < 60 and storage.get_age("a/none") == 0
    for name in ("a/deep", "a/deep"):  # the second is gone
        storage.delete_folder(name)
    storage.put_folder("ab/e", tmp_path)
    assert storage.read_bytes("ab/e/source") == b"four"


class Late:
    """Files of which the first listings fall between a folder's absence and its making."""

    def __init__(self, files: object, times: int) -> None:
        self.files, self.times = files, times

    def get_file_info(self, chosen: object) -> object:
        self.times -= 1
        if self.times >= 0:
            raise FileNotFoundError(2, "Cannot list directory", "there/a")
        return self.files.get_file_info(chosen)  # type: ignore[attr-defined]


def test_a_folder_that_comes_while_it_is_listed_is_no_fault(tmp_path: Path) -> None:
    storage, source = Storage(str(tmp_path / "there")), tmp_path / "source"
    source.write_bytes(b"here")
    storage.upload("a/b", source)
    files = storage.files
    storage.files = Late(files, 2)
    assert storage.list_folder("a") == ["b"]
    storage.files = Late(files, 1_000)
    with pytest.raises(StorageError, match="cannot list a "):
        storage.list_folder("a")
