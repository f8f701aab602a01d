"""Say what each column of the ledger may hold, and decode and check each row that is read.

SQLite keeps values of any type in any column, and a ledger may have been edited, damaged or made by
a stranger. All rows pass `decode_rows`, so that their readers need no guards. Of the keys in JSON
only those are checked that readers rely on: versions and plug-ins have further ones.
"""

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
    with_config,
)
from pydantic_core import from_json
from typing_extensions import TypedDict  # pydantic refuses that of Python 3.11

from ablate.ledger.limits import Limits
from ablate.ledger.schema import RESTORE, LedgerDamage
from trainables.words.messages import format_value

Row = dict[str, Any]
MOST_KEYS = 4  # of a row, in a message

Text = Annotated[str, Field(max_length=10**7)]
Name = Annotated[str, Field(max_length=1000)]
Driver = Annotated[str, Field(pattern=r"^(?s:.)*/[0-9]{1,9}/[0-9]{1,12}(\.[0-9]+)?$")]
Status = Literal["running", "done", "failed", "partial", "interrupted"]
Count = Annotated[int, Field(ge=0, le=10**12)]
Positive = Annotated[int, Field(ge=1, le=10**12)]
Position = Annotated[int, Field(ge=-1, le=10**12)]  # -1: none
Index = Annotated[int, Field(ge=0, le=10**6)]  # of a cell or proposal
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Seconds = Annotated[float, Field(ge=-1e11, le=1e11)]  # of work, or since 1970
Numbers = dict[Name, float]  # also infinite ones and NaN


class ClassFields(TypedDict):
    """A split's [mean, number of queries] by class and metric, and a digest of its classes."""

    digest: Name
    metrics: dict[Name, list[Annotated[list[float], Field(min_length=2, max_length=2)]]]


class Component(TypedDict):
    """The data, backbone, loss, method or sampler that a configuration names."""

    name: Name


class Goal(TypedDict):
    """One of the objectives of a study."""

    metric: Name
    direction: Literal["maximize", "minimize"]


class Base(TypedDict):
    """A study whose best cell another study is centred on."""

    best_of: Name


class Study(TypedDict):
    """A study of a sweep's spec, of any design."""

    design: Name
    objectives: NotRequired[list[Goal] | None]
    limits: NotRequired[Limits | None]
    around: NotRequired[list[Base] | None]


class SearchFields(Study):
    """A study of a sweep's spec whose design is `search`."""

    trials: Count
    round: Count | Name
    startup: Count
    sampler: Name | Component
    points: NotRequired[list[Row] | None]


def name_kind(study: Any) -> str:
    """Return the tag of the type of a study in a spec."""
    is_search = isinstance(study, dict) and study.get("design") == "search"
    return "(search)" if is_search else "(any)"  # in parentheses, unlike keys of the spec


class SpecFields(TypedDict):
    """The resolved spec of a sweep."""

    objective: Name
    studies: dict[
        Name,
        Annotated[
            Annotated[SearchFields, Tag("(search)")] | Annotated[Study, Tag("(any)")],
            Discriminator(name_kind),
        ],
    ]
    lineages: NotRequired[dict[Name, dict[Text, dict[Name, Count]]]]


class Provenance(TypedDict, total=False):
    """What made a sweep's plan or a trial's result."""

    versions: Row
    study_order: list[Name] | None
    metrics: Row | None


class Data(Component):
    """The data of a trial."""

    split: NotRequired[Row]
    image_size: NotRequired[Annotated[int, Field(ge=1, le=10**6)] | None]
    root: NotRequired[Text | None]


class BackboneFields(Component):
    """The backbone of a trial."""

    mode: Name


class Training(TypedDict):
    """The training of a trial."""

    epochs: Count
    batch_size: NotRequired[Positive]
    micro_batch: NotRequired[Positive | None]


@with_config(ConfigDict(strict=True))
class ConfigFields(TypedDict):
    """The configuration of a trial that is done; others may be invalid, or lack what is default."""

    data: Data
    backbone: BackboneFields
    embedding: NotRequired[Row]
    loss: Component
    method: Component
    training: Training


@with_config(ConfigDict(strict=True))
class Columns(TypedDict, total=False):
    """The columns of all tables and queries; `x_json` is decoded under the name `x`."""

    # trials
    trial_id: Name
    config_hash: Name
    seed: Seed
    config: Row
    status: Status
    reason: Text | None
    owner: Driver | None
    heartbeat: Seconds | None
    created: Seconds
    started: Seconds | None
    ended: Seconds | None
    epochs: Count | None
    steps: Count | None
    seconds: Seconds | None
    best_epoch: Count | None
    export: Text | None
    provenance: Provenance | None
    source: Name | None
    checkpoint: Text | None
    # epochs and evaluations
    epoch: Count
    metrics: dict[Name, float | None]
    split: Name
    evaluator: Name
    recorded: Seconds | None
    classes: ClassFields | None
    # sweeps and cells
    sweep_id: Name
    name: Name
    spec: SpecFields
    study: Name
    cell: Text
    fold: Position
    coords: Row
    idx: Index
    # searches
    study_key: Name
    params: Row
    beside: list[Index] | None
    needs: Numbers
    infeasible: Numbers | None
    trials: list[Name]
    # trackers, and the code that made results
    store: Text
    run_id: Name
    logged_epoch: Position
    logged_final: Count
    components: dict[Name, Name | None]
    one: Name
    other: Name
    # results of functions
    n: Count
    trial: Name


KEYS = ("trial_id", "sweep_id", "study_key", "study", "cell", "idx", "split", "epoch", "seed")
check_columns = TypeAdapter(Columns).validate_python
check_config = TypeAdapter(ConfigFields).validate_python


def decode_rows(cursor: sqlite3.Cursor, path: Path, sql: str) -> Iterator[Row]:
    """Yield the rows of a query as dicts, with `*_json` columns decoded.

    Raises:
        LedgerDamage: a row has a value that no ablate has written; the error names table and row.
    """
    columns = [column for column, *_ in cursor.description or ()]
    names = [column.removesuffix("_json") for column in columns]
    json_names = [name for name, column in zip(names, columns, strict=True) if name != column]
    for values in cursor:
        row = dict(zip(names, values, strict=True))
        try:
            for name in json_names:
                if row[name] is not None:
                    row[name] = from_json(row[name])
            check_columns(row)
            if row.get("status") == "done" and "config" in row:
                check_config(row["config"])
        except (ValueError, TypeError) as error:  # the latter: a number where JSON belongs
            raise build_damage(error, row, path, sql) from None
        yield row


def build_damage(error: Exception, row: Row, path: Path, sql: str) -> LedgerDamage:
    """Return the error for a row that `decode_rows` refuses: `row` as far as it was decoded."""
    keys = [f"{key} {row[key]!r:.60}" for key in KEYS if key in row][:MOST_KEYS]
    table = sql.rpartition(" FROM ")[2].partition(" ")[0]
    if isinstance(error, ValidationError):
        fault = error.errors(include_url=False)[0]
        parts = [str(part)[:60] for part in fault["loc"] if not str(part).startswith("(")]
        place = ".".join(parts if error.title == Columns.__name__ else ["config", *parts])
        requirement = re.sub(r"^\w+ should ", "must ", fault["msg"])
        text = f"{place}: the value {requirement}, not {format_value(fault['input'])}"
        if fault["type"] == "missing":
            text = f"{place} is missing"
    else:
        text = f"one of its texts is no JSON ({error})"
    where = f"row of {table} ({', '.join(keys)})" if keys else f"row of {table}"
    return LedgerDamage(str(path), f"a {where} was not written by ablate: {text}", RESTORE)
