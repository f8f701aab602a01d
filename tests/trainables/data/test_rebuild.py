"""The rebuild script: its inputs are checked, its drawings are in their place."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from trainables.data.embedded import rebuild
from trainables.data.embedded.rebuild import emoji_drawings, glyph_drawings, main


def test_missing_sources_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["typefaces", "--source", str(tmp_path), "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "1015snr.ttf" in said and said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_emoji_are_drawn_on_white_through_aliases(tmp_path: Path) -> None:
    pytest.importorskip("resvg_py")
    icons = {
        "icons": {"square": {"body": '<path fill="#f00" d="M4 4h8v8H4z"/>'}},
        "aliases": {"box": {"parent": "square"}},
        "width": 16,
        "height": 16,
    }
    raw = json.dumps(icons).encode()
    with tarfile.open(tmp_path / "iconify-json-noto-1.0.0.tgz", "w:gz") as archive:
        member = tarfile.TarInfo("package/icons.json")
        member.size = len(raw)
        archive.addfile(member, io.BytesIO(raw))
    drawn = emoji_drawings(tmp_path)("box", "noto")
    wanted = np.full((64, 64, 3), 255, np.uint8)
    wanted[16:48, 16:48] = (255, 0, 0)
    assert np.array_equal(drawn, wanted)


def test_glyphs_are_their_own_stream(tmp_path: Path) -> None:
    # matplotlib ships a typeface; any will do.
    matplotlib = pytest.importorskip("matplotlib")
    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    draw, again = glyph_drawings(fonts), glyph_drawings(fonts)
    first = draw("DejaVuSans.ttf", "B")
    draw("DejaVuSans.ttf", "i")
    assert np.array_equal(again("DejaVuSans.ttf", "B"), first)
    assert first.shape == (64, 64) and first.dtype == np.uint8
    rows, columns = np.nonzero(first < 128)
    longest = max(np.ptp(rows), np.ptp(columns)) + 1
    low, high = rebuild.GLYPH_SIDE
    assert low - 3 <= longest <= high * 1.25  # rotation lengthens the box
    assert min(first[0].min(), first[-1].min(), first[:, 0].min(), first[:, -1].min()) == 255
