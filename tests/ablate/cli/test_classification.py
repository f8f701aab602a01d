"""A sweep of classification through the command: tuned, compared and reported by accuracy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from ablate.ledger.ledger import Ledger
from tests.ablate.command import ablate_run
from tests.trainables.core.digits_case import SMALL

ISM = {"name": "idml", "mixing": "feature_mixup", "originals": "replaced", "uncertainty_dim": 8}
SPEC = {
    "name": "told",
    "seeds": 2,
    "objective": "val/top_1_accuracy",
    "trial": SMALL,
    "studies": {
        "tune": {
            "design": "search",
            "trials": 2,
            "seeds": 1,
            "space": {"optimizer.lr": {"low": 1e-3, "high": 1e-1, "log": True}},
        },
        "judged": {
            "design": "compare",
            "around": {"best_of": "tune"},
            "evaluate": ["val", "test"],
            "variants": {
                "plain": {"trial": {"method": {"name": "plain"}}},
                "ISM": {"trial": {"method": {**ISM, "tau": 1.0}}},
            },
        },
    },
    "report": {
        "tables": [
            {
                "kind": "compare",
                "study": "judged",
                "metrics": ["val/top_1_accuracy", "test/top_1_accuracy", "test/top_5_accuracy"],
            }
        ],
        "curves": [{"studies": ["judged"], "metric": "val/top_1_accuracy"}],
    },
}


@pytest.mark.slow
@pytest.mark.usefixtures("preloaded_trials")
def test_a_sweep_from_its_file_to_its_report(tmp_path: Path) -> None:
    (tmp_path / "told.yaml").write_text(yaml.safe_dump(SPEC, sort_keys=False))
    done = ablate_run(tmp_path, "told.yaml", "--out", "runs")
    assert done.returncode == 0, done.stdout + done.stderr
    with Ledger(tmp_path / "runs" / "ledger.sqlite") as ledger:
        trials = ledger.query("SELECT status FROM trials")
    assert {row["status"] for row in trials} == {"done"} and len(trials) == 6 - 1  # one is shared
    configs = (tmp_path / "runs" / "trials").glob("*/config.json")
    assert {json.loads(path.read_text())["config"]["task"] for path in configs} == {
        "classification"
    }
    (report,) = (tmp_path / "runs" / "reports").glob("told-*/report.md")
    text = report.read_text()
    assert "top-1 accuracy, test" in text.lower()
    assert "MAP@R" not in text and "Recall@" not in text
    assert "picked on validation images" in text and "validation classes" not in text
