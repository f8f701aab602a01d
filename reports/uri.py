"""Hide passwords and keys in MLflow URIs.

`postgresql://me:word@host/db?sslpassword=word` → `postgresql://me:***@host/db?sslpassword=***`. Of
a malformed URI, rather too much is hidden than too little.
"""

import re
from urllib.parse import quote, unquote, unquote_plus

HIDDEN = "***"
VIEW = "workflowType=machine_learning"  # or MLflow shows its view for generative models
_SECRET = re.compile(r"pass|pwd|token|secret|key|sig|cred|auth|odbc_connect", re.IGNORECASE)
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
    """Return a text, such as a library's message, without the URI's secrets."""
    redacted, secrets = _split_secrets(uri)
    text = text.replace(uri, redacted)
    for secret in sorted({*secrets, *map(unquote, secrets), *map(unquote_plus, secrets)}):
        if len(secret) >= _MIN_LENGTH:
            text = text.replace(secret, HIDDEN)
        else:
            text = text.replace(f":{secret}@", f":{HIDDEN}@").replace(f"={secret}", f"={HIDDEN}")
    return text


def redact_all_uris(text: str) -> str:
    """Return a text without the secrets of all URIs in it."""
    return re.sub(r"\S+://\S+", lambda match: redact_uri(match.group()), text)


def find_server_address(uri: str) -> str:
    """Return the address of a server's pages for a browser; empty for other stores."""
    if not uri.startswith(("http://", "https://")):
        return ""
    scheme, _, address = redact_uri(uri).partition("?")[0].partition("://")
    authority, slash, path = address.partition("/")
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}".rstrip("/") + "/"


def build_run_path(experiment: str, run: str, artifact: str = "") -> str:
    """Return the address of a run's page, or of one of its files, relative to MLflow's address."""
    file = f"/artifacts/{artifact}" if artifact else ""
    return f"#/experiments/{experiment}/runs/{run}{file}?{VIEW}"


def build_sweep_path(experiment: str, sweep_id: str) -> str:
    """Return the address of the page of a sweep's trials, relative to MLflow's address."""
    trials = f"tags.`ablate.sweep_id` = '{sweep_id}' and tags.`ablate.kind` = 'trial'"
    return f"#/experiments/{experiment}/runs?searchFilter={quote(trials)}&{VIEW}"


def _split_secrets(uri: str) -> tuple[str, list[str]]:
    """Return the URI without secrets, and its secrets."""
    head, sep, address = uri.partition("://")
    if not sep:
        bare = _NO_SCHEME.fullmatch(uri)
        return (f"{bare[1]}:{HIDDEN}@{bare[3]}", [bare[2]]) if bare else (uri, [])
    secrets: list[str] = []
    end = max(_find_user_end(head.lower(), address), 0)
    user, address = address[:end], address[end:]
    name, _, password = user.partition(":")
    if password:
        secrets.append(password)
        user = f"{name}:{HIDDEN}"
    elif name and head.lower().endswith(("http", "https")):  # a token
        secrets.append(name)
        user = HIDDEN
    path, mark, query = address.partition("?")
    return f"{head}://{user}{path}{mark}{_redact_query(query, secrets)}", secrets


def _find_user_end(kind: str, address: str) -> int:
    """Return the position of the @ after user and password, or −1."""
    if kind.endswith(("sqlite", "file")) or "sqlite+" in kind:
        return -1
    before, mark, _ = address.partition("?")
    end, last = before.rfind("@"), address.rfind("@")
    if mark and last > end and "=" not in address[len(before) : last]:
        end = last  # an unquoted ? in the password
    if kind.endswith(("http", "https")) and end >= 0 and _HOST_AND_PATH.match(address[:end]):
        return -1
    return end


def _redact_query(query: str, secrets: list[str]) -> str:
    """Return the query without secrets, which are added to the list."""

    def hide_secret(match: re.Match[str]) -> str:
        if not _SECRET.search(match[1]):
            return match[0]
        secrets.append(match[2])
        return f"{match[1]}={HIDDEN}"

    return re.sub(r"([^&;=]*)=([^&;]+)", hide_secret, query)
