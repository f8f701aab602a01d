"""A cache that cannot be used is one sentence, before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ablate.cli.main import main

SPEC = {
    "name": "small",
    "trial": {"loss": {"name": "proxy_anchor"}},
    "studies": {"rows": {"design": "compare", "variants": {"a": {}}}},
}


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_an_unusable_cache_is_one_sentence(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / name))
    monkeypatch.chdir(tmp_path)
    assert main(["run", "spec.yaml", "--plan"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("ABLATE_CACHE: ") and said.count("\n") == 1
