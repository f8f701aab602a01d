"""Which variables of the environment reach the processes that ablate starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from trainables.words.environment import (
    HUB,
    KEEP,
    RAY,
    SLURM,
    STORAGE,
    TRACKING,
    build_public_environment,
    run_module,
)
from trainables.words.secrets import redact_uri

WORD = "w0rd-of-a-kind"
NEEDED = {  # secret → who needs it
    "PGPASSWORD": TRACKING,
    "MYSQL_PWD": TRACKING,
    "MLFLOW_TRACKING_PASSWORD": TRACKING,
    "MLFLOW_TRACKING_TOKEN": TRACKING,
    "HF_TOKEN": HUB,
    "HUGGING_FACE_HUB_TOKEN": HUB,
    "AWS_ACCESS_KEY_ID": STORAGE,
    "AWS_SECRET_ACCESS_KEY": STORAGE,
    "AWS_SESSION_TOKEN": STORAGE,
    "AZURE_STORAGE_CONNECTION_STRING": STORAGE,
    "RAY_AUTH_TOKEN": RAY,
    "SLURM_JWT": SLURM,
}
NOBODYS = (
    *("WANDB_API_KEY", "GITHUB_TOKEN", "OPENAI_API_KEY", "KAGGLE_KEY", "CLIENT_SECRET"),
    *("DB_PASSWORD", "SMTP_PASS", "SSH_PASSPHRASE", "my_api_key", "REDISCLI_AUTH", "TOKEN"),
    *("GCP_CREDENTIALS", "APP_SECRET_KEY_BASE", "PRIVATE_KEY"),
)


@pytest.mark.parametrize("name", [*NEEDED, *NOBODYS])
def test_a_secret_reaches_only_who_needs_it(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, WORD)
    assert name not in build_public_environment()
    for purpose in (TRACKING, HUB, STORAGE, RAY, SLURM):
        kept = build_public_environment(keep=purpose).get(name) == WORD
        is_shared = purpose == TRACKING and NEEDED.get(name) == STORAGE  # MLflow's files
        assert kept == (purpose == NEEDED.get(name) or is_shared)
    monkeypatch.setenv(KEEP, f"OTHER, {name}")  # what a user's own data set may need
    assert build_public_environment()[name] == WORD


@pytest.mark.parametrize("name", [*NEEDED, *NOBODYS])
def test_a_secret_as_an_option_of_a_uri_is_one_too(name: str) -> None:
    assert WORD not in redact_uri(f"postgresql://host/db?{name.lower()}={WORD}&sslmode=on")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("PATH", "/usr/bin"), ("PWD", "/home/me"), ("OLDPWD", "/home/me"), ("LANG", "C.UTF-8")),
        *(("ABLATE_CACHE", "/cache"), ("OMP_NUM_THREADS", "2"), ("CUDA_VISIBLE_DEVICES", "0")),
        *(("RAY_AUTH_MODE", "token"), ("RAY_AUTH_TOKEN_PATH", "/home/me/token"), ("BYPASS", "1")),
        *(("SSH_ASKPASS", "/usr/bin/ask"), ("AWS_PROFILE", "me"), ("TOKENIZERS_PARALLELISM", "0")),
        *(("GOOGLE_APPLICATION_CREDENTIALS", "/home/me/key.json"), ("HF_HOME", "/cache/hub")),
        *(("https_proxy", "http://me:word@proxy:3128"), ("ENDPOINT", "https://host/api")),
        ("ABLATE_TRACKING_URI", "https://mlflow.example"),
    ],
)
def test_what_is_no_secret_stays(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    assert build_public_environment("postgresql://me:pass@host/db")[name] == value


def test_addresses_with_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABLATE_TRACKING_URI", f"https://me:{WORD}@host")
    monkeypatch.setenv("DATABASE_URL", f"postgres://me:{WORD}@host/db")
    monkeypatch.setenv("ANY_NAME", WORD)  # the password of the store
    names = {"ABLATE_TRACKING_URI", "DATABASE_URL", "ANY_NAME"}
    assert not names & build_public_environment(f"https://me:{WORD}@host").keys()
    assert names & build_public_environment().keys() == {"ANY_NAME"}


def test_a_module_is_not_taken_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But what the script's folder has is found, as by the script itself."""
    (tmp_path / "trainables.py").write_text("raise SystemExit('mine')")
    (tmp_path / "component.py").write_text("print(__import__('trainables').__file__)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    done = run_module("component", {}, {**os.environ})
    assert done.stdout.strip().endswith("trainables/__init__.py"), done.stderr
    assert str(tmp_path) not in done.stdout
