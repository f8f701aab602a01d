"""What recipes start from, and what drowned the metric once, or would; run by `test_starts.py`.

A method joins by one entry: its options as a recipe has them, and between which bounds its terms
lie. NIR, whose flow learns faster than what it looks at, has a second moment and a file of its own.
"""

from __future__ import annotations

from tests.trainables.methods.start_bounds import NO, Bounds, Start, exactly

STARTS = [
    Start(
        # The originals keep the pull of the plain loss, less what the uncertainty takes off; the
        # mixtures' loss comes on top, about as large.
        name="idml",
        method={"name": "idml", "mixing": "feature_mixup", "uncertainty_dim": 128},
        training={"mixing": "mixup"},
        metric=Bounds((1.8, 2.4), (0.6, 1.0), (0.6, 1.0), (0.7, 1.0)),
        drowned={
            "originals and mixtures in one loss": {"objective": "joint"},
            "weighted labels in one loss": {"objective": "joint", "mixed_labels": "weighted"},
            "u as long as the features make it": {"uncertainty_gain": 1.0},
        },
    ),
    Start(
        name="pel",
        method={"name": "pel"},
        metric=Bounds((0.8, 1.1), (0.6, 1.0), (0.8, 1.1), (0.8, 1.0)),
        terms={"kl": Bounds((0.01, 0.06), (0.003, 0.02), (0.01, 0.08))},
        drowned={"KL of weight 0.1": {"kl": 0.1}},
    ),
    Start(
        # R is a small, near constant term here, and hardly pulls at the embedding: what it changes
        # is in the flows.
        name="detreg",
        method={"name": "detreg", "activation": "none", "flow": {"width": 128}},
        metric=Bounds((0.95, 1.05), (0.9, 1.1), (0.9, 1.1), (0.98, 1.0)),
        terms={
            "metric2": Bounds((0.9, 1.1), (0.9, 1.1), (0.9, 1.1), (0.95, 1.0)),
            "r1": Bounds((0.01, 0.05), (1e-7, 1e-4), (1e-7, 1e-4)),
            "r2": Bounds((0.01, 0.05), (1e-7, 1e-4), (1e-7, 1e-4)),
        },
        drowned={
            "z as long as the head makes it": {"input": "raw"},
            "ReLU": {"activation": "relu"},
        },
    ),
    Start(
        # Table 4's weights. Two terms are as large as the metric's, and pull as much; the split
        # term, in the thousands, is next to nothing at 1e-7. Through σ, which the features make
        # large, the first two reach them about twice as strongly as through the mean.
        name="ddml, Table 4",
        loss={"name": "normsoftmax"},
        method={"name": "ddml", "alpha": 1, "beta": 1, "gamma": 1e-7},
        metric=exactly(1),
        terms={
            "agnostic": Bounds((1.0, 1.2), (0.2, 0.4), (0.5, 0.9)),
            "specific": Bounds((1.0, 1.2), (0.8, 1.1), (1.8, 2.6)),
            "split": Bounds((3e-5, 3e-4), (1e-5, 1e-4), (5e-5, 5e-4)),
        },
        drowned={"gamma at the end of its range": {"gamma": 0.1}},
    ),
    Start(
        # No σ to speak of: both terms act on the mean alone.
        name="ddml, Table 4, exact start",
        loss={"name": "normsoftmax"},
        method={"name": "ddml", "alpha": 1, "beta": 1, "gamma": 1e-7, "std_start": "exact"},
        metric=exactly(1),
        terms={
            "agnostic": Bounds((1.0, 1.2), (0.3, 0.5), (0.3, 0.5)),
            "specific": Bounds((1.0, 1.2), (1.0, 1.4), (1.0, 1.4)),
            "split": Bounds((1e-5, 1e-4), (1e-5, 1e-4), (1e-5, 1e-4)),
        },
        drowned={
            "gamma at the end of its range": {"gamma": 0.1},
            "sigma as large as the features make it": {"std_start": "kaiming"},
        },
    ),
    Start(
        name="ddml, the public recipe",
        loss={"name": "proxy_anchor"},
        method={"name": "ddml", "alpha": 1, "beta": 0.1, "gamma": 1e-5},
        metric=exactly(1),
        terms={
            "agnostic": Bounds((0.3, 0.45), (0.1, 0.25), (0.2, 0.4)),
            "specific": Bounds((0.03, 0.05), (0.03, 0.07), (0.06, 0.12)),
            "split": Bounds((5e-4, 5e-3), (3e-4, 3e-3), (2e-3, 2e-2)),
        },
        drowned={"gamma at the end of its range": {"gamma": 0.1}},
    ),
    Start(
        # L1 and L2, sums in the thousands at weight 1, end at layers that nothing else trains: the
        # size alone drowns nothing.
        name="dvml, the paper's weights, first phase, spread detached",
        loss={"name": "triplet_l2"},
        method={"name": "dvml", "samples": 2, "phase1": 1, "spread": "detached"},
        metric=exactly(1),
        terms={
            "kl": Bounds((1e3, 3e4), NO, NO),
            "reconstruction": Bounds((5e3, 4e4), NO, NO),
            "generated": Bounds((0.05, 0.15), (0.03, 0.1), (0.03, 0.1)),
        },
        drowned={
            "spread attached": {"spread": "attached"},
            "the paper's second phase": {"phase1": 0},
        },
    ),
    Start(
        # With all of it attached: KL by dimension at 1e-3, L2 at the middle of its range.
        name="dvml, small weights, second phase, spread attached",
        loss={"name": "triplet_l2"},
        method={
            "name": "dvml",
            "samples": 2,
            "phase1": 0,
            "kl_over": "mean",
            "lambda1_phase2": 1e-3,
            "lambda2_phase2": 1e-4,
        },
        metric=exactly(0.8),
        terms={
            "kl": Bounds((0.01, 0.3), NO, (0.1, 3.0)),
            "reconstruction": Bounds((1.0, 5.0), (0.05, 0.3), (0.1, 1.0)),
            "generated": Bounds((0.15, 0.3), (0.1, 0.2), (0.3, 1.2)),
        },
        drowned={
            "KL summed, at the paper's weight": {"kl_over": "sum", "lambda1_phase2": 0.8},
            "KL by dimension, at the paper's weight": {"lambda1_phase2": 0.8},
            "reconstruction at the paper's weight": {"lambda2_phase2": 1.0},
        },
    ),
]
