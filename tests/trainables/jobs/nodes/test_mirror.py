"""A trial's folder and its copy in storage, as two nodes see it that share nothing else."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from ablate.storage.store import Storage, StorageError
from trainables.jobs.nodes import mirror
from trainables.jobs.nodes.mirror import Mirror, Vanished
from trainables.jobs.nodes.store import Listed

NAME = "trials/0123456789abcdef-s0"


class Node:
    """One node's end of it."""

    def __init__(self, there: Path, folder: Path) -> None:
        self.there, self.folder = there, folder
        folder.mkdir(parents=True, exist_ok=True)

    def mirror(self) -> Mirror:
        return Mirror(Storage(str(self.there)), NAME, self.folder, "there")

    def write(self, *names: str, text: str = "") -> None:
        for name in names:
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text or name)

    def begun_by(self, code: str, evaluator: str = "one") -> None:
        text = json.dumps({"core": code, "evaluator": evaluator})
        self.write("source.json", text=text)

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()

    def names(self) -> list[str]:
        return sorted(
            path.relative_to(self.folder).as_posix()
            for path in self.folder.rglob("*")
            if path.is_file() and not path.name.startswith(".")
        )


@pytest.fixture
def nodes(tmp_path: Path) -> tuple[Node, Node]:
    return Node(tmp_path / "there", tmp_path / "a"), Node(tmp_path / "there", tmp_path / "b")


def stored(node: Node) -> list[str]:
    return sorted(Storage(str(node.there)).listed(NAME))


def test_another_node_goes_on_from_the_newest_checkpoint(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    a.write("checkpoints/best-000001.pt", "checkpoints/steps-0000000010-best-000001.pt")
    a.write("source.json", "trial.log", ".lock", "job.json", "checkpoints/.steps-2.pt.7.tmp")
    a.mirror().close()
    kept = ["checkpoints/best-000001.pt", "checkpoints/steps-0000000010-best-000001.pt"]
    assert stored(a) == [*kept, "source.json", "trial.log"]
    there = b.mirror()
    there.fetch()
    assert b.names() == stored(a)
    # b goes on: a newer state takes the place of the one that it has fetched.
    b.write("checkpoints/steps-0000000020-best-000001.pt")
    (b.folder / kept[1]).unlink()
    there.close()
    assert stored(a) == [kept[0], "checkpoints/steps-0000000020-best-000001.pt", *stored(a)[2:]]


def test_a_node_that_comes_back_takes_nothing_from_the_one_that_is_ahead(
    nodes: tuple[Node, Node],
) -> None:
    a, b = nodes
    a.write("checkpoints/steps-0000000010-best-000000.pt")
    orphan = a.mirror()
    orphan.close()
    there = b.mirror()
    there.fetch()
    b.write("checkpoints/steps-0000000030-best-000000.pt")
    there.close()
    a.write("checkpoints/steps-0000000020-best-000000.pt")
    (a.folder / "checkpoints/steps-0000000010-best-000000.pt").unlink()
    a.mirror().close()  # as an attempt of the same node that knows what it has put
    newest = [name for name in stored(b) if "steps-" in name][-1]
    assert newest.endswith("steps-0000000030-best-000000.pt")


def test_of_a_trial_that_has_ended_come_weights_and_of_another_checkpoints(
    nodes: tuple[Node, Node],
) -> None:
    a, b = nodes
    a.write("checkpoints/best-000001.pt", "best.safetensors", "config.json")
    a.mirror().close()
    b.mirror().fetch()
    assert b.names() == ["checkpoints/best-000001.pt", "config.json"]
    a.write("final.json")
    a.mirror().close()
    b.mirror().fetch()
    assert "best.safetensors" in b.names() and "final.json" in b.names()


def test_what_another_node_has_added_is_taken_and_what_was_not_stored_is_kept(
    nodes: tuple[Node, Node],
) -> None:
    a, b = nodes
    a.write("final.json", text="first")
    a.mirror().close()
    there = b.mirror()
    there.fetch()
    b.write("final.json", text="first and second")
    there.close()
    a.mirror().fetch()
    assert (a.folder / "final.json").read_text() == "first and second"
    a.write("final.json", text="a third, of which nobody else knows")
    a.mirror().fetch()
    assert "third" in (a.folder / "final.json").read_text()


def test_names_from_storage_stay_in_the_folder(nodes: tuple[Node, Node], tmp_path: Path) -> None:
    a, b = nodes
    a.write("config.json")
    a.mirror().close()

    class Lying(Storage):
        def listed(self, folder: str) -> dict[str, Listed]:
            one = next(iter(super().listed(folder).values()))
            names = (
                "../../out.json",
                "/out.json",
                "checkpoints/../../out.json",
                "deep/er/out.json",
            )
            return dict.fromkeys((*names, "config.json"), one)

        def get(self, name: str, path: Path) -> bool:
            return super().get(f"{NAME}/config.json", path)

    Mirror(Lying(str(b.there)), NAME, b.folder, "there").fetch()
    assert b.names() == ["config.json"]
    assert not list(tmp_path.rglob("out.json"))


def test_stale_drafts_of_the_trial_go_and_young_ones_stay(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    place = b.there / NAME
    place.mkdir(parents=True)
    for name, age in (("x.1.tmp", mirror.DRAFT_SECONDS + 60), ("x.2.tmp", 0)):
        (place / name).write_text("cut")
        os.utime(place / name, (time.time() - age,) * 2)
    a.mirror().fetch()
    assert stored(a) == ["x.2.tmp"] and a.names() == []


def test_checkpoints_are_there_soon_after_they_are_here(
    nodes: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "LOOK_SECONDS", 0.01)
    a, _ = nodes
    kept = a.mirror()
    kept.begin()
    a.write("checkpoints/best-000001.pt")
    end = time.monotonic() + 20
    while not stored(a):
        assert time.monotonic() < end, "it was not put"
        time.sleep(0.01)
    kept.close()


def test_a_storage_that_is_away_at_the_end_is_said_with_the_node(
    nodes: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _ = nodes
    a.write("best.safetensors")

    def away(*_: object) -> None:
        raise StorageError("s3://there: cannot write (away)")

    kept = a.mirror()
    monkeypatch.setattr(kept.store, "put", away)
    with pytest.raises(OSError, match=r"node .*: s3://there: cannot write \(away\); expected"):
        kept.close(seconds=0.1)


ENDED = ("best.safetensors", "final.json")
STATE = "checkpoints/steps-0000000010-best-000000.pt"


def test_results_of_other_code_are_not_taken_beside_those_here(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    a.begun_by("old")
    a.write("checkpoints/best-000002.pt", "config.json")
    a.mirror().close()
    b.begun_by("new")
    b.write(STATE, text="new")
    there = b.mirror()
    there.fetch()
    assert b.names() == [STATE, "source.json"], "two codes' results lie in one folder"
    there.close()
    assert [name for name in stored(b) if name.startswith("checkpoints")] == [STATE]
    assert (b.there / NAME / "source.json").read_text() == b.read("source.json")


def test_what_was_stored_gives_way_to_the_code_that_has_gone_on(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    a.begun_by("old")
    a.write(STATE, text="old")
    a.mirror().close()
    b.begun_by("new")
    b.write("checkpoints/best-000001.pt", text="new")
    b.mirror().close()
    a.mirror().fetch()
    assert a.names() == ["checkpoints/best-000001.pt", "source.json"]
    assert a.read("source.json") == b.read("source.json")


def test_the_end_of_a_trial_is_not_lost_to_what_another_code_began(
    nodes: tuple[Node, Node],
) -> None:
    a, b = nodes
    a.begun_by("new")
    a.write(*ENDED)
    a.mirror().close()
    b.begun_by("old")
    b.write(STATE)
    there = b.mirror()
    there.fetch()
    there.close()
    assert b.names() == [*ENDED, "source.json"] and set(ENDED) <= set(stored(b))


def test_another_evaluator_takes_nothing_away(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    a.begun_by("new")
    a.write(*ENDED)
    a.mirror().close()
    there = b.mirror()
    there.fetch()
    b.begun_by("new", evaluator="two")
    there.close()
    assert set(ENDED) <= set(stored(b))
    assert (b.there / NAME / "source.json").read_text() == b.read("source.json")


def test_old_results_are_gone_before_the_storage_names_new_code(
    nodes: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = nodes
    a.begun_by("old")
    a.write("checkpoints/best-000002.pt", STATE, *ENDED)
    a.mirror().close()
    b.begun_by("new")  # as a trial that begins anew does; then its node is lost at the next file
    b.write("checkpoints/best-000001.pt")
    there = b.mirror()
    put = there.store.put

    def lost(name: str, path: Path) -> None:
        if not name.endswith("source.json"):
            raise StorageError("lost")
        put(name, path)

    monkeypatch.setattr(there.store, "put", lost)
    with pytest.raises(OSError, match="lost"):
        there.close(seconds=0.1)
    assert stored(b) == ["source.json"], "the next node goes on from what other code made"


def test_a_folder_that_vanishes_takes_nothing_from_storage(nodes: tuple[Node, Node]) -> None:
    a, _ = nodes
    a.write(STATE, "config.json", *ENDED)
    kept = a.mirror()
    kept.close()
    before = stored(a)
    again = a.mirror()
    shutil.rmtree(a.folder / "checkpoints")
    (a.folder / "final.json").unlink()
    again.close()
    assert stored(a) == before, "a removal that was under way was taken for the trial's"
    again = a.mirror()
    shutil.rmtree(a.folder)
    began = time.monotonic()
    with pytest.raises(Vanished, match="found no "):
        again.close()
    assert stored(a) == before and time.monotonic() - began < 10


def test_the_end_removes_what_killed_attempts_have_left(nodes: tuple[Node, Node]) -> None:
    a, _ = nodes
    a.write(*ENDED)
    for name in (STATE, "best.safetensors.1.tmp"):
        path = a.there / NAME / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    a.mirror().close()
    assert stored(a) == [*ENDED[:1], STATE, ENDED[1]], "a checkpoint that was to stay is gone"
    Mirror(Storage(str(a.there)), NAME, a.folder, "there", clean=True).close()
    assert stored(a) == [*ENDED]


def test_the_end_takes_no_longer_than_it_may(
    nodes: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _ = nodes
    monkeypatch.setattr(mirror, "LOOK_SECONDS", 0.01)
    kept = a.mirror()
    puts: list[str] = []

    def slow(name: str, _: Path) -> None:
        puts.append(name)
        time.sleep(1.0)

    monkeypatch.setattr(kept.store, "put", slow)
    a.write(*(f"{number}.json" for number in range(5)))
    kept.begin()
    while not puts:
        time.sleep(0.01)
    began = time.monotonic()
    with pytest.raises(OSError, match="the storage is slow"):
        kept.close(seconds=0.2)
    assert time.monotonic() - began < 0.9
    kept._thread.join(5)
    assert len(puts) == 1, "it went on after its end"


def test_a_slow_storage_that_takes_all_is_waited_for(
    nodes: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _ = nodes
    monkeypatch.setattr(mirror, "LAST_SECONDS", 0.1)
    a.write(*(f"{number}.json" for number in range(5)))
    kept = a.mirror()
    put = kept.store.put

    def slow(name: str, path: Path) -> None:
        time.sleep(0.05)
        put(name, path)

    monkeypatch.setattr(kept.store, "put", slow)
    kept.close()
    assert len(stored(a)) == 5


def test_the_log_of_before_stays_before_lines_of_now(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    a.write("trial.log", text="first\n")
    a.mirror().close()
    with (b.folder / "trial.log").open("a") as log:
        print("second", file=log, flush=True)
        b.mirror().fetch()
        print("third", file=log, flush=True)
    assert b.read("trial.log") == "first\nsecond\nthird\n"
