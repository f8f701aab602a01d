"""What each column of a ledger may hold, checked where rows leave SQLite.

A ledger can come from somebody else, or have been edited, and SQLite keeps any value in any column.
Who reads rows further up relies on these types.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ablate.ledger.owner import Owner
from trainables.errors import ConfigError
from trainables.machine.texts import LARGEST, unfit

LATEST = 253_402_300_799  # seconds since 1970: the end of the year 9999, which dates can show
LONGEST_NAME = 4096  # characters; of a URI or a cell's coordinates
STATUSES = ("running", "done", "failed", "partial", "interrupted", "missing")

Check = Callable[[Any], bool]


def check_row(row: Mapping[str, Any], path: object) -> dict[str, Any]:
    """Return a row with its `*_json` columns decoded under the name without the suffix.

    Columns that no table has (counts, say) are taken as they are.

    Raises:
        ConfigError: a value is not of its column's type or range; names file and column.
    """
    checked: dict[str, Any] = {}
    for column, raw in row.items():
        value = raw
        if column.endswith("_json") and raw is not None:
            value = _decode(raw, column, path)
        check = _CHECKS.get(column)
        if check is not None and not (value is None and column in _NULLABLE) and not check(value):
            raise _unfit(path, column, raw)
        checked[column.removesuffix("_json")] = value
    owner = checked.get("owner")
    if owner is not None:
        Owner.parse(owner)
        if checked.get("heartbeat", 0.0) is None:
            raise _unfit(path, "heartbeat", None)
    return checked


def _decode(raw: Any, column: str, path: object) -> Any:
    if not isinstance(raw, str):
        raise _unfit(path, column, raw)
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        raise _unfit(path, column, raw) from error


def _unfit(path: object, column: str, value: Any) -> ConfigError:
    text = repr(value)
    shown = text if len(text) <= 100 else f"{text[:100]}…"
    return ConfigError(
        str(path),
        f"{shown} in the column {column}",
        "what ablate writes there",
        "The ledger was edited or damaged: restore it from a copy, or give another --out",
    )


def _is_name(value: Any) -> bool:
    return (
        isinstance(value, str)
        and len(value) <= LONGEST_NAME
        and unfit(value) is None
        and not any(each in value for each in "\n\r\t")
    )


def _is_cell(value: Any) -> bool:
    """A cell is named by values of a spec, which may be longer and have line breaks."""
    return isinstance(value, str) and unfit(value) is None


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and -1 <= value <= LARGEST


def _is_seconds(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value <= LATEST


def _is_number(value: Any) -> bool:
    whole = isinstance(value, int) and abs(value) <= LARGEST
    return isinstance(value, float) or whole


def _is_mapping(value: Any) -> bool:
    return isinstance(value, dict)


def _is_config(value: Any) -> bool:
    """A trial's configuration, as far as commands look into it; `TrialConfig` checks the rest."""
    if not isinstance(value, dict):
        return False
    parts = ("backbone", "data", "loss", "method", "optimizer", "training")
    sections = [value.get(part) or {} for part in parts]
    if not all(isinstance(section, dict) for section in sections):
        return False
    _, data, _, _, optimizer, training = sections
    return (
        all(_is_text(section.get("name", "")) for section in sections)
        and _is_number(training.get("epochs") or 0)
        and _is_number(optimizer.get("lr") or 0)
        and _is_number(data.get("image_size") or 0)
    )


def _is_metrics(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))


def _is_components(value: Any) -> bool:
    return isinstance(value, dict) and all(
        text is None or isinstance(text, str) for text in value.values()
    )


def _are_indices(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_whole, value))


def _is_spec(value: Any) -> bool:
    """A resolved spec, as far as commands look into it."""
    if not isinstance(value, dict) or not _is_name(value.get("objective")):
        return False
    studies = value.get("studies")
    return isinstance(studies, dict) and all(map(_is_study, studies.values()))


def _is_study(value: Any) -> bool:
    if not isinstance(value, dict) or not _is_name(value.get("design")):
        return False
    objectives, space = value.get("objectives"), value.get("space")
    if objectives is not None and not isinstance(objectives, list):
        return False
    return all(map(_is_goal, objectives or ())) and (space is None or isinstance(space, dict))


def _is_goal(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and _is_name(value.get("metric"))
        and value.get("direction") in ("maximize", "minimize")
    )


def _columns(check: Check, names: str) -> Iterable[tuple[str, Check]]:
    return ((name, check) for name in names.split())


_CHECKS: dict[str, Check] = dict(
    [
        *_columns(_is_name, "trial_id config_hash study split evaluator sweep_id name source"),
        *_columns(_is_name, "study_key component revision one other store run_id export owner"),
        *_columns(_is_cell, "cell"),
        *_columns(_is_text, "reason"),
        *_columns(_is_whole, "seed fold idx epoch epochs steps best_epoch"),
        *_columns(_is_whole, "logged_epoch logged_final"),
        *_columns(_is_seconds, "created started ended heartbeat recorded seconds"),
        ("status", lambda value: value in STATUSES),
        *_columns(_is_config, "config_json"),
        *_columns(_is_mapping, "provenance_json params_json coords_json"),
        *_columns(_is_metrics, "metrics_json"),
        *_columns(_is_components, "components_json"),
        *_columns(_are_indices, "beside_json"),
        *_columns(_is_spec, "spec_json"),
    ]
)
_NULLABLE = {
    "reason",
    "owner",
    "heartbeat",
    "started",
    "ended",
    "epochs",
    "steps",
    "seconds",
    "best_epoch",
    "export",
    "provenance_json",
    "source",
    "recorded",
    "beside_json",
    "status",
    "fold",
}
