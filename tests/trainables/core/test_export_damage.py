"""An export in which one byte is another is one clear error; one of before digests still loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from tests.trainables import core_trials
from tests.trainables.core_trials import comparable, job
from trainables.core.export import KEY, load_model, read_weights
from trainables.errors import ConfigError
from trainables.jobs.job import run_job


@pytest.fixture(scope="module")
def trial(drawn: Path, shared_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trial")
    config = core_trials.config(drawn, embedding={"dim": 4}, training={"epochs": 1})
    list(run_job(job(config, shared_cache, folder)))
    return folder


def said(data: bytes) -> Any:
    """What the header of a file of tensors says, with what an export says of itself; None: no
    JSON."""
    length = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + length])
        return header | {"__metadata__": {KEY: json.loads(header["__metadata__"][KEY])}}
    except (ValueError, KeyError, TypeError):
        return None


def test_every_flipped_byte_is_one_error(trial: Path, tmp_path: Path) -> None:
    data = (trial / "best.safetensors").read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    altered = tmp_path / "altered.safetensors"
    places = [*range(0, start, 3), *range(start, len(data), 997), len(data) - 1]
    for at in places:
        flipped = bytearray(data)
        flipped[at] ^= 0x01
        if at < start and said(flipped) == said(data):
            continue  # the last digit of 4/3, say: the same number, written otherwise
        altered.write_bytes(flipped)
        with pytest.raises(ConfigError, match=r"altered\.safetensors: ") as caught:
            read_weights(altered)
        assert "\n" not in str(caught.value), at
    altered.write_bytes(data[: start + 10])
    with pytest.raises(ConfigError, match="no safetensors file"):
        load_model(altered)
    flipped = bytearray(data)
    flipped[-1] ^= 0x80
    altered.write_bytes(flipped)
    with pytest.raises(ConfigError, match="is damaged: copy it anew, or train the trial again"):
        load_model(altered)


def test_an_export_of_before_loads(trial: Path, tmp_path: Path) -> None:
    with safe_open(trial / "best.safetensors", framework="pt") as file:
        about = json.loads(file.metadata()[KEY])
    del about["sha256"]
    weights = read_weights(trial / "best.safetensors")
    for given, loads in (("ablate-1", True), ("ablate-2", False)):
        text = json.dumps(about | {"format": given})
        save_file(weights, tmp_path / "old.safetensors", metadata={KEY: text})
        if loads:
            found = load_model(tmp_path / "old.safetensors", device="cpu").network.state_dict()
            assert all(torch.equal(found[name], weights[name]) for name in weights)
        else:
            with pytest.raises(ConfigError, match="bytes were not written so"):
                load_model(tmp_path / "old.safetensors")


def test_a_result_with_another_digit_is_not_believed(
    drawn: Path, shared_cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = core_trials.config(drawn, training={"epochs": 1})
    final = list(run_job(job(config, shared_cache, tmp_path)))[-1]
    text = (tmp_path / "final.json").read_text()
    digits = text.index("recall_at_1") + text[text.index("recall_at_1") :].index(".") + 1
    other = "1" if text[digits] != "1" else "2"
    (tmp_path / "final.json").write_text(text[:digits] + other + text[digits + 1 :])
    again = list(run_job(job(config, shared_cache, tmp_path)))[-1]
    assert comparable(again) == comparable(final)
    assert "final.json is damaged" in caplog.text
