"""A small made-up sweep in a real ledger and a real MLflow store.

Metrics are smooth functions of the configuration plus seeded noise; no training happens. The
store is built once a session and copied to each test that changes it.
"""

from __future__ import annotations

import hashlib
import itertools
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ablate.ledger.ledger import Ledger, Owner
from ablate.tracking.sync import MlflowTracker
from ablate.tracking.tracker import TrackerThread
from trainables.words.paths import flatten_paths

SWEEP = "0123456789ab"
ALPHAS, GAMMAS = [1e-3, 1e-2, 1e-1], [1e-7, 1e-5, 1e-3]
COMPONENTS = ("agnostic", "specific", "split")
REPORT: dict[str, Any] = {
    "tables": [
        {
            "kind": "components",
            "study": "table4",
            "title": "Components of DDML",
            "metrics": ["test/recall_at_1", "val/map_at_r"],
            "published": {"table": "ddml/table4", "columns": {"test/recall_at_1": "CUB/R@1"}},
        },
        {
            "kind": "compare",
            "study": "tuned",
            "title": "Both at their own best",
            "metrics": ["test/recall_at_1", "test/map_at_r"],
            "baseline": "NormSoftmax",
            "published": {
                "table": "ddml/table1",
                "columns": {"test/recall_at_1": "CUB/R@1"},
                "rows": {"NormSoftmax": "NS", "DDML (+NormSoftmax)": "DDML(+NS)"},
            },
        },
        {"kind": "search", "study": "tune", "title": "Search", "top": 4},
    ],
    "heatmaps": [
        {"study": "grid", "x": "method.gamma", "y": "method.alpha", "title": "Fig. 4b"},
    ],
    "curves": [{"studies": ["tuned"], "title": "Validation MAP@R"}],
    "best": ["tune"],
}


def cells(seeds: int) -> list[dict[str, Any]]:
    """Every cell of the made-up sweep: study, cell, coords, idx, seed."""
    planned: list[dict[str, Any]] = []

    def put(study: str, idx: int, coords: dict[str, Any], repeats: int, cell: str) -> None:
        planned.extend(
            {"study": study, "cell": cell, "coords": coords, "idx": idx, "seed": seed}
            for seed in range(repeats)
        )

    for i in range(6):
        lr = round(10 ** (-4 + i / 3), 7)
        put("tune", i, {"optimizer.lr": lr, "method.alpha": 0.1 * (i + 1)}, 1, f"{i:04d}")
    for i, levels in enumerate(itertools.product(["on", "off"], repeat=3)):
        coords = dict(zip(COMPONENTS, levels, strict=True))
        put("table4", i, coords, seeds, ",".join(f"{k}={v}" for k, v in coords.items()))
    for i, variant in enumerate(["NormSoftmax", "DDML (+NormSoftmax)"]):
        put("tuned", i, {"variant": variant}, seeds, variant)
    for i, (a, g) in enumerate(itertools.product(ALPHAS, GAMMAS)):
        coords = {"method.alpha": a, "method.gamma": g}
        put("grid", i, coords, min(seeds, 2), ",".join(f"{k}={v}" for k, v in coords.items()))
    return planned


def config(cell: dict[str, Any]) -> dict[str, Any]:
    """A nested config that depends on the coordinates, so that cells have their own trials."""
    c = cell["coords"]
    full = cell["study"] == "tuned" and c["variant"] != "NormSoftmax"
    weights = {
        "alpha": c.get("method.alpha", 0.5 if full or c.get("agnostic") == "on" else 0.0),
        "beta": 0.3 if full or c.get("specific") == "on" else 0.0,
        "gamma": c.get("method.gamma", 1e-5 if full or c.get("split") == "on" else 0.0),
    }
    plain = cell["study"] == "tuned" and not full
    return {
        "data": {"name": "typefaces", "image_size": 128, "split": {"protocol": "held_out"}},
        "backbone": {"name": "tf_efficientnet_lite0", "mode": "frozen"},
        "loss": {"name": "normsoftmax", "temperature": 0.05},
        "method": {"name": "plain"} if plain else {"name": "ddml", **weights},
        "optimizer": {"lr": c.get("optimizer.lr", 1e-3), "betas": [0.9, 0.999]},
        "training": {"epochs": 4},
    }


@dataclass
class Sweep:
    """Where the made-up sweep lies."""

    folder: Path

    @property
    def ledger_path(self) -> Path:
        return self.folder / "ledger.sqlite"

    @property
    def uri(self) -> str:
        return f"sqlite:///{self.folder}/mlflow.db"

    sweep_id: str = SWEEP

    def plan(
        self, seeds: int = 3, report: dict[str, Any] | None = None, studies: tuple[str, ...] = ()
    ) -> list[str]:
        """Put the sweep and its cells (of some studies alone) into the ledger; return the trial
        ids, in order."""
        with Ledger(self.ledger_path) as ledger:
            spec = {
                "name": "ddml",
                "title": "A made-up sweep",
                "objective": "val/map_at_r",
                "studies": {
                    "tune": {
                        **{"design": "search", "sampler": "tpe", "trials": 6, "space": {}},
                        **{"round": 4, "startup": 8},
                    },
                    "table4": {"design": "components"},
                    "tuned": {"design": "compare"},
                    "grid": {"design": "grid"},
                },
                "report": REPORT if report is None else report,
            }
            provenance = {
                "git_commit": "c0ffee" * 6 + "c0ff",
                "git_dirty": False,
                "versions": {"torch": "2.15.0", "ray": "2.60.0", "ablate": "0.1.0"},
                "study_order": ["tune", "table4", "tuned", "grid"],
            }
            ledger.put_sweep(self.sweep_id, "ddml", spec, provenance)
            rows = []
            for cell in cells(seeds):
                if not studies or cell["study"] in studies:
                    key = repr(sorted(flatten_paths(config(cell)).items()))
                    trial_id = f"{hashlib.sha256(key.encode()).hexdigest()[:16]}-s{cell['seed']}"
                    rows.append({**cell, "trial_id": trial_id})
            ledger.put_cells(self.sweep_id, rows)
        return list(dict.fromkeys(row["trial_id"] for row in rows))

    def finish(self, trial_ids: list[str], *, epochs: int = 4, final: bool = True) -> None:
        """Make trials run to their end (or, without `final`, to their last epoch) in the ledger."""
        with Ledger(self.ledger_path) as ledger:
            by_trial = {cell["trial_id"]: cell for cell in ledger.list_cells(self.sweep_id)}
            for trial_id in trial_ids:
                cell = by_trial[trial_id]
                settings = config(cell)
                ledger.claim(
                    trial_id, trial_id[:16] * 4, cell["seed"], settings, Owner.from_this_process()
                )
                level = quality(settings)
                noise = np.random.default_rng([int(trial_id[:8], 16), cell["seed"]])
                events = []
                for epoch in range(1, epochs + 1):
                    value = level * (1 - 0.5**epoch) + 0.004 * noise.standard_normal()
                    metrics = {
                        **{"val/map_at_r": value, "best/val/map_at_r": value},
                        **{"train/loss": 3 * 0.7**epoch, "lr/head": 1e-3, "time/epoch_s": 0.1},
                        **{"term/metric/value": 2.0, "term/metric/weight": 1.0},
                    }
                    spent = {"epoch": epoch, "steps": 10 * epoch, "seconds": 0.1 * epoch}
                    events.append({**spent, "metrics": metrics})
                ledger.record_epochs(trial_id, events)
                if final:
                    ledger.record_final(trial_id, final_event(level, value, epochs, noise))

    def fail(self, trial_id: str, reason: str) -> None:
        self.finish([trial_id], epochs=1, final=False)
        with Ledger(self.ledger_path) as ledger:
            ledger.release(trial_id, "failed", reason)

    def tracker(self, uri: str | None = None, **options: Any) -> TrackerThread:
        remedy = {"remedy": options.pop("remedy")} if "remedy" in options else {}
        mlflow = MlflowTracker(uri or self.uri, **remedy)
        return TrackerThread(self.ledger_path, mlflow, self.sweep_id, **options)

    def track(self, uri: str | None = None) -> None:
        """Everything that the ledger has, into the store."""
        tracker = self.tracker(uri)
        tracker.start()
        assert tracker.close()


def quality(settings: dict[str, Any]) -> float:
    """A made-up level of MAP@R for a config."""
    method = settings["method"]
    gain = 0.02 * min(method.get("alpha", 0), 1) + 0.05 * method.get("beta", 0)
    rate = abs(np.log10(settings["optimizer"]["lr"]) + 3)
    split = abs(np.log10(max(method.get("gamma", 1e-5), 1e-9)) + 5)
    return float(0.6 + gain - 0.01 * rate - 0.004 * split)


def final_event(level: float, value: float, epochs: int, noise: Any) -> dict[str, Any]:
    def split(shift: float) -> dict[str, float]:
        recall = level + 0.2 + shift + 0.005 * noise.standard_normal()
        return {"map_at_r": value + shift, "recall_at_1": recall, "nmi": 0.9 + shift}

    return {
        **{"epochs": epochs, "best_epoch": epochs, "steps": 10 * epochs, "seconds": 0.1 * epochs},
        "evaluations": {"val": {**split(0.0), "map_at_r": value}, "test": split(-0.05)},
        **{"evaluator": "retrieval-1", "export": "best.safetensors"},
        "provenance": {
            **{"device": "cpu", "threads": 1, "torch": "2.15.0", "resumed_from_epoch": None},
            **{"data_fingerprint": "feedbeef" * 4, "steps_this_process": 10 * epochs},
        },
    }


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with its tables and nothing in it: making one costs seconds."""
    from ablate.tracking.store import open_store

    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    open_store(f"sqlite:///{path}")
    return path


@pytest.fixture
def sweep(tmp_path: Path, empty_store: Path) -> Sweep:
    """A fresh, unplanned sweep beside an empty store."""
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    return Sweep(tmp_path)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Sweep:
    """A finished sweep with one failed and one missing trial; tests must not change it."""
    folder = tmp_path_factory.mktemp("finished")
    shutil.copy(empty_store, folder / "mlflow.db")
    settings = Sweep(folder)
    trials = settings.plan(seeds=3)
    settings.fail(trials[3], "term `split` is not finite at epoch 2")
    settings.finish([trial for i, trial in enumerate(trials) if i not in (3, len(trials) - 1)])
    settings.track()
    return settings
