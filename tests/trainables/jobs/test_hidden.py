"""Secrets of the environment and of addresses stay out of logs and reasons."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainables.core.runtime import Runtime
from trainables.jobs.locked_job import LockedJob
from trainables.jobs.request import Job
from trainables.words.secrets import redact_secrets

WORD = "w0rd-of-a-kind"


@pytest.mark.parametrize(
    "name",
    [
        "MLFLOW_TRACKING_PASSWORD",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "RAY_AUTH_TOKEN",
        "WANDB_API_KEY",
        "PGPASSWORD",
        "MYSQL_PWD",
    ],
)
def test_what_the_environment_calls_a_secret(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, WORD)
    assert redact_secrets(f"403 for key {WORD}: no") == "403 for key ***: no"


def test_what_is_none_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token-mode")
    monkeypatch.setenv("SHORT_TOKEN", "loss")  # part of any word
    for name in ("PWD", "OLDPWD"):  # which folder this is
        monkeypatch.setenv(name, "/home/me/work")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/home/me/gcp.json")
    monkeypatch.setenv("SSH_ASKPASS", "/usr/bin/ssh-askpass")
    text = "token-mode, loss, https://host/path, me@host, s3://bucket/key, /home/me/work/a.py"
    text += ", no file /home/me/gcp.json, /usr/bin/ssh-askpass"
    assert redact_secrets(text) == text


def fails(job: Job) -> Iterator[dict[str, Any]]:
    logging.getLogger("trainables").warning("logging in with %s", WORD)
    raise ValueError(f"401 from http://me:other-word@host with {WORD}")
    yield {}


def test_a_trial_that_fails_with_a_secret_in_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE_PASSWORD", WORD)
    job = Job("t1", {}, 0, Runtime(trial_dir=tmp_path / "t1"))
    attempt = LockedJob(job, f"{__name__}:fails", clean=True)
    (event,) = attempt.receive_events(1.0)
    attempt.close()
    log = (tmp_path / "t1" / "trial.log").read_text()
    assert event["reason"] == "ValueError: 401 from http://me:***@host with ***"
    assert "logging in with ***" in log and "ValueError" in event["traceback"]
    for text in (log, event["traceback"]):
        assert WORD not in text and "other-word" not in text
