"""What other code left in a trial's folder."""

from pathlib import Path

import pytest

from trainables.core.components import Code
from trainables.core.runtime import CHECKPOINTS, SOURCE
from trainables.jobs.job import prepare_folder
from trainables.words.files import write_json

TODAY = Code({"core": "new"}, {"core": "1"}, {"core": ("new",)})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a state that other code of the core made."""
    folder = tmp_path / "trial"
    (folder / CHECKPOINTS).mkdir(parents=True)
    ((folder / CHECKPOINTS) / "state").write_bytes(b"other")
    write_json(folder / SOURCE, {"core": "old"})
    return folder


def test_a_state_of_other_code_is_deleted(folder: Path) -> None:
    prepare_folder(folder, TODAY, trains=True)
    assert not (folder / CHECKPOINTS).exists()


def test_a_state_that_cannot_be_deleted_is_not_taken_for_todays(folder: Path) -> None:
    elsewhere = (folder / CHECKPOINTS).rename((folder / CHECKPOINTS).with_name("elsewhere"))
    (folder / CHECKPOINTS).symlink_to(elsewhere)
    for _ in range(2):  # also not at a second try
        with pytest.raises(OSError, match="symbolic link"):
            prepare_folder(folder, TODAY, trains=True)
