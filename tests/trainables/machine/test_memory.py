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

    def faults() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(40 * 2**18)  # 40 MiB, 10,240 pages
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    faults()
    assert min(faults() for _ in range(3)) < 1000
