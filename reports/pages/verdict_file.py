"""Write and read `verdicts.json`, which has every comparison of a report."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from reports.frame import Frame
from reports.stats.paired import Difference
from reports.tables.verdict import PrintedGain, Verdict
from trainables.words.errors import ReportError

VERSION = 1


@dataclass(frozen=True)
class SweepVerdicts:
    """The comparisons of one sweep."""

    sweep: str
    sweep_id: str
    rule: str
    verdicts: tuple[Verdict, ...]


def format_verdicts(frame: Frame, verdicts: Sequence[Verdict]) -> str:
    """Return the text of `verdicts.json`, with differences on the scale of the metric."""
    document = {
        "version": VERSION,
        "sweep": frame.document["name"],
        "sweep_id": frame.document["sweep_id"],
        "rule": frame.recipe.rule,
        "verdicts": [asdict(verdict) for verdict in verdicts],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def read_verdicts(path: Path) -> SweepVerdicts:
    """Read a `verdicts.json`; ReportError if it does not exist or has another version."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror}.") from None
    if document.get("version") != VERSION:
        raise ReportError(
            f"{path} has version {document.get('version')}, which is not supported. "
            "Write the report again."
        )
    verdicts = []
    for fields in document["verdicts"]:
        gap, printed = fields["difference"], fields["printed"]
        fields["difference"] = Difference(**gap) if gap else None
        fields["printed"] = None  # files of earlier versions lack the difference beside a gain
        if printed and "measured" in printed:
            measured = Difference(**printed.pop("measured"))
            fields["printed"] = PrintedGain(measured=measured, **printed)
        fields |= {key: tuple(value) for key, value in fields.items() if isinstance(value, list)}
        verdicts.append(Verdict(**fields))
    return SweepVerdicts(document["sweep"], document["sweep_id"], document["rule"], tuple(verdicts))
