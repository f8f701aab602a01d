"""How well images of each class are found, beside how many there are of it.

DDML's authors tell of class-imbalanced data in their supplement, which is not public; this is
measured where sizes differ by themselves, or by `data.split.imbalance`.
"""

from __future__ import annotations

from typing import Any

import torch

from trainables.jobs.views.embedded import BLOCK, VIEWS, Embedded


@VIEWS.register("class_sizes")
@torch.inference_mode()
def class_sizes(split: Embedded) -> dict[str, Any]:
    """Of each class with a query that can be answered: `classes`, names; `sizes`, images of it in
    this split; `trained`, images of it that the model was trained on, 0 of a class that it never
    saw; `recalls`, the share of its images whose nearest other one is of it."""
    subset, train = split.subset, split.training
    total = len(subset.classes)
    right, asked = torch.zeros(2, total, dtype=torch.int64)
    for block in torch.split(torch.arange(split.query_count), BLOCK):
        scores, same = split.score_queries(block.to(split.device))
        answered = same.any(1)
        hit = same.gather(1, scores.argmax(1, keepdim=True)).squeeze(1)
        own = subset.labels[block]
        asked += torch.bincount(own[answered.cpu()], minlength=total)
        right += torch.bincount(own[(hit & answered).cpu()], minlength=total)
    sizes = torch.bincount(subset.labels, minlength=total).tolist()
    counts = torch.bincount(train.labels, minlength=len(train.classes)).tolist()
    trained = dict(zip(train.classes, counts, strict=True))
    shown = asked.nonzero().squeeze(1).tolist()
    return {
        "classes": [subset.classes[at] for at in shown],
        "of_classes": total,
        "sizes": [sizes[at] for at in shown],
        "trained": [trained.get(subset.classes[at], 0) for at in shown],
        "recalls": [round(float(right[at]) / float(asked[at]), 6) for at in shown],
    }
