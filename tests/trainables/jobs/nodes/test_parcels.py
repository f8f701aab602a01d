"""Data sets of every layout by way of storage, and archives that hold what they should not."""

from __future__ import annotations

import errno
import io
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ablate.cli.main import main
from ablate.storage.store import Storage
from tests.trainables.data import trees
from trainables.data.dataset import data_config, fingerprint
from trainables.data.files.places import FETCHED
from trainables.errors import ConfigError
from trainables.jobs.nodes import data_sets, parcels
from trainables.jobs.nodes.data_sets import provide

DIGEST = "0123456789abcdef" * 4


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv(FETCHED, "")
    monkeypatch.delenv("ABLATE_DATA", raising=False)


@pytest.mark.parametrize(("name", "usual"), trees.CASES)
def test_each_layout_is_read_elsewhere_as_it_was_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, usual: str
) -> None:
    monkeypatch.setattr(parcels, "PART", 2000)  # so that there are several
    root = trees.TREES[name][usual](tmp_path / "sets" / usual)
    given = {"name": name, "root": str(root), "allow_partial": True}
    wanted = fingerprint(data_config(given), tmp_path / "cache")
    there = str(tmp_path / "there")
    command = ["data", "push", name, "--data-root", str(root), "--storage", there]
    assert main([*command, "--allow-partial"]) == 0
    shutil.rmtree(tmp_path / "sets")
    provide(given, wanted, tmp_path / "node", Storage(there))
    assert fingerprint(data_config(given), tmp_path / "node") == wanted
    parts = Storage(there).listed(parcels.place_of(name, wanted))
    assert parcels.LIST in parts


def test_push_asks_for_a_storage_and_the_others_for_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(trees.folder_of_parts(tmp_path / "own"))
    assert main(["data", "push", "folder", "--data-root", root]) == 2
    assert "--storage: found nothing" in capsys.readouterr().err
    assert main(["data", "list", "--storage", "there"]) == 2
    assert "--storage: found it without push" in capsys.readouterr().err


def sent(folder: Path, fill: Callable[[tarfile.TarFile], None]) -> Storage:
    """A data set of one archive that somebody else has filled."""
    archive, storage = folder / "part.tar", Storage(str(folder / "there"))
    with tarfile.open(archive, "w") as made:
        fill(made)
    place = parcels.place_of("cub200", DIGEST)
    storage.put(f"{place}/part-0000.tar", archive)
    part = {"name": "part-0000.tar", "size": 1, "sha256": parcels._digest(archive)}
    archive.write_text(json.dumps({"fingerprint": DIGEST, "parts": [part]}))
    storage.put(f"{place}/{parcels.LIST}", archive)
    return storage


def named(name: str, **more: object) -> Callable[[tarfile.TarFile], None]:
    def fill(archive: tarfile.TarFile) -> None:
        member = tarfile.TarInfo(name)
        member.size = 0 if more else 4
        for key, value in more.items():
            setattr(member, key, value)
        archive.addfile(member, None if more else io.BytesIO(b"four"))

    return fill


@pytest.mark.parametrize(
    "fill",
    [
        named("../out"),
        named("/out"),
        named("a/../../out"),
        named("link", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        named("link", type=tarfile.LNKTYPE, linkname="../out"),
        named("device", type=tarfile.CHRTYPE),
    ],
)
def test_an_archive_leads_nowhere_else(
    tmp_path: Path, fill: Callable[[tarfile.TarFile], None]
) -> None:
    storage = sent(tmp_path, fill)
    with pytest.raises((OSError, ConfigError)):
        parcels.pull(storage, "cub200", DIGEST, tmp_path / "node" / "set")
    assert not [path for path in (tmp_path / "node").rglob("*") if not path.is_dir()]
    assert not (tmp_path / "out").exists()


def test_an_archive_that_is_another_is_refused(tmp_path: Path) -> None:
    storage = sent(tmp_path, named("fine"))
    assert parcels.pull(storage, "cub200", DIGEST, tmp_path / "node" / "set")
    (tmp_path / "other").write_text("other")
    storage.put(f"{parcels.place_of('cub200', DIGEST)}/part-0000.tar", tmp_path / "other")
    with pytest.raises(OSError, match="is not as it was sent"):
        parcels.pull(storage, "cub200", DIGEST, tmp_path / "node" / "again")
    assert not parcels.pull(storage, "cub200", "f" * 64, tmp_path / "node" / "none")


def test_folders_that_are_links_are_sent_and_none_for_ever(tmp_path: Path) -> None:
    root = trees.folder_of_parts(tmp_path / "own")
    part = next(path for path in sorted(root.iterdir()) if path.is_dir())
    part.rename(tmp_path / "elsewhere")
    part.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "back").symlink_to(root)
    config = data_config({"name": "folder", "root": str(root)})
    _, names = parcels.files_of(root, config)
    linked = [path for path in (tmp_path / "elsewhere").rglob("*") if path.is_file()]
    sent = [name for name in names if name.startswith(f"{part.name}/")]
    assert len(sent) == len(linked) > 0
    assert not [name for name in names if "/back/" in name]


def test_a_data_set_that_cannot_be_read_just_now_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = trees.folder_of_parts(tmp_path / "own")
    given = {"name": "folder", "root": str(root)}
    wanted, there = fingerprint(data_config(given), tmp_path / "cache"), tmp_path / "there"
    parcels.push(Storage(str(there)), data_config(given), wanted)
    shutil.rmtree(root)

    def busy(*_: object) -> str:
        error = OSError(errno.EMFILE, "Too many open files")
        raise ConfigError("data.root", "a fault", "files") from error

    with monkeypatch.context() as now:
        now.setattr(data_sets, "fingerprint", busy)
        with pytest.raises(OSError, match="Too many open files"):
            provide(given, wanted, tmp_path / "node", Storage(str(there)))
    shutil.rmtree(there)
    provide(given, wanted, tmp_path / "node", Storage(str(there)))
