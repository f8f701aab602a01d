"""Values that public code states, against what the recipes' rows resolve to.

The table is written from the public code's commands and sources, not from `*.sources.yaml`, which
says the same of every field and so moves with a recipe.
"""

from __future__ import annotations

import math
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import pytest

from tests.papers import sources
from tests.papers.sources import FOLDER, Row

Stated = tuple[str, str, str, dict[str, Any]]  # paper, studies, rows → what the public code has
CROPS = {"data.augment.resize": None, "data.augment.crop_scale": [0.08, 1.0]}
# HypViT's README: the last network is evaluated; CUB alone is resized to 256.
HYPVIT: list[Stated] = [
    ("ddml", "*_cub_hypvit", "*", {"data.eval_resize": 256, "training.batch_size": 900}),
    ("ddml", "*_cub_vit", "*", {"data.eval_resize": 256, "training.batch_size": 900}),
    ("ddml", "*_cars_hypvit", "*", {"data.eval_resize": 224, "training.batch_size": 882}),
    ("ddml", "*_sop_hypvit", "*", {"data.eval_resize": 224, "training.batch_size": 900}),
]
VIT = {"selection.keep": "last", "backbone.name": "vit_small_patch16_224.augreg_in21k_ft_in1k"}
HYPVIT += [
    ("ddml", studies, "*", VIT) for studies in ("table1_*_hypvit", "table2_*_vit", "table3_*_vit")
]
# IDML's losses.py has one form for all data sets, train.py holds the uncertainty's layer.
UNIT = {
    **CROPS,
    "method.uncertainty": "unit",
    "method.gamma": 4,
    "method.tau": 5,
    "optimizer.multipliers.proxies": 100,
}
HOLD = {"schedule.warmup_hold": ["backbone", "auxiliary"]}
HOLDING = (
    ("table1_*", "IDML-*"),
    ("table3_*", "ISM-*"),
    ("table3_*", "IDML-*"),
    ("table[456]_*", "*"),
    ("table7_*", "ISM-*"),
    ("table8_*", "* (IDML)"),
    ("code_*", "IDML-PA"),
)
BIAS = {"method.bias_in_score": True, "loss.bias": True}
DIM = {"method.uncertainty_dim": 128}
IDML: list[Stated] = [
    ("idml", "code_cub", "IDML-PA", {**UNIT, "optimizer.lr": 6e-4}),
    ("idml", "code_cars", "IDML-PA", {**UNIT, "optimizer.lr": 2.5e-4}),
    ("idml", "code_sop", "IDML-PA", {**UNIT, "optimizer.lr": 6e-4}),
    ("idml", "code_???*", "ProxyAnchor", CROPS),
    *(("idml", studies, rows, HOLD) for studies, rows in HOLDING),
    # Proxy-Anchor's train.py gives its Proxy-NCA no rate of its own.
    ("idml", "table1_*", "ProxyNCA", {"optimizer.multipliers.proxies": 1}),
    ("idml", "table1_*", "IDML-PN", {"optimizer.multipliers.proxies": 1}),
    # IDML's pyramidnet.py and resnet.py.
    ("idml", "table2_cifar*", "*Mixup", DIM),
    ("idml", "code_cifar*", "*Cutmix", DIM),
    ("idml", "code_cifar*", "ISM-*", DIM),
    *(
        ("idml", f"code_{name}", rows, BIAS)
        for name in ("imagenet", "cifar100", "cifar10")
        for rows in ("ISM-*", "IDML-*")
    ),
]
STATED = HYPVIT + IDML
# HypViT's README: epochs of a sampler that draws each class once; images of each part.
STEPS = {"cub": (50, 5_864), "cars": (300, 8_054), "sop": (200 * 25, 59_551)}


@cache
def rows_of(paper: str) -> list[Row]:
    return sources.rows(sources.plan(FOLDER / f"{paper}.yaml"))


@pytest.mark.parametrize("stated", STATED, ids=[f"{p}-{s}-{r}" for p, s, r, _ in STATED])
def test_rows_have_what_public_code_states(stated: tuple[str, str, str, dict[str, Any]]) -> None:
    paper, studies, cells, values = stated
    rows = [
        row
        for row in rows_of(paper)
        if fnmatchcase(row.study, studies) and fnmatchcase(row.cell, cells)
    ]
    assert rows
    for row in rows:
        assert {name: row.values.get(name) for name in values} == values, row.place


@pytest.mark.parametrize("data", STEPS)
def test_hypvit_trains_for_as_many_steps_as_its_public_code(data: str) -> None:
    steps, images = STEPS[data]
    rows = [row for row in rows_of("ddml") if fnmatchcase(row.study, f"*_{data}_*vit")]
    assert rows
    for row in rows:
        batches = math.ceil(images / row.values["training.batch_size"])
        assert row.values["training.epochs"] * batches == pytest.approx(steps, rel=0.02), row.place
