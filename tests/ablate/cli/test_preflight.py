"""What a machine or an output folder cannot do is one sentence, soon."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ablate.cli.main import main
from ablate.cli.run import check_address_space
from tests.ablate.command import ROOT
from trainables.errors import ConfigError

SPEC = {
    "name": "small",
    "trial": {"loss": {"name": "proxy_anchor"}},
    "studies": {"rows": {"design": "compare", "variants": {"a": {}}}},
}


def test_it_is_one_sentence_before_torch_is_imported(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    code = (
        "import sys, resource, runpy\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))\n"
        "sys.argv = ['ablate', 'run', 'spec.yaml', '--plan']\n"
        "try: runpy.run_module('ablate', run_name='__main__')\n"
        "finally: assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "2.0 GiB" in done.stderr and "`ulimit -v unlimited`" in done.stderr


def test_ray_needs_more_memory_than_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (4 * 2**30, 4 * 2**30))
    check_address_space(runs_ray=False)
    with pytest.raises(ConfigError, match="at least 7 GiB"):
        check_address_space(runs_ray=True)


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
