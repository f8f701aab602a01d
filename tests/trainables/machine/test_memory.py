from __future__ import annotations

import resource
import sys

import pytest
import torch

from trainables.machine.memory import keep_freed_memory


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's")
def test_a_tensor_above_the_threshold_gets_no_fresh_pages_again() -> None:
    if not keep_freed_memory():
        pytest.skip("no glibc")

    def faults(megabytes: int) -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(megabytes * 2**18)  # of 40 MiB 10,240 pages
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    faults(40)
    # Each a little smaller: something small may lie at the edge of what was freed.
    assert min(faults(40 - each) for each in range(1, 4)) < 1000
