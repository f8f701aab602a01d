"""The guides' examples are run: their tests, plans of their sweeps, and trials with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ablate import guides
from tests.ablate.command import ROOT

PAGES = [guides.FOLDER / f"{name}.md" for name in ("design", "loss", "method")]
# A cell of each sweep, what makes it one of the guide's component, and all in little: an epoch of
# two steps. (The search over uniform waits for the one before it, whose best cell it ranks too.)
CELLS = {
    "deviance.yaml": ("losses/deviance", {}),
    "uniform.yaml": ("tune_plain/0000", {"method.name": "uniform"}),
    "rates.yaml": ("rates/optimizer.lr=0.001", {}),
}
LITTLE = {
    "backbone.name": "mobilenetv3_small_050",
    "backbone.weights": "none",
    "data.name": "digits",
    "data.image_size": "32",
    "training.epochs": "1",
    "training.batch_size": "96",
    "training.per_class": "32",
}

SCRIPT = """
import contextlib, io, json, sys
import pytest
from ablate.cli.main import main
from ablate.ledger.ledger import Ledger

tests, cells, little = json.loads(sys.argv[1])
told = {"tests": int(pytest.main(["-q", "-p", "no:cacheprovider", *tests])), "plans": {}}
for spec, (cell, more) in cells.items():
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = main(["run", spec, "--plan", "--out", "planned"])
    told["plans"][spec] = [code, said.getvalue()]
    options = [
        word for key, value in {**little, **more}.items()
        for word in ("--set", f"{key}={value}")
    ]
    assert main(["run", spec, "--cell", cell, "--device", "cpu", *options]) == 0, spec
with Ledger("runs/ledger.sqlite") as ledger:
    ids = [row["trial_id"] for row in ledger.query("SELECT trial_id FROM trials")]
    told["trials"] = [
        {"config": ledger.get_trial(name)["config"],
         "epochs": ledger.list_epochs(name)} for name in ids
    ]
print(json.dumps(told, default=str), file=open("told.json", "w"))
"""


@pytest.mark.slow
def test_the_examples_of_the_guides_run(tmp_path: Path) -> None:
    """In a process in which all guides' packages are installed."""
    installed = [path for page in PAGES for path in guides.install(page, tmp_path)]
    tests = [path.name for path in installed if path.name.startswith("test_")]
    assert {path.name for path in installed if path.suffix == ".yaml"} == set(CELLS)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps([tests, CELLS, LITTLE])],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=240,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [tmp_path, ROOT]))},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads((tmp_path / "told.json").read_text())
    # the tests that they show
    assert answer["tests"] == 0 and "5 passed" in done.stdout, done.stdout
    # plans of their sweeps
    for spec, (code, said) in answer["plans"].items():
        assert code == 0, f"{spec}: {said}"
    assert "from 0.000125 to 0.008" in answer["plans"]["rates.yaml"][1], "a design's own note"
    # trials with their components
    by_loss = {trial["config"]["loss"]["name"]: trial for trial in answer["trials"]}
    assert len(answer["trials"]) == len(by_loss) == 3
    deviance = by_loss["binomial_deviance"]["epochs"][0]["metrics"]
    assert deviance["term/metric/value"] > 0
    uniform = by_loss["normsoftmax"]
    assert uniform["config"]["method"]["name"] == "uniform"
    metrics = uniform["epochs"][0]["metrics"]
    assert metrics["term/uniform/value"] < 0, "the logarithm of a mean below 1"
    weight = uniform["config"]["method"]["weight"]
    assert metrics["term/uniform/weight"] == pytest.approx(weight)
    assert by_loss["proxy_anchor"]["config"]["optimizer"]["lr"] == 1e-3
