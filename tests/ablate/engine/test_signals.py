"""Signals that stop a sweep."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from ablate.engine.driver_status import STOPPING, stop_on_signals


@pytest.fixture
def hangup() -> Iterator[None]:
    """SIGHUP as a terminal's process has it, whatever these tests were started under."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", STOPPING)
def test_the_first_one_asks_and_the_second_one_breaks_off(
    number: signal.Signals, hangup: None
) -> None:
    asked: list[None] = []
    before = [signal.getsignal(each) for each in STOPPING]
    with stop_on_signals(lambda: asked.append(None)) as caught:
        os.kill(os.getpid(), number)
        assert (caught, len(asked)) == ([number], 1)
        os.kill(os.getpid(), signal.SIGHUP)  # a closed terminal's shell sends it once more
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert len(asked) == 1
    assert [signal.getsignal(each) for each in STOPPING] == before


def test_nohup_keeps_its_meaning(hangup: None) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with stop_on_signals(lambda: pytest.fail("stopped")) as caught:
        os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN and not caught
