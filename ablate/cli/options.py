"""From parsed arguments to a run's options; each fault names its option."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ablate.values.seeds import MAX_SEED, MAX_SEEDS
from trainables.errors import ConfigError

if TYPE_CHECKING:
    from ablate.api import Options

LONGEST = 100 * 366 * 86400.0  # seconds
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "": 1.0}


def seconds(text: str, option: str = "--budget") -> float:
    """`2h`, `90m`, `1h30m`, `45` (seconds)."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([hms]?)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ConfigError(option, repr(text), "a duration such as 2h, 90m or 1h30m")
    total = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if total > LONGEST:
        raise ConfigError(option, repr(text[:40]), "at most 100 years", "Leave it out for no end")
    return total


def budget(text: str) -> float:
    """A duration above zero."""
    limit = seconds(text)
    if limit == 0:
        raise ConfigError(
            "--budget", repr(text), "more than no time", "To run nothing, give --plan"
        )
    return limit


def seed_option(text: str) -> int | tuple[int, ...]:
    """`5` for 0…4, or `0,3,4`."""
    expected = "a number of seeds, or a list such as 0,1,5"
    if not re.fullmatch(r"\d{1,10}(,\d{1,10})*,?", text):
        raise ConfigError("--seeds", repr(text), expected)
    numbers = tuple(int(number) for number in text.strip(",").split(","))
    if "," not in text and not 1 <= numbers[0] <= MAX_SEEDS:
        raise ConfigError(
            "--seeds",
            repr(text),
            f"{expected}; 1 to {MAX_SEEDS} of them",
            "For the one seed 0 alone, give 0,",
        )
    if len(numbers) > MAX_SEEDS or max(numbers) > MAX_SEED:
        raise ConfigError("--seeds", repr(text), f"at most {MAX_SEEDS} seeds, each ≤ {MAX_SEED}")
    if len(set(numbers)) != len(numbers):
        raise ConfigError("--seeds", repr(text), "each seed once")
    return numbers if "," in text else numbers[0]


def settings(pairs: Sequence[str]) -> dict[str, Any]:
    """`--set optimizer.lr=1e-4`, typed as YAML types it."""
    from ablate.spec.yaml_loader import load_text

    chosen: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ConfigError("--set", repr(pair), "key=value", "As in --set optimizer.lr=1e-4")
        if key in chosen:
            raise ConfigError(f"--set {key}", "it twice", "each key once", "Remove one")
        chosen[key] = load_text(value, f"--set {key}").data
    return chosen


def options_of(args: argparse.Namespace) -> Options:
    from ablate.api import Options

    limit = getattr(args, "budget", None)
    interval = getattr(args, "checkpoint_seconds", None)
    patience = getattr(args, "stuck_after", None)
    return Options(
        out=args.out,
        dataset=args.dataset,
        data_root=args.data_root,
        allow_partial=args.allow_partial,
        device=args.device,
        seeds=None if args.seeds is None else seed_option(args.seeds),
        settings=settings(args.settings),
        studies=tuple(args.studies),
        address=getattr(args, "address", None),
        storage=getattr(args, "storage", None),
        budget=None if limit is None else budget(limit),
        retry_failed=getattr(args, "retry_failed", False),
        force=getattr(args, "force", False),
        same_code=args.same_code,
        tracking_uri=getattr(args, "tracking_uri", None),
        report=not getattr(args, "no_report", False),
        checkpoint_seconds=seconds("10" if interval is None else interval, "--checkpoint-seconds"),
        stuck_after=None if patience is None else seconds(patience, "--stuck-after") or None,
    )
