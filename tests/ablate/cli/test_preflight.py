"""What a machine or an output folder cannot do is one sentence, soon."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ablate.cli.preflight import check_machine
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
    monkeypatch.delenv("ABLATE_CACHE", raising=False)
    check_machine(runs_ray=False)
    with pytest.raises(ConfigError, match="at least 7 GiB"):
        check_machine(runs_ray=True)


@pytest.mark.parametrize("name", ["file", "file/below", "long" * 100])
def test_an_unusable_cache_is_one_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / name))
    with pytest.raises(ConfigError, match=r"^ABLATE_CACHE: .*another folder"):
        check_machine(runs_ray=False)
