"""Names of devices."""

import pytest

from trainables.machine.devices import resolve_device
from trainables.words.errors import ConfigError


@pytest.mark.parametrize("name", ["cuda:007", "cuda:٣", "cuda:200", "cuda:-1", "tpu", "cpu\n", ""])
def test_no_device(name: str) -> None:
    with pytest.raises(ConfigError, match="is no device"):
        resolve_device(name)
