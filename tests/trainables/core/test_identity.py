"""What changes a trial's identity, and what does not."""

from __future__ import annotations

import json

import pytest

from trainables.core.identity import component_revisions, config_hash, identity_dump, trial_id
from trainables.losses.proxy_anchor import ProxyAnchor
from trainables.trial import TrialConfig


def test_where_files_lie_is_not_identity() -> None:
    here = TrialConfig(data={"name": "folder", "root": "/here"})
    there = TrialConfig(data={"name": "folder", "root": "/there"})
    assert config_hash(here, "f") == config_hash(there, "f")
    assert "root" not in identity_dump(here)["data"]
    json.dumps(identity_dump(here))


def test_everything_else_is() -> None:
    base = TrialConfig()
    hashes = {
        config_hash(base, "f"),
        config_hash(base, "g"),
        config_hash(TrialConfig(optimizer={"lr": 2e-4}), "f"),
        config_hash(TrialConfig(loss={"name": "proxy_anchor", "alpha": 16}), "f"),
        config_hash(TrialConfig(loss={"name": "normsoftmax"}), "f"),
        config_hash(TrialConfig(method={"name": "ddml"}), "f"),
        config_hash(TrialConfig(data={"split": {"seed": 1}}), "f"),
    }
    assert len(hashes) == 7


def test_writing_a_default_out_changes_nothing() -> None:
    spelt = TrialConfig(loss={"name": "proxy_anchor", "alpha": 32}, method={"name": "plain"})
    assert config_hash(spelt, "f") == config_hash(TrialConfig(), "f")
    again = TrialConfig.model_validate(json.loads(spelt.model_dump_json()))
    assert config_hash(again, "f") == config_hash(spelt, "f")


def test_a_revision_makes_another_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    config = TrialConfig()
    before = config_hash(config, "f")
    assert component_revisions(config)["loss.proxy_anchor"] == ProxyAnchor.REVISION
    monkeypatch.setattr(ProxyAnchor, "REVISION", ProxyAnchor.REVISION + 1)
    assert config_hash(config, "f") != before
    softmax = TrialConfig(loss={"name": "normsoftmax"})
    assert "loss.proxy_anchor" not in component_revisions(softmax)


def test_trial_id() -> None:
    assert trial_id("0123456789abcdef" * 4, 12) == "0123456789abcdef-s12"


def test_an_option_that_is_off_leaves_the_trial_what_it_was() -> None:
    dump = identity_dump(TrialConfig())
    assert "clip_norm" not in dump["training"] and "clip_value" in dump["training"]
    off = TrialConfig(training={"clip_value": None})
    assert config_hash(off, "f") != config_hash(TrialConfig(), "f")


def test_evaluation_that_is_as_ever_leaves_no_trace() -> None:
    assert "evaluation" not in identity_dump(TrialConfig())
    assert "evaluation" not in identity_dump(TrialConfig(evaluation={"restarts": 1}))
    several = TrialConfig(evaluation={"restarts": 5})
    assert identity_dump(several)["evaluation"] == {"restarts": 5}
    assert config_hash(several, "f") != config_hash(TrialConfig(), "f")


def test_folds_that_are_off_leave_the_trial_what_it_was() -> None:
    dump = identity_dump(TrialConfig())
    assert set(dump["data"]["split"]) == {"protocol", "order", "test", "validation", "seed"}
    contiguous = {"split": {"folds": 4, "fold": 1, "blocks": "contiguous"}}
    default = {"split": {"folds": 4, "fold": 1}}
    assert config_hash(TrialConfig(data=contiguous), "f") == config_hash(
        TrialConfig(data=default), "f"
    )
    other = {"split": {"folds": 4, "fold": 2}}
    assert config_hash(TrialConfig(data=other), "f") != config_hash(TrialConfig(data=default), "f")
