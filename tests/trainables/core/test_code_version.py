"""What other code left in a trial's folder."""

from pathlib import Path

import pytest

from trainables.core.code_version import Code, prepare_folder
from trainables.core.trial_folder import TrialFolder
from trainables.machine.files import write_json

TODAY = Code({"core": "new"}, {"core": "1"}, {"core": ("new",)})


@pytest.fixture
def files(tmp_path: Path) -> TrialFolder:
    """A folder with a state that other code of the core made."""
    files = TrialFolder(tmp_path / "trial")
    files.checkpoints.mkdir(parents=True)
    (files.checkpoints / "state").write_bytes(b"other")
    write_json(files.source, {"core": "old"})
    return files


def test_a_state_of_other_code_is_deleted(files: TrialFolder) -> None:
    prepare_folder(files.source.parent, TODAY, trains=True)
    assert not files.checkpoints.exists()


def test_a_state_that_cannot_be_deleted_is_not_taken_for_todays(files: TrialFolder) -> None:
    elsewhere = files.checkpoints.rename(files.checkpoints.with_name("elsewhere"))
    files.checkpoints.symlink_to(elsewhere)
    for _ in range(2):  # also not at a second try
        with pytest.raises(OSError, match="symbolic link"):
            prepare_folder(files.source.parent, TODAY, trains=True)
