"""What a machine or an output folder cannot do is one sentence, soon; a plan needs little of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ablate.cli.main import main
from ablate.cli.preflight import check_machine
from ablate.engine.preflight import as_it_is
from tests.ablate import driven, specs
from tests.ablate.command import ROOT
from tests.unprivileged import open_folder, unprivileged
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


def test_a_plan_needs_no_right_to_write(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where OUT cannot be written, with a ledger in it and without one."""
    with open_folder() as folder:
        (folder / "cache").mkdir()
        (folder / "cache").chmod(0o777)
        monkeypatch.setenv("ABLATE_CACHE", str(folder / "cache"))
        spec, empty, known = folder / "spec.yaml", folder / "empty", folder / "known"
        spec.write_text(yaml.safe_dump(SPEC))
        for out in (empty, known):
            out.mkdir()
        driven.run(specs.plan(), known)
        (known / "mlflow.db").touch()
        # As root first: nobody may not read where Python's own modules lie, which come in late.
        assert main(["run", str(spec), "--plan", "--out", str(known)]) == 0
        capsys.readouterr()
        for path in (*known.rglob("*"), known, empty):
            path.chmod(0o555 if path.is_dir() else 0o444)
        before = sorted(path.name for path in known.iterdir())
        for out in (empty, known, empty / "none"):
            with unprivileged():
                assert main(["run", str(spec), "--plan", "--out", str(out)]) == 0
            assert "1 trials to run now" in capsys.readouterr().out
        with unprivileged(), as_it_is(known / "ledger.sqlite") as ledger:
            found = ledger.rows("SELECT count(*) AS n FROM trials WHERE status='done'")
        assert found[0]["n"] > 0
        assert sorted(path.name for path in known.iterdir()) == before
