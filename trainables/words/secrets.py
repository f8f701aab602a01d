"""Hide secrets: passwords and keys in addresses, environment variables, logs and messages.

`postgresql://me:word@host/db?sslpassword=word` → `postgresql://me:***@host/db?sslpassword=***`. Of
a malformed URI, rather too much is hidden than too little. Libraries write addresses and headers
into their messages, and a trial's last error stays in its log, the ledger, tags and reports.
"""

import logging
import os
import re
from pathlib import Path
from urllib.parse import quote, unquote, unquote_plus

HIDDEN = "***"
SHORTEST = 8  # characters of a variable's secret; a shorter value may be part of any word
SERVED = "/reports/"  # where `ablate ui` has the reports
VIEW = "workflowType=machine_learning"  # or MLflow shows its view for generative models
# in this order MLflow shows trials beside each other, else hidden in the row of their sweep
FLAT = f"{VIEW}&orderByKey=tags.%60mlflow.runName%60&orderByAsc=true"
# names of a URI's options
_SECRET = re.compile(
    r"pass|pwd|token|secret|key|sig|cred|auth|jwt|connection_?string|odbc_connect", re.IGNORECASE
)
# names of variables
_SECRET_VARIABLE = re.compile(
    r"(?<!by)(?<!com)pass(word|wd|phrase)?$|(?<!^)(?<!^old)pwd|token$|secret|credential"
    r"|(access|api|private)_?key|_key$|_auth$|jwt$|connection_?string"
)
_USER = re.compile(r"(?<=://)([^\s/@:]*):[^\s/@]+(?=@)")
_HOST_AND_PATH = re.compile(r"[^/@:]*(:\d{1,5})?/")  # before an @ that is part of the path
_NO_SCHEME = re.compile(r"([^:/@]+):(.+)@(.*)")  # me:word@host/db
_MIN_LENGTH = 4  # of a password that is hidden anywhere in a text; a shorter one is part of words


def redact_uri(uri: str) -> str:
    """Return the URI without its secrets."""
    return _split_secrets(uri)[0]


def has_secret(uri: str) -> bool:
    """Return whether the URI has a password, a token or another secret."""
    return bool(_split_secrets(uri)[1])


def redact_text(text: str, uri: str) -> str:
    """Return a text, such as a library's message, with `***` in place of the URI's secrets."""
    redacted, secrets = _split_secrets(uri)
    text = text.replace(uri, redacted)
    for secret in sorted({*secrets, *map(unquote, secrets), *map(unquote_plus, secrets)}):
        if len(secret) >= _MIN_LENGTH:
            text = text.replace(secret, HIDDEN)
        else:  # a short secret may be part of a word, so it is hidden only in `:…@` and `=…`
            text = text.replace(f":{secret}@", f":{HIDDEN}@").replace(f"={secret}", f"={HIDDEN}")
    return text


def redact_all_uris(text: str) -> str:
    """Return a text without the secrets of all URIs in it."""
    return re.sub(r"\S+://\S+", lambda match: redact_uri(match.group()), text)


def find_server_address(uri: str) -> str:
    """Return the web address, without user and secrets, of an MLflow server, or an empty text."""
    if not uri.startswith(("http://", "https://")):
        return ""
    without_query = redact_uri(uri).partition("?")[0]
    scheme, _, address = without_query.partition("://")
    authority, slash, path = address.partition("/")
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}".rstrip("/") + "/"


def build_run_path(experiment: str, run: str, artifact: str = "") -> str:
    """Return the address of a run's page, or of one of its files, relative to MLflow's address."""
    file = f"/artifacts/{artifact}" if artifact else ""
    return f"#/experiments/{experiment}/runs/{run}{file}?{VIEW}"


def build_sweep_path(experiment: str, sweep_id: str) -> str:
    """Return the address of the page of a sweep's trials, relative to MLflow's address."""
    trials = f"tags.`ablate.sweep_id` = '{sweep_id}' and tags.`ablate.kind` = 'trial'"
    return f"#/experiments/{experiment}/runs?searchFilter={quote(trials)}&{FLAT}"


def _split_secrets(uri: str) -> tuple[str, list[str]]:
    """Return the URI with `***` in place of its secrets, and the list of these secrets."""
    scheme, separator, address = uri.partition("://")
    if not separator:  # the URI is `user:password@rest`, or a path without secrets
        match = _NO_SCHEME.fullmatch(uri)
        return (f"{match[1]}:{HIDDEN}@{match[3]}", [match[2]]) if match else (uri, [])
    secrets: list[str] = []
    user_end = max(_find_user_end(scheme.lower(), address), 0)
    user, address = address[:user_end], address[user_end:]
    name, _, password = user.partition(":")
    if password:
        secrets.append(password)
        user = f"{name}:{HIDDEN}"
    elif name and scheme.lower().endswith(("http", "https")):  # a token in place of the user
        secrets.append(name)
        user = HIDDEN
    path, mark, query = address.partition("?")
    return f"{scheme}://{user}{path}{mark}{_redact_query(query, secrets)}", secrets


def _find_user_end(scheme: str, address: str) -> int:
    """Return the position of the @ after user and password in an address; −1 without a user."""
    if scheme.endswith(("sqlite", "file")) or "sqlite+" in scheme:
        return -1  # the address is a path
    before_query, mark, _ = address.partition("?")
    end, last = before_query.rfind("@"), address.rfind("@")
    if mark and last > end and "=" not in address[len(before_query) : last]:
        end = last  # a ? without `key=` before the last @ begins no query: it is in the password
    is_web = scheme.endswith(("http", "https"))
    if is_web and end >= 0 and _HOST_AND_PATH.match(address[:end]):  # the @ is part of the path
        return -1
    return end


def _redact_query(query: str, secrets: list[str]) -> str:
    """Return a URI's query with `***` as the value of each secret; add the values to `secrets`."""

    def hide_secret(match: re.Match[str]) -> str:
        if not _SECRET.search(match[1]):
            return match[0]
        secrets.append(match[2])
        return f"{match[1]}={HIDDEN}"

    return re.sub(r"([^&;=]*)=([^&;]+)", hide_secret, query)


def is_secret_variable(name: str, value: str) -> bool:
    """Return whether an environment variable such as `$API_KEY` holds a secret, and no path."""
    return _SECRET_VARIABLE.search(name.lower()) is not None and not Path(value).is_absolute()


def redact_secrets(text: str) -> str:
    """Return `text` with `***` for each secret of the environment and each password in a URL."""
    for name, value in os.environ.items():
        if is_secret_variable(name, value) and len(value) >= SHORTEST:
            text = text.replace(value, HIDDEN)
    # hide also the password in `https://user:password@host`
    return _USER.sub(rf"\1:{HIDDEN}", text)


class HidingFormatter(logging.Formatter):
    """Redact secrets in log records and their tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        return redact_secrets(super().format(record))
