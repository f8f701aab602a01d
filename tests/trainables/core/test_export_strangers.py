"""Exports that a stranger wrote, with digests that fit: one sentence each, in bounded memory."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save

from tests.trainables.core import exported
from trainables.backbones import backbone
from trainables.core import export
from trainables.errors import ConfigError

About, Tensors = dict[str, Any], dict[str, torch.Tensor]
GONE: Any = object()


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported.write(tmp_path_factory.mktemp("valid") / "best.safetensors")


def refused(path: Path) -> str:
    """The sentence with which a file is refused."""
    with pytest.raises(ConfigError) as caught:
        export.load_model(path, "cpu")
    assert caught.value.path.startswith((str(path), "backbone", "data")), caught.value
    return str(caught.value)


def changed(about: About, place: str, value: Any) -> About:
    made = level = copy.deepcopy(about)
    *parents, last = place.split(".")
    for parent in parents:
        level = level[parent]
    if value is GONE:
        del level[last]
    else:
        level[last] = value
    return made


@pytest.mark.parametrize(
    ("place", "values"),
    [
        ("config", [GONE, None, 3, "x", [], {}]),
        ("config.data", [GONE, None, 3, "x", [], {}, {"name": []}]),
        ("config.loss.name", [GONE, None, 3, {}, "\x1b[31mnone"]),
        ("config.embedding.dim", [None, "x", -1, 10**9, 17]),
        ("config.backbone.name", ["none such", "hf-hub:a/b", "vit_gigantic_patch14_224"]),
        ("features", [GONE, None, "x", -1, 0, True, 1.5, 10**9, 2**70, 100]),
        ("classes", [GONE, None, 3, "abc", [], [3], ["\ud800"] * 3, ["one"], ["a"] * 10**5]),
        ("frame", [GONE, None, "x", 0, -1.0, 1.5, float("nan"), float("inf"), 1e9, 2**70]),
    ],
)
def test_what_a_file_says_of_itself_is_typed(
    valid: Path, tmp_path: Path, place: str, values: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    about, tensors = exported.said(valid)
    monkeypatch.setattr(export, "SPARE_BYTES", 2**20)  # these classes are more
    for value in values:
        path = tmp_path / "best.safetensors"
        refused(exported.sealed(path, changed(about, place, value), tensors))


def test_a_small_file_builds_no_large_backbone(
    valid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about, tensors = exported.said(valid)
    about = changed(about, "config.backbone.name", "vit_large_patch16_224")
    monkeypatch.setattr(backbone, "build_backbone", lambda *_, **__: pytest.fail("it was built"))
    assert "numbers, of a vit_large" in refused(exported.sealed(tmp_path / "a", about, tensors))


def _without(tensors: Tensors, name: str) -> Tensors:
    return {key: value for key, value in tensors.items() if key != name}


CHANGES: dict[str, Callable[[Tensors, str], Tensors]] = {
    "missing": _without,
    "foreign": lambda all_, _: {**all_, "ex\x1btra": torch.zeros(3)},
    "none": lambda _, __: {},
    "flat": lambda all_, name: {**all_, name: all_[name].reshape(-1)},
    "longer": lambda all_, name: {**all_, name: torch.cat([all_[name], all_[name]])},
    "double": lambda all_, name: {**all_, name: all_[name].double()},
    "integers": lambda all_, name: {**all_, name: all_[name].long()},
    "nan": lambda all_, name: {**all_, name: all_[name] * float("nan")},
    "infinite": lambda all_, name: {**all_, name: all_[name] / 0},
}


@pytest.mark.parametrize("change", CHANGES)
def test_tensors_are_those_of_the_network(valid: Path, tmp_path: Path, change: str) -> None:
    about, tensors = exported.said(valid)
    altered = CHANGES[change](tensors, "method.loss.proxies")
    refused(exported.sealed(tmp_path / "best.safetensors", about, altered))


def test_weights_that_overflow_give_no_embeddings(valid: Path, tmp_path: Path) -> None:
    """Each is finite, what comes of them is not."""
    about, tensors = exported.said(valid)
    huge = {n: t.fill_(3e38) if t.is_floating_point() else t for n, t in tensors.items()}
    model = export.load_model(exported.sealed(tmp_path / "best.safetensors", about, huge), "cpu")
    with pytest.raises(ConfigError, match="NaN or infinite for these images"):
        model.embed(np.full((1, 40, 40, 3), 255, np.uint8))


def test_files_that_are_none_are_refused_at_once(valid: Path, tmp_path: Path) -> None:
    about, _ = exported.said(valid)
    path = tmp_path / "best.safetensors"

    def raw(header: bytes, size: int = 0) -> None:
        with path.open("wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(8 + len(header) + size)

    def said(text: str) -> bytes:
        return json.dumps({"__metadata__": {export.KEY: text}}).encode()

    os.mkfifo(tmp_path / "fifo")
    assert "a FIFO" in refused(tmp_path / "fifo")
    assert "a device" in refused(Path("/dev/zero"))
    for header in (b"", b"{", said("[" * 10**5), said("9" * 10**5), said("3"), said("[]")):
        raw(header)
        refused(path)
    path.write_bytes((2**62).to_bytes(8, "little") + b"{}")
    refused(path)
    tensor = {"dtype": "F32", "shape": [5 * 2**30], "data_offsets": [0, 20 * 2**30]}
    old = json.dumps(about | {"format": export.UNDIGESTED})
    raw(json.dumps({"__metadata__": {export.KEY: old}, "w": tensor}).encode(), 20 * 2**30)
    assert "larger than" in refused(path)
    path.write_bytes(save({"w": torch.zeros(1)}, metadata={export.KEY: old}))
    refused(path)


def test_weights_of_a_frozen_backbone_are_a_regular_file(valid: Path, tmp_path: Path) -> None:
    about, tensors = exported.said(valid)
    os.mkfifo(tmp_path / "fifo")
    about["config"]["backbone"] |= {"mode": "frozen", "weights": str(tmp_path / "fifo")}
    about["config"]["backbone"]["weights_sha256"] = "0" * 64
    assert "a FIFO" in refused(exported.sealed(tmp_path / "best.safetensors", about, tensors))
