"""`ablate evaluate EMBEDDINGS.npz`: metrics of embeddings that any program made."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ablate.cli.main import main

Captured = pytest.CaptureFixture[str]


def save(path: Path, width: int = 6, **more: Any) -> Path:
    rng = np.random.default_rng(0)
    arrays = {"embeddings": rng.normal(size=(40, width)), "labels": rng.integers(0, 5, 40)} | more
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def compute_map_at_r(path: Path) -> dict[int, float]:
    """Return label → the mean of MAP@R over its queries, by plain loops."""
    arrays = np.load(path)
    rows = arrays["embeddings"].astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels, values = arrays["labels"], dict[int, list[float]]()
    for query, label in enumerate(labels):
        others = [i for i in np.argsort(-rows @ rows[query], kind="stable") if i != query]
        hits = [labels[i] == label for i in others]
        relevant = sum(hits)
        precisions = [sum(hits[: k + 1]) / (k + 1) for k in range(relevant) if hits[k]]
        values.setdefault(int(label), []).append(sum(precisions) / relevant)
    return {label: float(np.mean(of_class)) for label, of_class in values.items()}


def test_values_are_those_of_plain_loops(tmp_path: Path, capsys: Captured) -> None:
    path = save(tmp_path / "e.npz")
    assert main(["evaluate", str(path), "--json", "--per-class", "--metric", "nmi"]) == 0
    document, expected = json.loads(capsys.readouterr().out), compute_map_at_r(path)
    labels = np.load(path)["labels"]
    mean = np.mean([expected[int(label)] for label in labels])
    assert document["rows"][0]["map_at_r"] == pytest.approx(mean, abs=1e-6)
    by_class = document["classes"]["map_at_r"]
    for label, value in expected.items():
        assert by_class[str(label)]["mean"] == pytest.approx(value, abs=1e-6)
        assert by_class[str(label)]["queries"] == int((labels == label).sum())
    assert main(["evaluate", str(path), "--csv"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert float(row["map_at_r"]) == document["rows"][0]["map_at_r"]
    assert main(["evaluate", str(path)]) == 0
    assert "the query itself is left out" in capsys.readouterr().out


def test_a_gallery_and_labels_of_their_own(tmp_path: Path, capsys: Captured) -> None:
    path = save(tmp_path / "q.npz", labels=None)
    names = [f"class {i % 5}" for i in range(40)]
    (tmp_path / "names.txt").write_text("\n".join(names))
    gallery = tmp_path / "g.npz"  # the queries themselves: each finds itself first
    np.savez(gallery, embeddings=np.load(path)["embeddings"], labels=np.array(names))
    words = [str(path), "--labels", str(tmp_path / "names.txt"), "--gallery", str(gallery)]
    assert main(["evaluate", *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["recall_at_1"] == 1.0
    assert main(["evaluate", *words]) == 0
    assert "40 of the gallery" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "words", "expected"),
    [
        ({"embeddings": None}, [], "`embeddings` is missing"),
        ({"embeddings": np.ones((40, 2), int)}, [], "int64 (40, 2)"),
        ({"labels": None}, [], "`labels` is missing"),
        ({"labels": np.zeros(3)}, [], "40 rows have (3,) labels"),
        ({"labels": np.array([object()] * 40)}, [], "labels.astype(str)"),
        ({"embeddings": np.full((40, 2), np.nan)}, [], "40 of 40 rows are not finite"),
        ({}, ["cub200"], "no data set"),
        ({}, ["--metric", "top_1_accuracy"], "no metric here"),
        ({}, ["--gallery", "wide.npz"], "6"),
    ],
)
def test_refusals(
    more: dict[str, Any], words: list[str], expected: str, tmp_path: Path, capsys: Captured
) -> None:
    save(tmp_path / "wide.npz", width=7)
    path = save(tmp_path / "e.npz", **more)
    places = [str(tmp_path / word) if word.endswith(".npz") else word for word in words]
    assert main(["evaluate", str(path), *places]) == 2
    error = capsys.readouterr().err
    assert expected in error and error.count("\n") == 1, error


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04cut"])
def test_damaged_files(content: bytes, tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "e.npz"
    path.write_bytes(content)
    assert main(["evaluate", str(path)]) == 2
    error = capsys.readouterr().err
    assert "Save it by numpy.savez" in error and "allow_pickle" not in error


def test_a_model_needs_a_data_set(capsys: Captured) -> None:
    assert main(["evaluate", "mobilenetv3_small_050=none"]) == 2
    assert "no data set is named" in capsys.readouterr().err
