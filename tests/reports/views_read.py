"""What readers of models leave with a run, made up: of each kind of figure a small one."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from reports.figures.models import list_requested_views
from reports.frame import load_frame
from reports.store import open_client
from trainables.core.runtime import VIEWS
from trainables.jobs.request import View


def picture(seed: int | None = None) -> str:
    """A picture of one colour; with a seed of noise, so that it takes the bytes of a real one."""
    image = Image.new("RGB", (40, 30), (20, 90, 160))
    if seed is not None:
        pixels = np.random.default_rng(seed).integers(0, 256, (72, 54, 3), dtype=np.uint8)
        image = Image.fromarray(pixels)
    file = BytesIO()
    image.save(file, "JPEG", quality=80, subsampling=0)
    return base64.b64encode(file.getvalue()).decode()


def near(hit: bool) -> dict[str, Any]:
    return {"picture": picture(), "class": "b", "hit": hit, "score": 0.5}


def row(failed: bool) -> dict[str, Any]:
    neighbours = [near(not failed), near(False)]
    return {"query": picture(), "class": "a", "rank": 1, "failed": failed, "near": neighbours}


READ: dict[str, dict[str, Any]] = {
    "gallery": {"rows": [row(False), row(True)], "looked_at": 9, "failing": 2},
    "embedding_map": {
        "x": [0.0, 1.0, 2.0, 3.0],
        "y": [0.0, 1.0, 0.0, 1.0],
        "label": [0, 0, 1, 1],
        "classes": ["a", "b"],
        "of_classes": 5,
        "pictures": [[0, picture()]],
        "options": {"perplexity": 30.0},
    },
    "spectrum": {"shares": [0.5, 0.3, 0.2], "spectrum": 0.0513},
    "distances": {
        **{"edges": [0.0, 1.0, 2.0], "intra": [0.75, 0.25], "inter": [0.25, 0.75]},
        **{"means": [0.8, 1.3], "overlap": 0.5, "images": 20, "classes": 4},
    },
    "affinity": {
        "cosines": [[1.0, 0.5, -0.1], [0.5, 1.0, 0.2], [-0.1, 0.2, 1.0]],
        **{"classes": ["a", "b", "c"], "of_classes": 9, "mean": 0.2, "of": "proxies"},
    },
    "class_sizes": {
        **{"classes": ["a", "b", "c", "d"], "of_classes": 4, "trained": [2, 4, 9, 9]},
        **{"sizes": [2, 4, 9, 9], "recalls": [0.5, 0.25, 1.0, 0.8]},
    },
    "plane": {
        "classes": ["a", "b", "c"],
        "points": [[[0.9, 0.1]], [[0.2, 0.9]], [[0.6, 0.6]]],
        "proxies": [[1.0, 0.0], [0.0, 1.0]],
        **{"sure": [0.99, 0.4, 0.01, 0.6], "angle": 90.0, "unsure": 0.125, "dimensions": 2},
        "options": {"level": 0.9},
    },
    "single_step": {
        "before": [[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]],
        "after": [[0.5, 0.5], [0.9, 0.9], [2.0, 0.1]],
        "label": [0, 0, 1],
        "classes": ["a", "b"],
        "pictures": [picture(), picture()],
        "distances": [1.25, 0.5],
        "moved": [0.7, 0.1, 0.1],
        "options": {"rate": 0.1, "dark": 0.25},
    },
    "grad_cam": {
        "terms": ["metric", "split"],
        "rows": [
            {
                "picture": picture(),
                "class": "a",
                "maps": {"metric": [[0.0, 1.0], [0.5, 0.2]], "split": [[0.0, 0.0], [0.0, 0.0]]},
            }
        ],
    },
    "uncertainty": {
        "values": {"uncertainty_original": [0.1, 0.2, 0.3], "uncertainty_gap": [0.0, 0.1, 0.2]},
        "low": [{"picture": picture(), "class": "a", "value": 0.1}],
        "high": [{"picture": picture(), "class": "b", "value": 0.3}],
    },
}


def large_gallery() -> dict[str, Any]:
    """As many pictures a row as a gallery has at most, of names as long as some are."""
    rows = [
        {
            "query": picture(100 * at),
            "class": "Black-throated Blue Warbler",
            "rank": 3,
            "failed": at > 3,
            "near": [
                {**near(k % 2 > 0), "class": "Red-winged_Blackbird", "picture": picture(at + k)}
                for k in range(16)
            ],
        }
        for at in range(8)
    ]
    return {"rows": rows, "looked_at": 2048, "failing": 700}


def leave(uri: str, sweep_id: str, trials: Path, kinds: Mapping[str, Any] = READ) -> None:
    """As if all that a sweep's figures show had been read: into the trials' folders and MLflow."""
    frame, client = load_frame(uri, sweep_id), open_client(uri)
    for request in list_requested_views(frame, frame.recipe):
        view = View(request.name, request.kind, request.options)
        path = view.locate_file(trials / request.trial_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(kinds[request.kind]), encoding="utf-8")
        client.log_artifact(request.run_id, str(path), VIEWS)
