"""Files in storage: in a folder and in S3, whole or not at all, and errors without a secret."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ablate.plugins.storage import Storage, StorageError
from tests.s3 import CREDENTIALS, server
from trainables.words.errors import ConfigError


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.slow)])
def storage(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Storage]:
    if request.param == "folder":
        yield Storage(str(tmp_path / "there"))
        return
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with server(tmp_path / "s3.log") as bucket:
        yield Storage(bucket.uri)


def names(storage: Storage, folder: str) -> list[str]:
    import pyarrow.fs

    selector = pyarrow.fs.FileSelector(f"{storage.root}/{folder}")
    return sorted(info.base_name for info in storage.files.get_file_info(selector))


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


@pytest.mark.parametrize(
    ("error", "raised"), [(KeyboardInterrupt(), KeyboardInterrupt), (OSError("away"), StorageError)]
)
def test_a_write_that_is_broken_off_leaves_what_was_there(
    storage: Storage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    raised: type[BaseException],
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"whole")
    storage.upload("a/name", source)

    def break_off(_: object, stream: Any, *__: object) -> None:
        stream.write(b"cut")
        raise error

    monkeypatch.setattr(shutil, "copyfileobj", break_off)
    for name in ("a/name", "a/other"):
        with pytest.raises(raised):
            storage.upload(name, source)
    assert storage.read_bytes("a/name") == b"whole" and names(storage, "a") == ["name"]


def test_a_folder_that_changes_while_it_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage(str(tmp_path))
    (tmp_path / "a").touch()
    files, faults = storage.files, iter([FileNotFoundError("gone")] * 4)

    def list_names(selector: object) -> Any:
        for fault in faults:
            raise fault
        return files.get_file_info(selector)

    monkeypatch.setattr(storage, "files", SimpleNamespace(get_file_info=list_names))
    assert storage.list_folder() == ["a"]
    faults = iter([FileNotFoundError("gone")] * 5)
    with pytest.raises(StorageError, match="cannot list"):
        storage.list_folder()


def test_a_storage_without_times_has_no_old_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage(str(tmp_path))
    monkeypatch.setattr(storage, "_find_info", lambda _: SimpleNamespace(mtime_ns=None))
    assert storage.get_age("a") == 0.0


def test_an_address_that_names_no_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_THERE", raising=False)
    for address, reason in (
        ("ftp://h/x", "Use a path or an s3"),
        ("env:NOT_THERE", "is not set"),
    ):
        with pytest.raises(ConfigError, match=reason):
            Storage(address)


@pytest.mark.slow
def test_a_secret_in_the_address_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    password = "w0rd-of-a-kind"
    uri = f"s3://key:{password}@bucket/x?scheme=http&endpoint_override=127.0.0.1:9&region=us-east-1"
    monkeypatch.setenv("WHERE", uri)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    storage = Storage("env:WHERE")
    assert password not in str(storage)
    with pytest.raises(StorageError) as caught:
        storage.read_bytes("name")
    assert password not in str(caught.value) and "cannot read name" in str(caught.value)


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
