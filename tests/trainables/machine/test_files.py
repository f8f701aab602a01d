"""Names that others wrote down stay in the folder they are of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainables.errors import ConfigError
from trainables.jobs.job import _finished, _with_digest
from trainables.machine.files import inside


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/b", "..", ".", "", "a\0b", None, 3])
def test_a_path_is_no_name(tmp_path: Path, name: object) -> None:
    with pytest.raises(ConfigError, match="a name without a path"):
        inside(tmp_path, name)


def test_a_name_is(tmp_path: Path) -> None:
    assert inside(tmp_path, "best.safetensors") == tmp_path / "best.safetensors"


def test_a_finished_trial_that_names_weights_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.safetensors").touch()
    folder = tmp_path / "trial"
    folder.mkdir()
    final = _with_digest({"event": "final", "export": "../other.safetensors", "seed": 0})
    (folder / "final.json").write_text(json.dumps(final))
    with pytest.raises(ConfigError, match=r"'../other.safetensors' as the name of a file"):
        _finished(folder, {"seed": 0})
