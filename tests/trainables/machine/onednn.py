"""Where torch has oneDNN's product."""

from __future__ import annotations

import pytest
import torch

there = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"),
    reason="torch has no oneDNN here",
)
