"""What a machine or an output folder cannot do is one sentence, soon; a plan needs little of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from ablate.cli.main import main
from ablate.engine.preflight import as_it_is
from tests.ablate import driven, specs
from tests.ablate.command import ROOT
from tests.unprivileged import open_folder, unprivileged

SPEC = {
    "name": "small",
    "trial": {"loss": {"name": "proxy_anchor"}},
    "studies": {"rows": {"design": "compare", "variants": {"a": {}}}},
}
SECONDS = 10  # two on a quiet machine, where torch alone takes as long to import


def refused(folder: Path, *words: str, limit: int | None = None, **env: str) -> str:
    """The one line by which `python -m ablate …` refuses to go on; torch was not imported."""
    spec = folder / "spec.yaml"
    if not spec.exists():
        spec.write_text(yaml.safe_dump(SPEC))
    code = (
        "import sys, resource, runpy\n"
        f"limit = {limit}\n"
        "if limit: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        f"sys.argv = ['ablate', *{words!r}]\n"
        "try: runpy.run_module('ablate', run_name='__main__')\n"
        "finally: assert 'torch' not in sys.modules\n"
    )
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1 and time.monotonic() - began < SECONDS
    return done.stderr


@pytest.mark.parametrize("words", [("run", "spec.yaml", "--plan"), ("run", "spec.yaml")])
def test_a_low_limit_of_memory_is_one_sentence(tmp_path: Path, words: tuple[str, ...]) -> None:
    text = refused(tmp_path, *words, limit=2 * 2**30)
    assert "2.0 GiB" in text and "`ulimit -v unlimited`" in text


@pytest.mark.parametrize("name", ["file", "file/below", "long" * 100])
def test_an_unusable_cache_is_one_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    text = refused(tmp_path, "run", "spec.yaml", "--plan", ABLATE_CACHE=str(tmp_path / name))
    assert text.startswith("ABLATE_CACHE: ") and "another folder" in text


@pytest.mark.parametrize(
    "text", ["a: [" + "1," * 2**19 + "1]", "".join(f"k{i}: 1\n" for i in range(25_000))]
)
def test_a_huge_file_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "spec.yaml").write_text(text)
    assert "spec.yaml" in refused(tmp_path, "plan", "spec.yaml")


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
