"""The committed list of hashes is that of the source, and its writer refuses what is not proven."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.trainables import renew_digests, ten_steps
from tests.trainables.renew_digests import Refused, changed, renewed, unproven
from trainables.core import components, source_digests

RENEW = "run `make golden`: it proves that the numbers are the same, or refuses"
RELATIVE = 1e-3  # between processors; 1.2e-5 between AVX-512 and plain instructions


def test_the_list_is_of_this_source() -> None:
    listed = json.loads(source_digests.DIGESTS_FILE.read_text())
    newest = {name: (entry["revision"], entry["hashes"][-1]) for name, entry in listed.items()}
    expected = {
        name: (components.get_revision(name), source_digests.component_digest(name)[0])
        for name in ten_steps.every_component()
    }
    assert newest == expected, RENEW


@pytest.mark.slow
def test_ten_steps_give_the_stored_numbers(tmp_path: Path) -> None:
    stored: dict[str, list[float]] = json.loads(ten_steps.NUMBERS.read_text())
    trials = ten_steps.trials()
    assert set(stored) == set(trials), RENEW
    for name, proof in trials.items():
        found = proof(tmp_path)
        told = [*found["losses"], found["moved"]]
        assert told == pytest.approx(stored[name], rel=RELATIVE), name


def test_proven_hashes_are_one_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    current, _ = source_digests.component_digest("optimizer")
    path = tmp_path / "digests.json"
    monkeypatch.setattr(source_digests, "DIGESTS_FILE", path)

    def one_code(revision: str, *hashes: str | None) -> set[str]:
        path.write_text(json.dumps({"optimizer": {"revision": revision, "hashes": hashes}}))
        source_digests._read_equal_digests.cache_clear()
        return source_digests.equal_digests("optimizer", [("x", "older")])

    try:
        assert one_code("1", "old", "older", current) == {"old", "older", current, "x"}
        assert one_code("2", "old", current) == {current}  # of another REVISION
        assert one_code("1", "old", "older") == {current}  # the list is not of this source
        path.unlink()  # installed without the file
        source_digests._read_equal_digests.cache_clear()
        assert source_digests.equal_digests("optimizer") == {current}
    finally:
        source_digests._read_equal_digests.cache_clear()


def now(**changes: Any) -> dict[str, Any]:
    """A measurement of three components, each with one proof."""
    found: dict[str, Any] = {
        "components": {"core": ["1", "c"], "loss.a": ["1", "a"], "method.b": ["1", "b"]},
        "proofs": {
            "loss.a": {"losses": [1.0]},
            "method.b": {"losses": [2.0]},
            "finetuned": {"losses": [3.0]},
        },
    }
    for path, value in changes.items():
        kind, _, name = path.partition("__")
        found[kind][name.replace("_", ".")] = value
    return found


LISTED = renewed({}, now())


def test_a_new_component_or_revision_starts_a_list() -> None:
    assert LISTED["loss.a"] == {"revision": "1", "hashes": ["a"]}
    raised = now(components__loss_a=["2", "x"])
    assert changed(LISTED, raised) == []
    assert renewed(LISTED, raised)["loss.a"] == {"revision": "2", "hashes": ["x"]}
    all_raised = now(components__core=["2", "x"], components__loss_a=["1", "y"])
    assert changed(LISTED, all_raised) == []  # every trial has another id
    assert renewed(LISTED, all_raised)["loss.a"]["hashes"] == ["y"]


def test_another_hash_at_the_same_revision_needs_equal_numbers() -> None:
    other = now(components__loss_a=["1", "x"])
    assert changed(LISTED, other) == ["loss.a"]
    assert unproven(now(), other) == []
    assert renewed(LISTED, other)["loss.a"]["hashes"] == ["a", "x"]
    wrong = now(components__loss_a=["1", "x"], proofs__loss_a={"losses": [1.0 + 2**-52]})
    assert unproven(now(), wrong) == ["loss.a"]


def test_a_method_may_observe_more_at_the_same_revision_but_nothing_else() -> None:
    before = now(proofs__loss_a={"losses": [1.0], "observed": [{"observed/a": 1.0}]})
    more = [{"observed/a": 1.0, "observed/b": 2.0}]
    assert unproven(before, now(proofs__loss_a={"losses": [1.0], "observed": more})) == []
    for other in (
        {"losses": [2.0], "observed": more},
        {"losses": [1.0], "observed": [{"observed/a": 1.5, "observed/b": 2.0}]},
        {"losses": [1.0], "observed": [{"observed/b": 2.0}]},
        {"losses": [1.0], "observed": [*more, {}]},
    ):
        assert unproven(before, now(proofs__loss_a=other)) == ["loss.a"]


def test_a_new_metric_changes_no_number_and_one_that_is_gone_does() -> None:
    def read(**metrics: float) -> dict[str, Any]:
        return {"components": {}, "proofs": {"evaluation": {"cosine": metrics}}}

    before = read(nmi=0.5, f1=0.25)
    assert unproven(before, read(nmi=0.5, f1=0.25, mine=1.0)) == []
    for other in (read(nmi=0.5), read(nmi=0.5, f1=0.375), read(nmi=0.5, mine=0.25)):
        assert unproven(before, other) == ["evaluation"]
    another = read(nmi=0.5, f1=0.25)
    another["proofs"]["evaluation"]["dot"] = {"nmi": 0.5}
    assert unproven(before, another) == ["evaluation"]


def test_all_trials_prove_but_those_that_a_revision_tells_apart() -> None:
    core = now(components__core=["1", "x"], proofs__finetuned={"losses": [4.0]})
    assert unproven(now(), core) == ["finetuned"]
    loss = {"proofs__loss_a": {"losses": [9.0]}}
    assert unproven(now(), now(**loss)) == ["loss.a"]
    assert unproven(now(), now(**loss, components__loss_a=["2", "y"])) == []


def test_the_writer_refuses_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, numbers = tmp_path / "digests.json", tmp_path / "ten_steps.json"
    monkeypatch.setattr(renew_digests, "LISTED", listed)
    monkeypatch.setattr(renew_digests, "NUMBERS", numbers)
    monkeypatch.setattr(renew_digests, "unpacked", lambda commit, folder: folder)
    code = {"now": now(), "before": now()}
    for proof in ("now", "before"):
        for each in code[proof]["proofs"].values():
            each["moved"] = 1.0
    monkeypatch.setattr(
        renew_digests,
        "measured",
        lambda root: code["now" if root == renew_digests.ROOT else "before"],
    )
    assert "3 listed" in renew_digests.renew("HEAD")
    text = listed.read_text()
    code["now"]["components"]["loss.a"] = ["1", "x"]
    code["now"]["proofs"]["loss.a"]["losses"] = [1.5]
    with pytest.raises(Refused, match=r"source of loss\.a differs .*numbers of loss\.a\. Raise"):
        renew_digests.renew("HEAD")
    assert listed.read_text() == text
    code["now"]["proofs"]["loss.a"]["losses"] = [1.0]
    code["before"]["components"]["loss.a"] = ["1", "x"]  # the change is in HEAD already
    with pytest.raises(Refused, match="--before"):
        renew_digests.renew("HEAD")
    code["before"]["components"]["loss.a"] = ["1", "a"]
    assert "1 proven equal (loss.a)" in renew_digests.renew("HEAD")
    assert json.loads(listed.read_text())["loss.a"]["hashes"] == ["a", "x"]
