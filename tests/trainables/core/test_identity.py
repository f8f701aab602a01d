"""What changes a trial's identity, and what does not."""

from __future__ import annotations

import json

import pytest

from trainables.core.identity import (
    collect_component_revisions,
    compute_config_hash,
    dump_identity,
)
from trainables.losses.proxy_anchor import ProxyAnchor
from trainables.trial import TrialConfig


def test_where_files_lie_is_not_identity() -> None:
    parent_end = TrialConfig(data={"name": "folder", "root": "/here"})
    there = TrialConfig(data={"name": "folder", "root": "/there"})
    assert compute_config_hash(parent_end, "f") == compute_config_hash(there, "f")
    assert "root" not in dump_identity(parent_end)["data"]
    json.dumps(dump_identity(parent_end))


def test_everything_else_is() -> None:
    base = TrialConfig()
    hashes = {
        compute_config_hash(base, "f"),
        compute_config_hash(base, "g"),
        compute_config_hash(TrialConfig(optimizer={"lr": 2e-4}), "f"),
        compute_config_hash(TrialConfig(loss={"name": "proxy_anchor", "alpha": 16}), "f"),
        compute_config_hash(TrialConfig(loss={"name": "normsoftmax"}), "f"),
        compute_config_hash(TrialConfig(method={"name": "ddml"}), "f"),
        compute_config_hash(TrialConfig(data={"split": {"seed": 1}}), "f"),
    }
    assert len(hashes) == 7


def test_writing_a_default_out_changes_nothing() -> None:
    spelt = TrialConfig(loss={"name": "proxy_anchor", "alpha": 32}, method={"name": "plain"})
    assert compute_config_hash(spelt, "f") == compute_config_hash(TrialConfig(), "f")
    again = TrialConfig.model_validate(json.loads(spelt.model_dump_json()))
    assert compute_config_hash(again, "f") == compute_config_hash(spelt, "f")


def test_a_revision_makes_another_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    config = TrialConfig()
    before = compute_config_hash(config, "f")
    assert collect_component_revisions(config)["loss.proxy_anchor"] == ProxyAnchor.REVISION
    monkeypatch.setattr(ProxyAnchor, "REVISION", ProxyAnchor.REVISION + 1)
    assert compute_config_hash(config, "f") != before
    softmax = TrialConfig(loss={"name": "normsoftmax"})
    assert "loss.proxy_anchor" not in collect_component_revisions(softmax)


def test_an_option_that_is_off_leaves_the_trial_what_it_was() -> None:
    dump = dump_identity(TrialConfig())
    assert "clip_norm" not in dump["training"] and "clip_value" in dump["training"]
    off = TrialConfig(training={"clip_value": None})
    assert compute_config_hash(off, "f") != compute_config_hash(TrialConfig(), "f")


def test_evaluation_that_is_as_ever_leaves_no_trace() -> None:
    assert "evaluation" not in dump_identity(TrialConfig())
    assert "evaluation" not in dump_identity(TrialConfig(evaluation={"restarts": 1}))
    several = TrialConfig(evaluation={"restarts": 5})
    assert dump_identity(several)["evaluation"] == {"restarts": 5}
    assert compute_config_hash(several, "f") != compute_config_hash(TrialConfig(), "f")


def test_folds_that_are_off_leave_the_trial_what_it_was() -> None:
    dump = dump_identity(TrialConfig())
    assert set(dump["data"]["split"]) == {"protocol", "order", "test", "validation", "seed"}
    contiguous = {"split": {"folds": 4, "fold": 1, "blocks": "contiguous"}}
    default = {"split": {"folds": 4, "fold": 1}}
    assert compute_config_hash(TrialConfig(data=contiguous), "f") == compute_config_hash(
        TrialConfig(data=default), "f"
    )
    other = {"split": {"folds": 4, "fold": 2}}
    assert compute_config_hash(TrialConfig(data=other), "f") != compute_config_hash(
        TrialConfig(data=default), "f"
    )
