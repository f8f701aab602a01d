"""Define the ledger's tables, and open its database safely.

SQLite runs with a write-ahead log and `synchronous=FULL`, so a commit survives the loss of the
process and of power. Several processes may open a new file at once; switching to WAL does not wait
for locks, so a file lock guards the first use.
"""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path

from filelock import FileLock, Timeout

from trainables.words.databases import NoDatabase, read_header
from trainables.words.errors import ConfigError

# Version 2 added the table stops, 3 beside, 4 cells.fold, 5 evaluations.recorded and another order
# of the columns of cells, 6 sources and same_code, 7 trials.checkpoint, 8 warm_starts, 9 the table
# infeasible, 10 looks and evaluations.classes_json.
VERSION = 10
APPLICATION_ID = 0x61626C74  # "ablt"

DDL = """
CREATE TABLE IF NOT EXISTS trials(
    trial_id TEXT PRIMARY KEY, config_hash TEXT NOT NULL, seed INTEGER NOT NULL,
    config_json TEXT NOT NULL,
    status TEXT NOT NULL
        CHECK (status IN ('running', 'done', 'failed', 'partial', 'interrupted')),
    reason TEXT, owner TEXT, heartbeat REAL, created REAL NOT NULL, started REAL, ended REAL,
    epochs INTEGER, steps INTEGER, seconds REAL, best_epoch INTEGER, export TEXT,
    provenance_json TEXT, source TEXT, checkpoint TEXT);
CREATE INDEX IF NOT EXISTS trials_by_config ON trials(config_hash);
CREATE TABLE IF NOT EXISTS epochs(
    trial_id TEXT NOT NULL, epoch INTEGER NOT NULL, steps INTEGER, seconds REAL,
    metrics_json TEXT NOT NULL, PRIMARY KEY(trial_id, epoch)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS evaluations(
    trial_id TEXT NOT NULL, split TEXT NOT NULL, evaluator TEXT NOT NULL,
    metrics_json TEXT NOT NULL, recorded REAL, source TEXT, classes_json TEXT,
    PRIMARY KEY(trial_id, split, evaluator));
CREATE TABLE IF NOT EXISTS sweeps(
    sweep_id TEXT PRIMARY KEY, name TEXT NOT NULL, spec_json TEXT NOT NULL,
    created REAL NOT NULL, provenance_json TEXT);
CREATE TABLE IF NOT EXISTS cells(
    sweep_id TEXT NOT NULL, study TEXT NOT NULL, cell TEXT NOT NULL, seed INTEGER NOT NULL,
    fold INTEGER NOT NULL DEFAULT -1 CHECK (typeof(fold)='integer'),
    trial_id TEXT NOT NULL, coords_json TEXT NOT NULL, idx INTEGER NOT NULL,
    PRIMARY KEY(sweep_id, study, cell, seed, fold)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS cells_by_trial ON cells(trial_id);
CREATE TABLE IF NOT EXISTS proposals(
    study_key TEXT NOT NULL, idx INTEGER NOT NULL, params_json TEXT NOT NULL,
    config_hash TEXT NOT NULL, PRIMARY KEY(study_key, idx)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS mlflow_runs(
    store TEXT NOT NULL, sweep_id TEXT NOT NULL, trial_id TEXT NOT NULL, run_id TEXT NOT NULL,
    logged_epoch INTEGER NOT NULL DEFAULT 0, logged_final INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY(store, sweep_id, trial_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS stops(
    sweep_id TEXT NOT NULL, study TEXT NOT NULL, cell TEXT NOT NULL, epoch INTEGER NOT NULL,
    PRIMARY KEY(sweep_id, study, cell)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS beside(
    study_key TEXT NOT NULL, idx INTEGER NOT NULL, beside_json TEXT NOT NULL,
    PRIMARY KEY(study_key, idx)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS infeasible(
    study_key TEXT NOT NULL, idx INTEGER NOT NULL, sweep_id TEXT NOT NULL, study TEXT NOT NULL,
    needs_json TEXT NOT NULL, PRIMARY KEY(study_key, idx, sweep_id, study)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS warm_starts(
    sweep_id TEXT NOT NULL, study TEXT NOT NULL, trials_json TEXT NOT NULL,
    PRIMARY KEY(sweep_id, study)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS looks(
    sweep_id TEXT NOT NULL, study TEXT NOT NULL, seeds INTEGER NOT NULL,
    PRIMARY KEY(sweep_id, study, seeds)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sources(source TEXT PRIMARY KEY, components_json TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS same_code(
    component TEXT NOT NULL, revision TEXT NOT NULL, one TEXT NOT NULL, other TEXT NOT NULL,
    PRIMARY KEY(component, revision, one, other)) WITHOUT ROWID;
"""

# all columns of the tables of a database
COLUMNS = (
    "SELECT t.name, c.name FROM sqlite_master AS t JOIN pragma_table_info(t.name) AS c "
    "WHERE t.type='table' ORDER BY t.name, c.cid"
)
MOST_BYTES = 2**26  # of one value
# Columns that came later: table, column, declaration. Older rows have NULL there.
ADDED_COLUMNS = (
    ("evaluations", "recorded", "REAL"),
    ("evaluations", "source", "TEXT"),
    ("evaluations", "classes_json", "TEXT"),
    ("trials", "source", "TEXT"),
    ("trials", "checkpoint", "TEXT"),
)
# An older table `cells` is copied, because a key cannot be changed in place. The columns of the key
# stand first: SQLite 3.40.0 and 3.40.1 wrongly report damage in other tables without rowids.
CELLS = ("sweep_id", "study", "cell", "seed", "fold", "trial_id", "coords_json", "idx")
CELLS_BEFORE = "DROP INDEX IF EXISTS cells_by_trial; ALTER TABLE cells RENAME TO cells_before;"
CELLS_AFTER = "INSERT INTO cells SELECT {} FROM cells_before; DROP TABLE cells_before;"

# Older ledgers have no looks; the verdicts of all studies whose trials have ended could be read.
LOOKS_AFTER = (
    " INSERT INTO looks SELECT sweep_id, study, count(DISTINCT cells.seed) FROM cells LEFT JOIN "
    "trials USING (trial_id) GROUP BY sweep_id, study "
    "HAVING min(coalesce(status, '') IN ('done', 'failed', 'partial'));"
)

DISK_FULL_CODES = (errno.ENOSPC, errno.EDQUOT)  # errors of a full disk, or of a used-up quota
# SQLite's messages about a ledger that cannot be written now → what to do. All messages that are
# not listed come from a damaged file.
_REMEDIES = {
    "full": "Free some space and start again: everything recorded is kept.",
    "locked": "End the process that locks the file, or wait, and start again.",
    "I/O": "Check the disk and start again: everything recorded is kept.",
}
RESTORE = (
    "Move this file and those beside it that end in -wal and -shm away and restore a copy, or give "
    "another --out."
)


class LedgerError(RuntimeError):
    """The ledger cannot be written now (full disk, lock, I/O error); committed data are safe."""


class LedgerDamage(ConfigError):
    """The ledger's file is damaged, was replaced, or has content that no ablate has written."""


@contextmanager
def explain_sqlite_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite into one sentence with a remedy."""
    try:
        yield
    except Timeout as error:  # of the file lock in `_create_or_migrate`
        raise LedgerError(
            f"Another process is creating the ledger {path}. {_REMEDIES['locked']}"
        ) from error
    except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
        raise  # a bug
    except sqlite3.DatabaseError as error:
        text = str(error)[:200]
        if "readonly" in text or "unable to open" in text:
            raise ConfigError(
                str(path),
                f"the ledger or its folder is not writable ({text})",
                "Give another --out",
            ) from error
        for words, remedy in _REMEDIES.items():
            if words in text:
                raise LedgerError(
                    f"The ledger {path} cannot be written ({text}). {remedy}"
                ) from error
        raise LedgerDamage(
            str(path), f"the file is no intact SQLite database ({text})", RESTORE
        ) from error


def is_full(error: BaseException | None) -> bool:
    """Return whether an error comes from a full disk or an exhausted quota."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in DISK_FULL_CODES:
            return True
        error = error.__cause__ or error.__context__
    return False


def is_disk_full_message(text: str) -> bool:
    """Return whether another process's error text reports a full disk."""
    return any(f"[errno {code}]" in text.lower() for code in DISK_FULL_CODES)


def build_disk_full_error(path: Path | str) -> LedgerError:
    """Return the error for a full disk, with the same sentence everywhere."""
    return LedgerError(f"{path}: no space is left on its disk. {_REMEDIES['full']}")


@contextmanager
def convert_disk_full(path: Path) -> Iterator[None]:
    """Turn a full disk during writes below `path` into a LedgerError."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise build_disk_full_error(error.filename or path) from error
        raise


def open_connection(path: Path, timeout: float) -> sqlite3.Connection:
    """Open a connection in autocommit mode; create or migrate the tables if need be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            str(path.parent),
            f"the folder is not writable, or is a file ({error.strerror})",
            "Give another --out",
        ) from error
    _check_file(path)
    with explain_sqlite_errors(path):
        connection = sqlite3.connect(path, timeout=timeout, isolation_level=None)
        try:
            # another user may have made the file
            connection.execute("PRAGMA trusted_schema=OFF")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)
            if _read_version(connection) != VERSION:
                _create_or_migrate(connection, path, timeout)
            _check_tables(connection, path)
            connection.execute("PRAGMA synchronous=FULL")
        except BaseException:
            connection.close()
            raise
    return connection


def _read_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _check_file(path: Path) -> None:
    """Check before opening that the file is a ledger that this version reads, or does not exist."""
    try:
        header = read_header(path)
    except NoDatabase as error:
        raise LedgerDamage(str(path), str(error), RESTORE) from None
    except sqlite3.DatabaseError:
        return  # being written, or damaged: `open_connection` finds out
    if header is None:  # no file
        return
    if not header.tables:
        # A database is never empty while it has a write-ahead log. SQLite would delete the log, and
        # then wait for locks of the processes that have the former database open.
        if path.stat().st_size == 0 and path.with_name(f"{path.name}-wal").exists():
            raise LedgerDamage(str(path), "the file is empty, unlike its log", RESTORE)
        return
    if header.user_version > VERSION or header.application_id != APPLICATION_ID:
        raise ConfigError(
            str(path),
            "the file is a database of another program, or of a newer ablate (its version is "
            f"{header.user_version}, and this ablate reads up to {VERSION})",
            "Give another --out",
        )


@cache
def _list_needed_columns() -> frozenset[tuple[str, str]]:
    """Return (table, column) of all tables that this version creates."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(DDL)
        return frozenset(connection.execute(COLUMNS))


def _check_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Check that the tables are there, and no views, with all columns."""
    missing = _list_needed_columns().difference(connection.execute(COLUMNS))
    if missing:
        table, column = min(missing)
        raise LedgerDamage(
            str(path),
            f"its table {table} has no column {column}, so it was edited or damaged",
            RESTORE,
        )


def _list_columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [column for name, column in connection.execute(COLUMNS) if name == table]


def _create_or_migrate(connection: sqlite3.Connection, path: Path, timeout: float) -> None:
    """Create the tables or migrate those of an older version, unless another process has."""
    with FileLock(path.with_name(path.name + ".lock"), timeout=timeout):
        if _read_version(connection) == VERSION:
            return
        connection.execute("PRAGMA journal_mode=WAL")
        # One transaction: a process killed here leaves an empty file, or the former ledger.
        connection.executescript(
            f"BEGIN IMMEDIATE; {_list_migration_statements(connection)} PRAGMA "
            f"application_id={APPLICATION_ID}; PRAGMA user_version={VERSION}; COMMIT;"
        )


def _list_migration_statements(connection: sqlite3.Connection) -> str:
    """Return the SQL that creates missing tables and adds what an older version lacks."""
    cells = _list_columns(connection, "cells")
    before = after = ""
    if cells and tuple(cells) != CELLS:  # copy the table: -1 is the fold of cells without folds
        values = ["-1" if name == "fold" and name not in cells else name for name in CELLS]
        before, after = CELLS_BEFORE, CELLS_AFTER.format(", ".join(values))
    for table, column, declaration in ADDED_COLUMNS:
        columns = _list_columns(connection, table)
        if columns and column not in columns:
            after += f" ALTER TABLE {table} ADD COLUMN {column} {declaration};"
    if cells and not _list_columns(connection, "looks"):
        after += LOOKS_AFTER
    return f"{before} {DDL} {after}"
