"""Judge runs that other programs made: a table of runs becomes a Frame, which all tables read.

    judged = judge_runs(read_runs("runs.csv"), row="method", block="seed", metric="map_at_r")
    print(judged.text); judged.verdicts; judged.write("judged")

The rules, notes and files are those of a sweep's report (`reports/tables/verdict.py`). A table has
no plan, so how its rows were tuned is not known and not judged.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from reports.frame import DataFrame, Frame, Parent, build_trials_table
from reports.kinds import DEFAULT_RULE
from reports.recipe import Recipe
from reports.stats.comparison_rule import Sample, judge, load_rule
from reports.tables.build import build_all
from reports.tables.cells import find_smallest, group_by_cell
from reports.tables.model import AnyTable
from reports.tables.verdict import DECIDED, Verdict, judge_tables
from trainables.words.errors import ConfigError
from trainables.words.files import write_atomically
from trainables.words.messages import describe_unknown
from trainables.words.metrics import MetricName, find_metric, is_listed, is_lower_better, is_share

STUDY = "runs"
# columns that name the data set, of which a comparison has one
DATA_COLUMNS = ("dataset", "data_set", "data", "data.name", "data/name", "params.data.name")
STATUS_COLUMNS = ("status", "state")  # of MLflow, W&B and our exports
FAILED = ("failed", "crashed", "killed", "error")
UNFINISHED = ("running", "pending", "scheduled", "missing", "interrupted", "partial")
ENDINGS = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson", ".json")
SHOWN, MOST_COLUMNS = 5, 40  # data sets and columns in a message


@dataclass(frozen=True)
class RunVerdicts:
    """The verdicts on a table of runs.

    Attributes:
        frame: the runs as cells. tables, verdicts: those of the report.
        false_share: of shuffled tables, the share with a verdict "better" or "worse"; None if no
            table was shuffled.
    """

    frame: Frame
    tables: tuple[AnyTable, ...]
    verdicts: tuple[Verdict, ...]
    false_share: float | None = None

    @cached_property
    def text(self) -> str:
        """Verdict and table for a terminal."""
        from reports.compile import format_terminal_text
        from reports.pages.verdict_text import VerdictSection

        section = VerdictSection("", self.verdicts, None)
        text = format_terminal_text(self.frame, self.tables, section, ())
        if self.false_share is None:
            return text
        return (
            f"{text}\nControl: of tables whose rows are shuffled within each block, "
            f"{100 * self.false_share:.1f} % have a verdict (nominally 5 %)."
        )

    def write(self, folder: str | Path) -> dict[str, Path]:
        """Write tables (CSV, LaTeX), forest plot, `verdict.txt` and `verdicts.json`; return all."""
        from reports.compile import format_table_files
        from reports.figures.forest import draw_forest_plot
        from reports.pages.verdict_text import format_verdicts

        folder, texts = Path(folder), {"verdict.txt": f"{self.text}\n"}
        folder.mkdir(parents=True, exist_ok=True)
        texts["verdicts.json"] = format_verdicts(self.frame, self.verdicts)
        for table in self.tables:
            texts |= format_table_files(table)
        for name, text in texts.items():
            write_atomically(folder / name, text.encode())
        plot = draw_forest_plot(self.verdicts)
        drawn = plot.save_files(folder).values() if plot is not None else ()
        return {path.name: path for path in (*(folder / name for name in texts), *drawn)}


def read_runs(path: str | Path) -> DataFrame:
    """Read a table of runs: CSV, TSV, Parquet, JSON lines, or a JSON list of objects.

    `mlflow:URI#EXPERIMENT` reads the runs of an experiment: parameters, tags and metrics are
    columns, a parameter before a tag or a metric of the same name.
    """
    import pandas as pd

    text = str(path)
    if text.startswith("mlflow:"):
        return _read_mlflow(text.removeprefix("mlflow:"))
    file, ending = Path(text), Path(text).suffix.lower()
    if ending not in ENDINGS:
        raise ConfigError(text, "this is no table of runs", f"Give a file {', '.join(ENDINGS)}")
    try:
        if ending in (".csv", ".tsv"):
            with file.open(encoding="utf-8-sig") as stream:
                first = stream.readline()
            counts = {sign: first.count(sign) for sign in (",", ";", "\t")}
            return pd.read_csv(file, sep=max(counts, key=counts.__getitem__), encoding="utf-8-sig")
        if ending == ".parquet":
            return pd.read_parquet(file)
        return pd.read_json(file, lines=ending != ".json", dtype=False)
    except OSError as error:
        raise ConfigError(text, f"the file cannot be read ({error.strerror or error})") from None
    except ValueError as error:  # what pandas and pyarrow raise for text that is no table
        raise ConfigError(
            text,
            f"this is no {ending[1:]} table ({str(error).splitlines()[0]})",
            "Export the runs again",
        ) from None


def _read_mlflow(address: str) -> DataFrame:
    """Return a row for each run of an experiment, given as URI#NAME."""
    import pandas as pd

    from reports.store import open_client, search_runs

    uri, _, name = address.rpartition("#")
    client = open_client(uri)
    known = {each.name: each.experiment_id for each in client.search_experiments()}
    if name not in known:
        raise ConfigError(f"mlflow:{address}", *describe_unknown("the experiment", name, known))
    rows = [
        {
            **run.data.metrics,
            **run.data.tags,
            **run.data.params,
            "run_id": run.info.run_id,
            "status": run.info.status,
        }
        for run in search_runs(client, [known[name]], "")
    ]
    return pd.DataFrame(rows)


def judge_runs(
    runs: DataFrame,
    *,
    row: str | Sequence[str],
    metric: str,
    block: str = "seed",
    split: str | None = None,
    baseline: str | None = None,
    smallest: float | None = None,
    lower_is_better: bool | None = None,
    where: Mapping[str, str] | None = None,
    failed: Literal["worst"] | None = None,
    rule: str = DEFAULT_RULE,
    name: str = "runs",
    shuffles: int = 0,
) -> RunVerdicts:
    """Judge the rows of a table of runs against one of them, by paired differences.

    Args:
        runs: one line for each run.
        row: the column, or columns, that name the method; their values name the rows.
        metric: the column of values. One of the table of metrics (`map_at_r`, `test/recall_at_1`)
            may be a share or in per cent; others are taken as they are, and need `smallest`.
        block: the column by which runs of different rows are pairs, such as the seed.
        split: the column of class splits; claims are then about further classes, and runs with
            several values of `block` on a split are averaged.
        baseline: the row that others are compared with; the first one in the table by default.
        smallest: δ, the smallest difference of interest, in points for shares.
        lower_is_better: of a metric that the table of metrics does not have.
        where: column → the value of the lines to judge.
        failed: "worst" counts failed runs as the worst; by default their rows stay undecided.
        rule: that gives the intervals. name: of the report.
        shuffles: number of tables whose rows are shuffled within each block, as a control.

    Raises:
        ConfigError: a column is missing, two runs are of one row and block, values are no numbers,
            or the runs are of several data sets.
    """
    columns = [row] if isinstance(row, str) else list(row)
    for option, wanted in (*(("--row", each) for each in columns), ("--block", block)):
        _check_column(runs, option, wanted)
    _check_column(runs, "--metric", metric)
    for column, value in (where or {}).items():
        _check_column(runs, "--where", column)
        runs = runs[runs[column].astype(str) == str(value)]
    if runs.empty:
        if where:
            raise ConfigError("--where", "no run is left", "Give values that the table has")
        raise ConfigError("RUNS", "the table has no runs", "Export the runs again")
    if split is not None:
        _check_column(runs, "--split", split)
    _check_names(runs, [*columns, block, *([] if split is None else [split])])
    runs = runs.assign(**{"_row": runs[columns].astype(str).agg(", ".join, axis=1)})
    _check_one_data_set(runs, {*columns, block, split})
    status = _read_status(runs)
    values, shown, delta = _scale_values(runs[metric].where(status == "done"), metric, smallest)
    status = status.mask((status == "done") & values.isna(), "failed")
    keys = ["_row", block] if split is None else ["_row", split, block]
    # a run that failed and was repeated at its seed does not count
    is_done = status == "done"
    has_done = is_done.groupby([runs[key] for key in keys]).transform("any")
    runs = runs.assign(_value=values, _status=status)[is_done | ~has_done]
    twice = runs[runs.duplicated(keys, keep=False)]
    if len(twice):
        first = twice.iloc[0]
        found = ", ".join(f"{key.strip('_')} {first[key]}" for key in keys)
        raise ConfigError(
            "--block",
            f"{int((twice[keys] == first[keys]).all(axis=1).sum())} runs are of {found}",
            "Give a further --row, --where, or another --block",
        )
    names = list(dict.fromkeys(runs["_row"]))
    if baseline is not None and baseline not in names:
        raise ConfigError("--baseline", *describe_unknown("the row", baseline, names))
    if len(names) < 2:
        raise ConfigError("--row", f"all runs are of the row {names[0]!r}", "Name another column")
    frame = _build_frame(
        runs.assign(_split=None if split is None else runs[split]),
        names=[baseline, *(each for each in names if each != baseline)] if baseline else names,
        block=block,
        header=", ".join(columns),
        metric=shown,
        objective=lower_is_better,
        report={"smallest": {shown.rpartition("/")[2]: delta}, "rule": rule, "failed": failed},
        name=name,
    )
    tables = build_all(frame, frame.recipe)
    verdicts = judge_tables(frame, tables)
    share = _shuffle_rows(frame, shown, shuffles) if shuffles else None
    return RunVerdicts(frame, tuple(tables), tuple(verdicts), share)


def _check_column(runs: DataFrame, option: str, column: str) -> None:
    if column not in runs.columns:
        known = map(str, runs.columns[:MOST_COLUMNS])
        raise ConfigError(option, *describe_unknown("the column", column, known))


def _check_names(runs: DataFrame, columns: Sequence[str]) -> None:
    """Refuse runs whose row or block is not known."""
    for column in columns:
        if (missing := runs.index[runs[column].isna()]).size:
            count, line = f"{len(missing)} of {len(runs)} runs", missing[0] + 2
            raise ConfigError(
                f"the column {column}",
                f"{count} have no value, the first in line {line}",
                "Fill the values in, or remove these runs",
            )


def _check_one_data_set(runs: DataFrame, used: set[str | None]) -> None:
    """Refuse runs of several data sets, whose differences say nothing about methods."""
    for column in runs.columns:
        if str(column).casefold() in DATA_COLUMNS and column not in used:
            found = list(dict.fromkeys(runs[column].dropna().astype(str)))
            if len(found) > 1:
                raise ConfigError(
                    str(column),
                    f"the runs are of {len(found)} data sets: {', '.join(found[:SHOWN])}",
                    f"Give --where {column}={found[0]}",
                )


def _read_status(runs: DataFrame) -> Any:
    """Return each run's status: done, failed, or running for one that has not ended."""
    import pandas as pd

    for column in runs.columns:
        if str(column).casefold() in STATUS_COLUMNS:
            texts = runs[column].astype(str).str.casefold()
            states = {**dict.fromkeys(FAILED, "failed"), **dict.fromkeys(UNFINISHED, "running")}
            return texts.map(states).fillna("done")
    return pd.Series("done", index=runs.index)


def _scale_values(column: Any, metric: str, smallest: float | None) -> tuple[Any, str, float]:
    """Return the values, the metric's name in the Frame, and δ as the report states it."""
    import pandas as pd

    values = pd.to_numeric(column, errors="coerce")
    if (wrong := column[values.isna() & column.notna()]).size:
        raise ConfigError(
            "--metric",
            f"{metric} has the value {wrong.iloc[0]!r}, which is no number",
            "Write plain numbers, such as 0.53 or 53.2, and leave those of failed runs empty",
        )
    values = values.where(np.isfinite(values))
    if smallest is not None and not 0 < smallest < math.inf:
        raise ConfigError("--smallest", f"{smallest:g} is no difference", "Give a positive number")
    split, _, last = metric.rpartition("/")
    last = re.sub(r"^(r|recall)@", "recall_at_", last.casefold()).replace("@", "_at_")
    shown = str(MetricName(split.rpartition(".")[2] or "test", last))
    if is_listed(last) and is_share(shown):
        sizes, one = values.abs(), 1 + 1e-6  # shares in float32 can be a little above 1
        if (sizes > one).any():
            if ((sizes > 0) & (sizes <= one)).any() or (sizes > 100 * one).any():
                raise ConfigError(
                    "--metric",
                    f"{metric} has values from {values.min():g} to {values.max():g}",
                    "Give shares, or all values in per cent",
                )
            values = values / 100
        return values, shown, find_metric(last).smallest if smallest is None else smallest
    if smallest is None:
        raise ConfigError(
            "--smallest",
            f"no smallest difference of interest is known for {metric}",
            "Give one, in the unit of the metric",
        )
    return values, metric, smallest


def _build_frame(
    runs: DataFrame,
    *,
    names: Sequence[str],
    block: str,
    header: str,
    metric: str,
    objective: bool | None,
    report: Mapping[str, Any],
    name: str,
) -> Frame:
    """Return the Frame of a comparison of rows, as a sweep that compares them would have it."""
    has_splits, order = bool(runs["_split"].notna().any()), {n: i for i, n in enumerate(names)}
    splits = {value: i for i, value in enumerate(dict.fromkeys(runs["_split"]))}
    seeds = _number_blocks(runs[block])
    ids = runs["run_id"] if "run_id" in runs.columns else [f"line {i + 2}" for i in runs.index]
    rows = []
    fields = ("_row", "_split", block, "_value", "_status")
    for run_id, (row, split, seed, value, status) in zip(
        ids, runs[list(fields)].itertuples(index=False), strict=True
    ):
        cell = {"study": STUDY, "cell": row, "idx": order[row], "coords": {header: row}}
        cell["fold"] = splits[split] if has_splits else None
        rows.append(
            {
                **{"trial_id": str(run_id), "run_id": str(run_id), "seed": seeds[seed]},
                **{"status": status, "reason": "", "config": {}, "params": {}, "ratios": {}},
                "tags": {"ablate.cells": json.dumps([cell])},
                metric: value,
            }
        )
    rows.sort(key=lambda each: json.loads(each["tags"]["ablate.cells"])[0]["idx"])
    study: dict[str, Any] = {"design": "compare", "seeds": len(seeds)}
    study |= {"splits": len(splits)} if has_splits else {}
    lower = is_lower_better(metric) if objective is None else objective
    study["objectives"] = [{"metric": metric, "direction": "minimize" if lower else "maximize"}]
    table = {"kind": "compare", "study": STUDY, "metrics": [metric], "title": name}
    table |= {"baseline": names[0]}
    recipe = Recipe.model_validate({**report, "tables": [table], "primary": metric})
    digest = hashlib.sha256(json.dumps(rows, default=str).encode()).hexdigest()[:16]
    document: dict[str, Any] = {
        "is_foreign": True,
        **{"name": name, "sweep_id": digest, "studies": {STUDY: study}, "objective": metric},
        "report": recipe.model_dump(mode="json"),
    }
    return Frame(None, [Parent("", "", {}, document)], build_trials_table(rows))


def _number_blocks(blocks: Any) -> dict[Any, int]:
    """Return block → number: whole numbers stay, others are counted."""
    found = list(dict.fromkeys(blocks))
    if all(str(each).isdecimal() for each in found):
        numbers = {each: int(each) for each in found}
        if len({*numbers.values()}) == len(found):  # "1" and "01" are two blocks
            return numbers
    return {each: i for i, each in enumerate(sorted(found, key=str))}


def _shuffle_rows(frame: Frame, metric: str, shuffles: int) -> float:
    """Return the share of tables with a verdict whose rows are shuffled within each block.

    Rows are exchanged in blocks that all have; shuffled rows do not differ, so a verdict is false.
    """
    values = group_by_cell(frame.select_study(STUDY), metric)
    baseline, *others = dict.fromkeys(map(str, frame.cells["cell"]))
    blocks = [set(values.get(cell, {})) for cell in (baseline, *others)]
    common = sorted(set.intersection(*blocks))
    if len(common) < 2:
        raise ConfigError(
            "--shuffles",
            f"all rows have results at {len(common)} common blocks, and two are needed",
            "Leave out --shuffles, or rows with other blocks by --where",
        )
    table = np.array([[values[cell][b] for b in common] for cell in (baseline, *others)])
    rule, rng, found = load_rule(frame.recipe.rule), np.random.default_rng(0), 0
    lower = frame.get_objective(STUDY)[1] is False
    for _ in range(shuffles):
        mixed = rng.permuted(table, axis=0)
        cells = [dict(zip(common, map(float, line), strict=True)) for line in mixed]
        sample = Sample(cells[0], dict(zip(others, cells[1:], strict=True)), planned=len(common))
        judged = judge(
            rule, sample, smallest=find_smallest(frame, metric) or math.inf, lower_is_better=lower
        )
        found += any(each.call in DECIDED for each in judged.values())
    return found / shuffles
