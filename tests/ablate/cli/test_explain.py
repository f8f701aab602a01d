"""`ablate explain`: its facts are the plan's and the ledger's."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import yaml

from ablate.cli.main import main
from ablate.ledger.records import Records
from ablate.results import build_result_rows, read_frame
from ablate.spec.read import read_spec
from tests.ablate import driven, specs

Captured = pytest.CaptureFixture[str]


def said(capsys: Captured, *words: str, code: int = 0) -> str:
    assert main(list(words)) == code
    seen = capsys.readouterr()
    assert not (seen.out if code else seen.err)
    return seen.err if code else seen.out


def test_a_spec_is_told_study_by_study_with_the_plan_s_facts(
    tmp_path: Path, capsys: Captured
) -> None:
    words = ("--out", str(tmp_path / "none"))
    text, plan = said(capsys, "explain", "ddml", *words), said(capsys, "plan", "ddml", *words)
    _, studies, classes, power, cost, warnings = text.split("\n\n")
    spec = read_spec("ddml").spec
    bullets = {line.split("`")[1]: line for line in studies.splitlines()[1:]}
    assert bullets.keys() == spec.studies.keys()
    for name, study in spec.studies.items():
        assert set(study.find_base_studies()) <= set(bullets[name].replace(".", " ").split()) | {
            word.rstrip(",;.:") for word in bullets[name].split()
        }
        assert f"{study.size} cells" in bullets[name]
    assert "method plain or ddml" in bullets["tuned"] and "mode frozen" in text
    assert "70 train, 30 validate, 100 test; no class does two" in classes
    judged = [name for name, study in spec.studies.items() if "test" in study.evaluate]
    assert f"They measure the networks of {', '.join(judged)}." in classes
    detects = [line.strip() for line in plan.splitlines() if "table detects" in line]
    assert len(detects) == 2 and all(line in power for line in detects)
    assert "tuned by 26 trials" in power and "about other seeds" in power
    assert "12 trials to run now and 132 later" in cost and warnings.endswith("- Nothing.\n")
    assert not (tmp_path / "none").exists()


def test_studies_of_a_template_are_told_once_with_what_differs(
    tmp_path: Path, capsys: Captured
) -> None:
    search = {"design": "search", "trials": 4}
    axes = {"optimizer.lr": {"low": 1e-4, "high": 1e-2}}
    margin = {"space": {"loss.margin": {"low": 0, "high": 0.5}}}
    losses = {name: {"trial": {"loss.name": name}} for name in ("normsoftmax", "proxy_anchor")}
    methods = {name: {"trial": {"method.name": name}} for name in ("plain", "ddml")}
    spec = {
        "name": "made",
        "factors": {"loss": losses, "method": methods},
        "studies": {
            "rates_{loss}": {
                "for": {"loss": {"normsoftmax": {}, "proxy_anchor": margin}},
                **search,
                "space": axes,
            },
            "tune_{method}_{loss}": {
                "for": ["method", "loss"],
                **search,
                "space": axes,
                "around": {"best_of": "rates_{loss}"},
            },
            "tune_ddml_proxy_anchor": {**search, "space": axes, "trials": 9},
            "again_{loss}": {
                "for": ["loss"],
                "design": "promote",
                "of": "tune_plain_{loss}",
                "best": 2,
                "seeds": [7],
            },
        },
    }
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    words = ("explain", str(tmp_path / "x.yaml"), "--out", str(tmp_path / "none"))
    studies = said(capsys, *words).split("\n\n")[1].splitlines()[1:]
    bullets = {line.split("`")[1]: line for line in studies}
    assert [*bullets] == ["rates_{loss}", "tune_{method}_{loss}", "again_{loss}"]
    rates, tune, again = bullets.values()
    assert "2 studies: loss normsoftmax, proxy_anchor" in rates
    assert "optimizer.lr, loss.margin (loss proxy_anchor) by" in rates and "margin" not in tune
    assert "4 studies" in tune and "best cell of rates_{loss}." in tune
    assert "9 cells (tune_ddml_proxy_anchor)" in tune  # no level singles this study out
    assert "4 cells of tune_plain_{loss}." in again
    # a template that makes one study is that study
    alone = said(capsys, *words, "--levels", "loss=normsoftmax")
    assert "`rates_normsoftmax` searches optimizer.lr by" in alone
    assert "`tune_{method}_{loss}` (2 studies: method plain, ddml; loss normsoftmax)" in alone


def test_test_classes_that_choose_are_not_called_innocent(tmp_path: Path, capsys: Captured) -> None:
    spec = {
        "name": "printed",
        "objective": "test/recall_at_1",
        "trial": {"data.split.protocol": "paper", "method.name": "ddml"},
        "studies": {
            "tune": {"design": "search", "trials": 2, "space": specs.SPACE, "splits_seen": "allow"},
            "again": {
                "design": "grid",
                "around": {"best_of": "tune"},
                "grid": {"loss.name": ["contrastive"]},
            },
        },
    }
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(spec))
    text = said(capsys, "explain", str(tmp_path / "x.yaml"), "--out", str(tmp_path / "none"))
    assert "Test classes choose the epoch" in text and "choose nothing" not in text
    assert "without a verdict" in text


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("out")
    driven.run(specs.plan(), folder)
    return folder


def test_a_trial_is_told_by_whom_and_from_which_results_it_was_proposed(
    out: Path, capsys: Captured
) -> None:
    with Records(out / "ledger.sqlite") as records:
        frame = pd.DataFrame(build_result_rows(read_frame(records, specs.plan().sweep_id)))
    tune = frame[frame["study"] == "tune"].set_index("idx")
    for idx, row in tune.iterrows():
        text = said(capsys, "explain", row["trial_id"][:12], "--out", str(out))
        known = tune.loc[[i for i in tune.index if i < idx // 3 * 3]]
        assert f"sampler tpe proposed it as number {idx + 1} of 6" in text
        assert f"results of {len(known)} earlier proposals" in text
        assert ("at random until it knows 3 results" in text) == known.empty
        if not known.empty:
            best = known.loc[known["val/map_at_r"].idxmax(), "cell"]
            assert f"The best of them by val/map_at_r was {best}." in text
    for trial_id, rows in frame.groupby("trial_id"):
        text = said(capsys, "explain", str(trial_id), "--out", str(out))
        assert all(
            f"{row['study']}/{row['cell']}@{row['seed']}" in text for _, row in rows.iterrows()
        )
        assert (f"These {len(rows)} cells" in text) == (len(rows) > 1)
    row = frame[frame["study"] == "rows"].iloc[0]
    assert "chosen by tune (6 trials)" in said(
        capsys, "explain", row["trial_id"], "--out", str(out)
    )


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("ffff0000ffff", "TRIAL: no trial's id begins with 'ffff0000ffff'"),
        (
            "ddmll",
            "ddmll: No such file or recipe exists. Did you mean 'ddml'?",
        ),
        ("12 3.yaml", "`ablate new --help` lists the recipes."),
    ],
)
def test_what_is_neither_is_one_line(word: str, line: str, out: Path, capsys: Captured) -> None:
    text = said(capsys, "explain", word, "--out", str(out), code=2)
    assert line in text and text.count("\n") == 1
