"""The collector rests while a command loads, and works again after."""

import gc

import pytest

from ablate.cli.main import main
from trainables.machine.memory import uncollected


@pytest.mark.parametrize("before", [True, False])
def test_the_collector_is_left_as_it_was(before: bool) -> None:
    was = gc.isenabled()
    (gc.enable if before else gc.disable)()
    try:
        with pytest.raises(KeyError), uncollected():
            assert not gc.isenabled()
            raise KeyError
        assert gc.isenabled() is before
    finally:
        (gc.enable if was else gc.disable)()


def test_a_command_called_from_python_leaves_it_at_work(tmp_path, capsys) -> None:
    assert gc.isenabled()
    frozen = gc.get_freeze_count()
    assert main(["run", str(tmp_path / "none.yaml"), "--plan"]) == 2
    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen
