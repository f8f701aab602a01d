"""Methods in their several readings, for tests that go through all code paths of each."""

from __future__ import annotations

OTHER_READINGS = {
    "agnostic": "printed",
    "split": "sampled",
    "metric_input": "sample",
    "specific_input": "unit",
    "logit_scale": "tied",
    "std_start": "exact",
}
DVML_READINGS = {
    "generated": "pooled",
    "same_image": "excluded",
    "kl": "printed",
    "reconstruction": "norm",
    "target": "attached",
    "spread": "detached",
    "kl_over": "mean",
}
NIR_READINGS = {
    "reading": "code",
    "f": "softplus",
    "scale": "t",
    "negative_pairs": "separate",
    "synthetic": "match",
}
METHODS = [
    {"name": "plain"},
    {"name": "ddml"},
    {"name": "ddml", **OTHER_READINGS},
    {"name": "dvml", "samples": 3},
    {"name": "dvml", "samples": 3, **DVML_READINGS},
    {"name": "nir"},
    {"name": "nir", **NIR_READINGS},
    {"name": "nir", "negative_pairs": "difference", "synthetic": "generate"},
    {"name": "idml", "uncertainty_dim": 3},
    {"name": "idml", "uncertainty_dim": 3, "uncertainty": "unit", "squared": "plain"},
    {"name": "detreg", "proxies": "own"},
    {"name": "pel", "samples": 2},
    {"name": "pel", "samples": 2, "monte_carlo": "losses"},
]
