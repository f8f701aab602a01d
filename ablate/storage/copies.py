"""Copies of a ledger in storage, from which another machine goes on.

    ledger.sqlite    as the ledger was at one moment, all of it
    ledger.json      {"ledger": which, "copy": how many there were, "owner": who drives,
                     "place": from where, "at": seconds since 1970, "over": ended}
    storage.json     beside the ledger: {"ledger": which, "copies": {storage: the copy it is ahead
                     of}}

`ledger` is made up when a ledger is copied for the first time and stays with it on all machines: a
storage that has another one is none to go on from. The note beside the ledger is written before the
first copy is, so that a ledger without one was never stored.

One ledger at a time is copied there, by all who drive from it; it stays beside them, and the copy
is what is left if their machine goes. `copy` counts up, and each machine notes in
`OUT/storage.json` which one its ledger is ahead of: so a head that comes back finds that another
has gone on without it, and does not write over what that one found. A ledger that was never stored
there is neither replaced nor copied over another one.

Trials under way go on from their checkpoints in storage (`ablate/storage/checkpoints.py`).
"""

from __future__ import annotations

import json
import logging
import shutil
import sqlite3
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from ablate.ledger.owner import STALE_SECONDS, Owner, host_name
from ablate.ledger.schema import APPLICATION_ID, VERSION, LedgerError
from ablate.ledger.sqlite_files import NoDatabase, alone, back_up, damage, head, write_ahead
from ablate.storage.store import CLOCK, DRAFT, DRAFT_SECONDS, OPTION, Storage, StorageError
from trainables.errors import ConfigError
from trainables.machine.files import write_json

COPY_SECONDS = 60.0
LEDGER, WORD, NOTE = "ledger.sqlite", "ledger.json", "storage.json"
DRAFTS = ".copy-"  # folders beside the ledger

log = logging.getLogger("ablate.engine")


@dataclass(frozen=True)
class Word:
    """The storage's. over: the driver has ended, and knew of no other."""

    ledger: str
    copy: int
    owner: Owner
    place: str
    at: float
    over: bool

    @classmethod
    def parse(cls, content: bytes) -> Self:
        """Raises ValueError, KeyError or TypeError: it is none."""
        told = json.loads(content)
        return cls(
            str(told["ledger"]),
            int(told["copy"]),
            Owner.parse(told["owner"]),
            str(told["place"]),
            float(told["at"]),
            bool(told["over"]),
        )

    def write(self, path: Path) -> None:
        told = {**vars(self), "owner": str(self.owner)}
        write_json(path, told)

    def alive(self, age: float) -> bool:
        """Whether that driver lives. age: seconds since its word was written, by the storage's
        clock: `at` is by its own, which may be minutes from ours."""
        return not self.over and self.owner.alive(time.time() - age, STALE_SECONDS)


@dataclass(frozen=True)
class Note:
    """The ledger's. ledger: empty where it was never stored. copies: by storage, as it is shown."""

    ledger: str = ""
    copies: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises OSError: it is there, and cannot be read."""
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            return cls(str(told["ledger"]), {key: int(n) for key, n in told["copies"].items()})
        except FileNotFoundError:
            return cls()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            log.info("%s notes no copies: %r", path, error)  # then nothing is written over
            return cls()

    def write(self, path: Path) -> None:
        write_json(path, asdict(self))


class Copies:
    """This driver's ledger in storage, for as long as the block lasts.

    ledger: the file. said: called with a line for the user. others: called for the other drivers
    of the ledger that are alive. seconds: between two copies.
    """

    def __init__(
        self,
        storage: Storage,
        ledger: Path,
        owner: Owner,
        said: Callable[[str], None],
        *,
        others: Callable[[], Sequence[Owner]],
        seconds: float | None = None,
    ) -> None:
        self.storage, self.ledger, self.owner, self.said = storage, ledger, owner, said
        self.others = others
        self.seconds = COPY_SECONDS if seconds is None else seconds
        self._place = f"{host_name()}:{ledger.resolve()}"
        self._note = Note()
        self._state: object = None
        self._fault = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="copies", daemon=True)

    def join(self) -> None:
        """Bring the ledger here if the storage knows more than this folder.

        Raises:
            ConfigError: another machine drives from this storage, it does not answer, its copy is
                no ledger or of another one, or somebody is at work on the one here.
            LedgerError: no file can be written here.
        """
        with self._in_words("a storage that answers", "See that it can be reached"):
            word = self._word()
            self._note = Note.read(self.ledger.parent / NOTE)  # later: it is written earlier
            if word is None:
                return
            here, ours = self.ledger.exists(), word.place == self._place
            if here:
                self._is_of(word)
            age = self._age()
            if not ours and word.alive(age):
                raise ConfigError(
                    OPTION,
                    f"{self.storage.shown}, from which {_named(word.owner)} drives "
                    f"(heard of {age:.0f} s ago)",
                    "a storage that nobody else drives from",
                    f"End that run, or wait: it counts as gone {STALE_SECONDS:.0f} s after its "
                    "last word",
                )
            if not here or (word.copy > self._count and not ours):
                self._fetch(word)

    def __enter__(self) -> Self:
        """Raises ConfigError: the storage takes nothing. LedgerError: no room for a copy here."""
        with self._in_words(
            "a storage that takes copies of this ledger", "See to its rights, or give another"
        ):
            self._tidy()
            self._copy()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._try(last=True)

    def _go_on(self) -> None:
        while not self._ended.wait(self.seconds):
            self._try(last=False)

    def _try(self, *, last: bool) -> None:
        """A copy; a storage that is away for a while stops nothing, and is told of once."""
        try:
            self._copy(over=last and not self.others())
            if self._fault:
                self._fault = ""
                self.said(f"storage: {self.storage.shown} has everything again")
        except (StorageError, OSError) as error:
            if not self._fault or last:
                self.said(f"warning: storage: {error}; {self.ledger} has everything")
            self._fault = str(error)

    def _copy(self, *, over: bool = False) -> None:
        """Word and ledger, if the ledger has changed; the word alone else, as a sign of life.

        Raises:
            StorageError: it cannot be read or written, or another machine has gone on from it.
            OSError: no copy can be made here.
        """
        word, which, count = self._word(), self._note.ledger, self._count
        if word is not None and word.place == self._place:
            which, count = word.ledger, max(count, word.copy)  # another driver's on this ledger
        elif word is not None and (word.ledger != which or word.copy > count):
            raise StorageError(
                f"{self.storage.shown}: another machine has gone on from it ({word.place}), "
                "and its copies stay"
            )
        self._noted(which or uuid.uuid4().hex, count)
        with tempfile.TemporaryDirectory(dir=self.ledger.parent, prefix=DRAFTS) as folder:
            now = state(self.ledger)
            if now != self._state:
                back_up(self.ledger, Path(folder) / LEDGER)
                self.storage.put(LEDGER, Path(folder) / LEDGER)
                count += 1
            told = Word(self._note.ledger, count, self.owner, self._place, time.time(), over)
            told.write(Path(folder) / WORD)
            self.storage.put(WORD, Path(folder) / WORD)
            self._noted(told.ledger, count)
            self._state = now

    def _is_of(self, word: Word) -> None:
        """That what is stored is this folder's ledger, of now or of before."""
        stored = self.storage.shown in self._note.copies or word.place == self._place
        if word.ledger != self._note.ledger or not stored:
            raise ConfigError(
                OPTION,
                f"{self.storage.shown} with the ledger of {word.place}, and in {self.ledger} "
                "one that was never stored there",
                "the ledger here, or none yet, in the storage, or no ledger here",
                "Give another --storage, or another --out to go on from the stored one",
            )

    def _fetch(self, word: Word) -> None:
        self._nobody_at_work()
        self.ledger.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.ledger.parent, prefix=DRAFTS) as folder:
            fresh = Path(folder) / LEDGER
            there = self.storage.get(LEDGER, fresh)
            why = fault(fresh) if there else "it is not there"
            if why is not None:
                raise ConfigError(
                    OPTION,
                    f"{self.storage.shown}/{LEDGER}, which is no whole ledger ({why})",
                    "the copy that a driver left",
                    "Give another storage, or --out with a ledger of its own",
                )
            write_ahead(fresh)  # as no ledger that is there is made again (`schema.connect`)
            self._nobody_at_work()  # nor has begun meanwhile
            aside = set_aside(self.ledger)
            # In this order: whoever is killed in between finds no ledger here, and fetches it.
            Note(word.ledger, {self.storage.shown: word.copy}).write(self.ledger.parent / NOTE)
            fresh.replace(self.ledger)
        self._note = Note.read(self.ledger.parent / NOTE)
        self.said(f"storage: the ledger came from {self.storage.shown}, of {self._age():.0f} s ago")
        if aside is not None:
            self.said(f"storage: the older one that was here is {aside}")

    def _nobody_at_work(self) -> None:
        """Raises ConfigError: a driver, a `--cell`, or whoever else has the ledger open."""
        at_work = ", ".join(map(_named, self.others()))
        if not at_work and self.ledger.exists() and not alone(self.ledger):
            at_work = "another process"
        if at_work:
            raise ConfigError(
                OPTION,
                f"{self.storage.shown}, which knows more than {self.ledger}, and {at_work} at work "
                "on that one",
                "nobody at work on it while it is replaced",
                "Wait for the end of that, or end it (`ablate stop`)",
            )

    def _tidy(self) -> None:
        """Remove the drafts of drivers that were killed, here and in storage."""
        if self.others():
            return  # one may be theirs
        for name in self.storage.folders():
            begun = name.endswith(DRAFT) and name.startswith((f"{LEDGER}.", f"{WORD}.", CLOCK))
            if begun and self.storage.now() - self.storage.written(name) > DRAFT_SECONDS:
                self.storage.delete(name)
        for left in self.ledger.parent.glob(f"{DRAFTS}*"):
            times = [path.stat().st_mtime for path in (left, *left.iterdir())]
            if time.time() - max(times) > STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)

    def _age(self) -> float:
        """Seconds since the word in storage was written."""
        return max(0.0, self.storage.now() - self.storage.written(WORD))

    def _word(self) -> Word | None:
        content = self.storage.read(WORD)
        try:
            return None if content is None else Word.parse(content)
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(f"{self.storage.shown}/{WORD} is none of ours ({error})") from error

    @property
    def _count(self) -> int:
        """The copy that the ledger here is ahead of; 0: of none in this storage."""
        return self._note.copies.get(self.storage.shown, 0)

    def _noted(self, which: str, count: int) -> None:
        path = self.ledger.parent / NOTE
        known = Note.read(path)  # anew: another driver may copy to another storage
        self._note = Note(which, {**known.copies, self.storage.shown: count})
        if self._note != known:
            self._note.write(path)

    @contextmanager
    def _in_words(self, expected: str, remedy: str) -> Iterator[None]:
        """Makes what storage or disk refuse one line."""
        try:
            yield
        except StorageError as error:
            raise ConfigError(OPTION, str(error), expected, remedy) from error
        except OSError as error:
            raise LedgerError(
                f"{self.ledger.parent}: found no way to make a copy of the ledger ({error}); "
                "expected room and rights for one beside it. See to them and start again: "
                "everything recorded is kept"
            ) from error


def _named(owner: Owner) -> str:
    return f"process {owner.pid} on {owner.host.partition('+')[0]}"


# ------------------------------------------------------------------------- files of a ledger


def fault(path: Path) -> str | None:
    """Why a file is no whole ledger that this version reads; None: it is one.

    SQLite takes an empty file for a whole database, and any other program's for one too.
    """
    try:
        found = head(path)
    except (NoDatabase, sqlite3.DatabaseError) as error:
        return str(error)
    if found is None or not found.tables:
        return "an empty file"
    if found.application_id != APPLICATION_ID:
        return "a database of another program"
    if found.user_version > VERSION:
        return f"of version {found.user_version}; this ablate reads {VERSION} at most"
    return damage(path)


def state(ledger: Path) -> tuple[tuple[int, int], ...]:
    """Changes whenever the ledger does: sizes and times of the file and of its journal."""
    found = [ledger, ledger.with_name(f"{ledger.name}-wal")]
    stats = [path.stat() for path in found if path.exists()]
    return tuple((stat.st_size, stat.st_mtime_ns) for stat in stats)


def set_aside(ledger: Path) -> Path | None:
    """Move the ledger and its journal away; where to, if there was one."""
    if not ledger.exists():
        return None
    number = 1
    while (aside := ledger.with_name(f"{ledger.name}.aside-{number}")).exists():
        number += 1
    for suffix in ("-wal", "-shm", ""):
        part = ledger.with_name(ledger.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    return aside
