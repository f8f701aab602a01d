"""PostgreSQL in a folder of its own on the loopback address, as a process of nobody's."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.polling import find_free_port, wait_until
from tests.needs import needed
from tests.unprivileged import open_folder

DEBIAN = Path("/usr/lib/postgresql")  # a folder a version; none of them is on PATH
NAME, PASSWORD = "mlflow", "of-the-database"


@dataclass(frozen=True)
class Database:
    port: int

    @property
    def uri(self) -> str:
        """With its driver named: of `postgresql://` SQLAlchemy 2.1 takes psycopg, not psycopg2."""
        return f"postgresql+psycopg2://{NAME}:{PASSWORD}@127.0.0.1:{self.port}/{NAME}"

    def connect(self, name: str = NAME) -> Any:
        import psycopg2

        return psycopg2.connect(
            host="127.0.0.1", port=self.port, user=NAME, password=PASSWORD, dbname=name
        )

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What the database itself says, without MLflow between."""
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())


def programs() -> tuple[str, str]:
    """`initdb` and `postgres`; skips, or fails where all tests must run, if there are none."""
    folders = [str(path) for path in sorted(DEBIAN.glob("*/bin"), reverse=True)]
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *folders])
    return needed("initdb", "postgresql", path), needed("postgres", "postgresql", path)


@contextmanager
def database() -> Iterator[Database]:
    """An empty database `mlflow` with an account of that name; gone with the context.

    As root it runs as `nobody`: PostgreSQL refuses root.
    """
    initdb, postgres = programs()
    who: dict[str, Any] = {}
    with open_folder() as outer:
        folder = outer / "data"
        folder.mkdir(mode=0o700)
        password = outer / "password"
        password.write_text(PASSWORD, encoding="utf-8")
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            who = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        subprocess.run(
            f"{initdb} -D {folder} -U {NAME} -A scram-sha-256 --pwfile={password}"
            " -E UTF8 --locale=C --no-sync".split(),
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
            **who,
        )
        server, log = Database(find_free_port()), outer / "log"
        with log.open("w") as output:
            process = subprocess.Popen(
                f"{postgres} -D {folder} -p {server.port} -c listen_addresses=127.0.0.1"
                " -c unix_socket_directories= -c fsync=off".split(),
                cwd=folder,
                stdout=output,
                stderr=output,
                **who,
            )
        try:
            _create(server, process, log)
            yield server
        finally:
            process.send_signal(signal.SIGINT)  # a fast shutdown: clients are cut off
            process.wait(60)


def _create(server: Database, process: subprocess.Popen[bytes], log: Path) -> None:
    """The database, when the server answers."""
    import psycopg2

    def connect() -> Any:
        assert process.poll() is None, log.read_text()
        with suppress(psycopg2.OperationalError):
            return server.connect("postgres")

    with closing(wait_until(connect, log.read_text, 60)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {NAME}")
