"""The committed list of hashes is that of the source, and its writer refuses what is not proven."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.trainables import renew_digests, ten_steps
from tests.trainables.renew_digests import Refused, changed, renewed, unproven
from trainables.core import components

RENEW = "run `make golden`: it proves that the numbers are the same, or refuses"
RELATIVE = 1e-3  # between processors; 1.2e-5 between AVX-512 and plain instructions


def test_the_list_is_of_this_source() -> None:
    listed = json.loads(components.DIGESTS_FILE.read_text())
    newest = {name: (entry["revision"], entry["hashes"][-1]) for name, entry in listed.items()}
    expected = {
        name: (components.get_revision(name), components.compute_component_digest(name)[0])
        for name in ten_steps.every_component()
    }
    assert newest == expected, RENEW


@pytest.mark.slow
def test_ten_steps_give_the_stored_numbers(tmp_path: Path) -> None:
    stored: dict[str, list[float]] = json.loads(ten_steps.NUMBERS.read_text())
    trials = ten_steps.trials()
    assert set(stored) == set(trials), RENEW
    for name, proof in trials.items():
        actual = proof(tmp_path)
        reports = [*actual["losses"], actual["moved"]]
        assert reports == pytest.approx(stored[name], rel=RELATIVE), name


def test_proven_hashes_are_one_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    current, _ = components.compute_component_digest("optimizer")
    path = tmp_path / "digests.json"
    monkeypatch.setattr(components, "DIGESTS_FILE", path)

    def one_code(revision: str, *hashes: str | None) -> set[str]:
        path.write_text(json.dumps({"optimizer": {"revision": revision, "hashes": hashes}}))
        components._read_equal_digests.cache_clear()
        return components.list_equal_digests("optimizer", [("x", "older")])

    try:
        assert one_code("1", "old", "older", current) == {"old", "older", current, "x"}
        assert one_code("2", "old", current) == {current}  # of another REVISION
        assert one_code("1", "old", "older") == {current}  # the list is not of this source
        path.unlink()  # installed without the file
        components._read_equal_digests.cache_clear()
        assert components.list_equal_digests("optimizer") == {current}
    finally:
        components._read_equal_digests.cache_clear()


def now(**changes: Any) -> dict[str, Any]:
    """A measurement of three components, each with one proof."""
    actual: dict[str, Any] = {
        "components": {"core": ["1", "c"], "loss.a": ["1", "a"], "method.b": ["1", "b"]},
        "proofs": {
            "loss.a": {"losses": [1.0]},
            "method.b": {"losses": [2.0]},
            "finetuned": {"losses": [3.0]},
        },
    }
    for path, value in changes.items():
        kind, _, name = path.partition("__")
        actual[kind][name.replace("_", ".")] = value
    return actual


LISTED = renewed({}, now())


MORE = [{"observed/a": 1.0, "observed/b": 2.0}]


@pytest.mark.parametrize(
    ("proof", "is_proven"),
    [
        ({"losses": [1.0], "observed": MORE}, True),  # a method may observe more
        ({"losses": [1.0 + 2**-52], "observed": MORE}, False),
        ({"losses": [1.0], "observed": [{"observed/a": 1.5, "observed/b": 2.0}]}, False),
        ({"losses": [1.0], "observed": [{"observed/b": 2.0}]}, False),
        ({"losses": [1.0], "observed": [*MORE, {}]}, False),
    ],
)
def test_another_hash_at_the_same_revision_needs_equal_numbers(
    proof: dict[str, Any], is_proven: bool
) -> None:
    before = now(proofs__loss_a={"losses": [1.0], "observed": [{"observed/a": 1.0}]})
    other = now(components__loss_a=["1", "x"], proofs__loss_a=proof)
    assert changed(LISTED, other) == ["loss.a"]
    assert unproven(before, other) == ([] if is_proven else ["loss.a"])
    assert renewed(LISTED, other)["loss.a"]["hashes"] == ["a", "x"]
    raised = now(components__loss_a=["2", "y"], proofs__loss_a=proof)
    assert unproven(before, raised) == []


def test_the_writer_refuses_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, numbers = tmp_path / "digests.json", tmp_path / "ten_steps.json"
    monkeypatch.setattr(renew_digests, "LISTED", listed)
    monkeypatch.setattr(renew_digests, "NUMBERS", numbers)
    monkeypatch.setattr(renew_digests, "unpacked", lambda commit, folder: folder)
    code = {"now": now(), "before": now()}
    for proof in ("now", "before"):
        for item in code[proof]["proofs"].values():
            item["moved"] = 1.0
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
