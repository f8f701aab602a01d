"""Made images of unlike sizes, for what crops them."""

from __future__ import annotations

import torch

from trainables.data.images import Images


def ragged(channels: int = 3) -> Images:
    g = torch.Generator().manual_seed(0)
    sizes = [(40, 30), (17, 53), (64, 64), (9, 9), (33, 80)]
    pixels = [torch.randint(256, (h, w, channels), generator=g).byte() for h, w in sizes]
    lengths = torch.tensor([p.numel() for p in pixels])
    return Images(
        torch.cat([p.flatten() for p in pixels]),
        lengths.cumsum(0) - lengths,
        torch.tensor([h for h, _ in sizes]),
        torch.tensor([w for _, w in sizes]),
        channels,
        frame=224 / 256,
    )
