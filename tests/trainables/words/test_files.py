"""Names that others wrote down stay in the folder they are of; only regular files are opened."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from trainables.words.errors import ConfigError
from trainables.words.files import join_inside, open_regular, read_regular


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/b", "..", ".", "", "a\0b", None, 3])
def test_a_path_is_no_name(tmp_path: Path, name: object) -> None:
    with pytest.raises(ConfigError, match="is not a plain name"):
        join_inside(tmp_path, name)


def test_only_regular_files_of_a_bounded_size_are_read(tmp_path: Path) -> None:
    """None of the others may make the caller wait, which the test itself would do as well."""
    plain, fifo, link = tmp_path / "plain", tmp_path / "fifo", tmp_path / "link"
    plain.write_bytes(b"12345")
    os.mkfifo(fifo)
    link.symlink_to(plain)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
    assert read_regular(plain, most_bytes=5) == read_regular(link, most_bytes=5) == b"12345"
    with open_regular(plain) as file:
        assert file.read() == b"12345"
    for path, words in (
        (fifo, "a FIFO"),
        (tmp_path, "a folder"),
        (tmp_path / "socket", "a socket"),
        (Path("/dev/zero"), "a device"),
        (tmp_path / "gone", "No such file"),
    ):
        with pytest.raises(OSError, match=words) as caught:
            read_regular(path, most_bytes=5)
        assert str(caught.value.filename) == str(path)
    with pytest.raises(OSError, match="larger than 4 bytes"):
        read_regular(plain, most_bytes=4)
    with pytest.raises(OSError, match="a symbolic link"):
        read_regular(link, most_bytes=5, follow_links=False)
    with pytest.raises(OSError, match="null byte"):
        read_regular("a\0b", most_bytes=5)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_file_without_a_size_is_read_no_further_than_allowed() -> None:
    with pytest.raises(OSError, match="larger than 8 bytes"):
        read_regular("/proc/self/status", most_bytes=8)
