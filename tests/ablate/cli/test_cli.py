"""The command line and the Python API around a synthetic runner."""

from __future__ import annotations

import argparse
import io
import re
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path

import pytest
import torch

import ablate
from ablate.backends.this_process import run_cell
from ablate.cli import upkeep
from ablate.cli.main import COMMANDS, build_parser, main
from ablate.cli.options import parse_duration, parse_seeds, parse_settings
from ablate.engine import driver, resources
from ablate.engine.progress import ProgressDisplay, build_study_rows
from ablate.engine.resources import (
    Request,
    check_nodes,
    count_fitting,
    request_without_local_check,
    resolve_request,
)
from ablate.engine.settings import Settings
from ablate.spec.model import Resources
from ablate.tracking.sync import MlflowTracker
from tests.ablate import specs
from tests.ablate.driven import dispatch, drain
from trainables.machine.processes import count_cores
from trainables.words.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
REQUEST = Request(1, 0, "cpu")
RUNNER = "tests.ablate.synthetic:run_job"
TRACELESS = {
    "track": False,
    "report": False,
    "runner": RUNNER,
    "fingerprint": "tests.ablate.synthetic:fingerprint",
}


def test_option_values() -> None:
    assert (
        parse_duration("2h") == 7200
        and parse_duration("1h30m") == 5400
        and parse_duration("45") == 45
    )
    assert parse_seeds("5") == 5 and parse_seeds("0,3") == (0, 3) and parse_seeds("7,") == (7,)
    assert parse_settings(["a.b=1e-4", "c=[1, x]", "d=on"]) == {
        "a.b": 1e-4,
        "c": [1, "x"],
        "d": "on",
    }
    for bad in ("", "2d", "h", "-1"):
        with pytest.raises(ConfigError):
            parse_duration(bad)


def test_api_gives_a_frame(tmp_path: Path) -> None:
    drain(dispatch(specs.plan(), tmp_path))  # so that Ray is not needed
    results = ablate.run(specs.SPEC, out=tmp_path, **TRACELESS)
    assert results.outcome.is_finished and results.outcome.trained == 0 and results.paths == {}
    frame = results.frame
    assert set(frame["study"]) == {"tune", "parts", "grid", "rows"}
    assert frame["val/map_at_r"].notna().all()
    assert frame.loc[frame["study"] == "parts", "test/map_at_r"].notna().all()


class Replica:
    """A tracker whose store stays away, or that the user breaks off."""

    def __init__(self) -> None:
        self.status, self.tracker = "", MlflowTracker("sqlite://")

    def start(self) -> None: ...

    def notify(self, trial_id: str) -> None: ...

    def close(self, status: str) -> bool:
        self.status = status
        return False


def test_what_mlflow_lacks_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables made of a store that lacks runs would show trained cells as missing."""
    drain(dispatch(specs.plan(), tmp_path))
    replica = Replica()
    monkeypatch.setattr(driver, "TrackerThread", lambda *_, **__: replica)
    settings_ = Settings(tmp_path, tmp_path, REQUEST, runner=RUNNER, tracking_uri="sqlite://")
    outcome = driver.run_plan(specs.plan(), settings_)
    assert outcome.is_finished and not outcome.is_tracked and replica.status == "FINISHED"

    def broken(*args: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(driver, "_build_outcome", broken)
    with pytest.raises(KeyboardInterrupt):
        driver.run_plan(specs.plan(), settings_)
    assert replica.status == "KILLED"


def test_cell_runs_in_the_foreground_with_its_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings_ = Settings(out=tmp_path, cache=tmp_path, request=REQUEST, runner=RUNNER)
    monkeypatch.setenv("SYN_FAIL", "1e-9")
    assert run_cell(specs.plan(), settings_, "grid/method.beta=1,method.gamma=0@1") == 1
    text = capsys.readouterr().out
    assert "Traceback" in text and "TrialFailure: metric: the loss is not finite" in text
    monkeypatch.delenv("SYN_FAIL")
    assert run_cell(specs.plan(), settings_, "grid/method.beta=1,method.gamma=0@1") == 0
    assert "val: map_at_r" in capsys.readouterr().out


def test_resources_are_checked_before_anything_waits() -> None:
    assert resolve_request(Resources(cpus=1, gpus=0), "auto", cluster=False) == REQUEST
    assert resolve_request(Resources(cpus=2.5, gpus=0), "cpu", cluster=True).threads == 2
    assert resolve_request(Resources(cpus=1, gpus=4), "cuda", cluster=True).processes == 4
    assert resolve_request(Resources(cpus=1, gpus=0.5), "cuda", cluster=True).processes == 1
    assert (
        resolve_request(Resources(cpus=2, gpus=0, processes=2), "cpu", cluster=True).processes == 2
    )
    refusals = {
        r"resources\.cpus": (Resources(cpus=count_cores() + 1, gpus=0), "cpu", False),
        "cpu does not go with": (Resources(gpus=1), "cpu", False),
        "GPU": (Resources(gpus=1000), "auto", False),
        "2 processes need as many cpus, but a trial has 1": (
            Resources(cpus=1, gpus=0, processes=2),
            "cpu",
            True,
        ),
        "2 processes need as many gpus, but a trial has 4": (
            Resources(cpus=1, gpus=4, processes=2),
            "cuda",
            True,
        ),
    }
    for match, (asked, device, cluster) in refusals.items():
        with pytest.raises(ConfigError, match=match):
            resolve_request(asked, device, cluster=cluster)
    with pytest.raises(ConfigError, match=r"`resources\.gpus` needs Ray.* Set it to 1"):
        request_without_local_check(Resources(cpus=1, gpus=4), "cuda")
    nodes = [{"CPU": 4.0}, {"CPU": 8.0, "GPU": 1.0}]
    assert check_nodes(Request(2, 0, "cpu"), nodes) == 6
    assert check_nodes(Request(1, 0.5, "cuda"), nodes) == 2
    with pytest.raises(ConfigError, match="the largest node"):
        check_nodes(Request(1, 2, "cuda"), nodes)


def test_a_kind_of_gpu_is_looked_for_on_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = Resources(cpus=1, gpus=0.5, accelerator="H100")
    asked = resolve_request(wanted, "cuda", cluster=True)
    assert asked.bundle == {"cpu": 1, "gpu": 0.5, "accelerator_type:H100": 0.001}
    old = {"CPU": 8.0, "GPU": 4.0, "accelerator_type:A100": 1.0}
    with pytest.raises(ConfigError, match="no node has the GPU H100; the nodes have A100"):
        check_nodes(asked, [old, {"CPU": 4.0}])
    assert check_nodes(asked, [old, {"CPU": 8.0, "GPU": 1.0, "accelerator_type:H100": 1.0}]) == 2
    monkeypatch.setattr(resources, "count_local_gpus", lambda: 1)
    with pytest.raises(ConfigError, match="on this machine alone"):
        resolve_request(wanted, "cuda", cluster=False)
    with pytest.raises(ConfigError, match="trials without a GPU"):
        resolve_request(wanted.model_copy(update={"gpus": 0}), "auto", cluster=True)
    with pytest.raises(ConfigError, match="runs each trial as one process without Ray"):
        request_without_local_check(wanted, "cuda")


@pytest.mark.parametrize(
    ("cpus", "gpus", "node", "expected"),
    [
        (0.1, 0, {"CPU": 1.0}, 10),  # 1.0 // 0.1 is 9.0
        (0.7, 0, {"CPU": 2.1}, 3),
        (0.3, 0, {"CPU": 1.0}, 3),
        (1, 0.1, {"CPU": 8.0, "GPU": 0.3}, 3),  # 0.3 / 0.1 is 2.9999999999999996
        (2, 0, {"CPU": 1.9}, 0),
        (1, 0, {"node:__internal_head__": 1.0, "memory": 1.0}, 0),  # a head without trials
    ],
)
def test_shares_of_a_core_fit_as_often_as_they_are_contained(
    cpus: float, gpus: float, node: dict[str, float], expected: int
) -> None:
    assert count_fitting(Request(cpus, gpus, ""), node) == expected


def test_backbones_of_the_papers_are_listed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    assert main(["backbones"]) == 0
    lines = {line.partition(" ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "not here; a run fetches it first" in lines["googlenet"]
    assert "a file that you give" in lines["bn_inception"]
    assert " here " in lines["tf_efficientnet_lite0"]
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "googlenet-1378be20.pth").touch()
    assert main(["backbones"]) == 0
    (line,) = [at for at in capsys.readouterr().out.splitlines() if at.startswith("googlenet ")]
    assert "not here" not in line


def test_doctor_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "GPUS", "raise ImportError('no operator')")
    finding = upkeep.check_torch()
    assert not finding.ok and "ImportError: no operator" in finding.text
    assert "--force-reinstall torch torchvision" in finding.text
    path = tmp_path / "ledger.sqlite"
    assert upkeep.check_ledger(path).ok
    path.write_bytes(b"garbage" * 1000)
    assert not upkeep.check_ledger(path).ok


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_board_tells_nodes_slots_and_the_first_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, stream = dispatch(specs.plan(), tmp_path), Terminal()
    board = ProgressDisplay(made, 4, tmp_path / "log", stream)
    board.machines.update([("a", "host", 3), ("b", "host", 1), ("head", "host", 0)])
    claimed = [made.claim_next_job() for _ in range(3)]
    assert all(claimed)
    assert board.format_headline() == "3 of 4 slots in use, nodes: 2, left: not known yet"
    board.report_failure("t1", "metric: the loss is not finite at step 3")
    board.report_failure("t2", "another reason")
    shown = board.format_table()
    assert str(shown.title) == board.format_headline()
    board.close()
    assert "metric: the loss is not finite at step 3 (trial t1)" in stream.getvalue()


def test_a_pipe_is_no_terminal_and_its_end_is_no_exit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ablate run | head`, which `main` answers with 0."""
    monkeypatch.setenv("FORCE_COLOR", "1")

    class ClosedPipe(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    for stream in (io.StringIO(), ClosedPipe()):
        board = ProgressDisplay(dispatch(specs.plan(), tmp_path), 1, tmp_path / "log", stream)
        with pytest.raises(BrokenPipeError) if stream.__class__ is ClosedPipe else nullcontext():
            board.print_line("a [line]")
        assert stream.getvalue() in ("a [line]\n", "")


def test_what_is_left_counts_the_start_of_trials(tmp_path: Path) -> None:
    """Slots that wait for workers pass the time, too: 2 trials ended and 2 at work in 30 s."""
    made = dispatch(specs.plan(), tmp_path)
    assert {row.eta for row in build_study_rows(made, 2, 30.0)} == {None}, "none has ended"
    claimed = [made.claim_next_job() for _ in range(2)]
    assert all(claimed)
    made.walls |= {"tune": [1.0], "grid": [3.0]}
    told = {row.study: row for row in build_study_rows(made, 2, 30.0)}
    pace = 30 / (2 + 2 / 2)  # seconds a trial
    assert told["tune"].eta == pytest.approx((6 - 2 / 2) * pace * 1 / 2), "two are half done"
    assert told["grid"].eta == pytest.approx(8 * pace * 3 / 2)
    assert told["rows"].eta == pytest.approx(4 * pace)


def test_run_stays_a_function() -> None:
    call = ablate.run
    import_module("ablate.run")
    for function in (call, ablate.run):
        with pytest.raises(ConfigError, match="studies"):
            function({"name": "x"})


@pytest.mark.parametrize(
    ("error", "words"), [(ImportError("no\nlib"), "no lib"), (MemoryError(), "the memory is full")]
)
def test_a_library_that_cannot_be_loaded_is_named_in_one_line(
    error: Exception,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(args: object) -> int:
        raise error

    monkeypatch.setattr("ablate.cli.results.run_best", fail)
    assert main(["best", "x"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"{__file__}:") and words in said and said.count("\n") == 1


def test_every_command_has_its_module() -> None:
    texts = [path.read_text() for path in (ROOT / "ablate" / "cli").glob("*.py")]
    runs = {name for text in texts for name in re.findall(r"\.set_defaults\(run=(\w+)\)", text)}
    parser = build_parser()
    (menu,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    commands = {name: command.get_default("run") for name, command in menu.choices.items()}
    assert list(commands) == list(COMMANDS)
    assert sorted(run.__name__ for run in commands.values()) == sorted(runs)
    words = ["best", "--out", "x"]
    assert build_parser(["best"]).parse_args(words).out == "x"
    assert build_parser([]).parse_known_args(words)[1] == ["--out", "x"]
