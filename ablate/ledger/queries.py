"""Queries of the ledger that commands run once."""

from dataclasses import dataclass

from ablate.ledger.columns import Row
from ablate.ledger.limits import Limits, describe_needs, read_needs
from ablate.ledger.records import NO_FOLD, Records
from trainables.words.errors import ConfigError


@dataclass(frozen=True)
class Statement:
    """A SQL statement that is executed by calling it with records and values."""

    sql: str

    def __call__(self, records: Records, *values: object) -> list[Row]:
        return records.query(self.sql, values)


# all columns of all trials, in the order in which they were first claimed
list_trials = Statement("SELECT * FROM trials ORDER BY created, trial_id")
# what trials needed that have been done since a time, in seconds
list_finished_trials = Statement(
    "SELECT trial_id, config_json, status, seconds, epochs, steps, ended, provenance_json "
    "FROM trials WHERE status='done' AND ended>=?"
)
# of a sweep: study, and estimated needs beyond the limits, of the proposals that are not trained
list_infeasible = Statement(
    "SELECT study, needs_json FROM infeasible WHERE sweep_id=? ORDER BY idx"
)
# of a sweep: study, seeds: how many it had at each look at its verdicts
list_looks = Statement("SELECT study, seeds FROM looks WHERE sweep_id=? ORDER BY study, seeds")
# trial_id, status, reason of the trials that have one
list_reasons = Statement(
    "SELECT trial_id, status, reason FROM trials WHERE reason IS NOT NULL ORDER BY created"
)
# status, n, seconds of training
count_statuses = Statement(
    "SELECT status, count(*) AS n, coalesce(sum(seconds), 0) AS seconds FROM trials GROUP BY status"
)
# sweep_id, name, n: the cells known of it; the oldest sweep first
list_sweeps = Statement(
    "SELECT sweep_id, name, (SELECT count(*) FROM cells WHERE cells.sweep_id=sweeps.sweep_id) AS n "
    "FROM sweeps ORDER BY created, rowid"
)
# of a sweep: all columns of its trials, and study, cell, fold of one of the cells that each fills
list_sweep_trials = Statement(
    "SELECT trials.*, study, cell, fold FROM cells JOIN trials USING (trial_id) WHERE sweep_id=? "
    "GROUP BY trial_id ORDER BY study, idx, cells.seed, fold"
)
# of a sweep: trial_id, split, metrics of its trials; of equal splits the newest evaluation last
list_sweep_evaluations = Statement(
    "SELECT trial_id, split, metrics_json FROM evaluations WHERE trial_id IN "
    "(SELECT trial_id FROM cells WHERE sweep_id=?) ORDER BY rowid"
)
# of a sweep: trial_id, metrics of its epochs, in order, in which a text occurs
list_sweep_ratios = Statement(
    "SELECT trial_id, metrics_json FROM epochs WHERE trial_id IN "
    "(SELECT trial_id FROM cells WHERE sweep_id=?) AND metrics_json LIKE ? ORDER BY epoch"
)
# of a sweep: study, size, done, failed, stopped of the cells × seeds that are known of it
count_progress = Statement(
    "SELECT study, count(*) AS size, count(*) FILTER (WHERE status='done') AS done, "
    "count(*) FILTER (WHERE status='failed') AS failed, "
    "count(*) FILTER (WHERE status IN ('partial', 'interrupted') AND stops.epoch>=0) AS stopped "
    "FROM cells LEFT JOIN trials USING (trial_id) LEFT JOIN stops USING (sweep_id, study, cell) "
    "WHERE sweep_id=? GROUP BY study ORDER BY study"
)
# of a sweep: reason, n, trial (one of them) of its failed trials, the most frequent first
count_failures = Statement(
    "SELECT reason, count(*) AS n, min(trial_id) AS trial FROM trials WHERE status='failed' AND "
    "trial_id IN (SELECT trial_id FROM cells WHERE sweep_id=?) GROUP BY reason "
    "ORDER BY n DESC, reason"
)
# trial_id of the trials whose id starts with a text
find_trials_by_prefix = Statement(
    "SELECT trial_id FROM trials WHERE trial_id LIKE ? || '%' ORDER BY trial_id"
)
# trial_id, epoch: the last recorded epoch of each running trial
find_last_epochs = Statement(
    "SELECT trial_id, max(epoch) AS epoch FROM epochs JOIN trials USING (trial_id) "
    "WHERE status='running' GROUP BY trial_id"
)
# of a trial: sweep_id, name, study, cell, seed, fold of all cells that it fills
list_cells_of_trial = Statement(
    "SELECT sweep_id, name, study, cell, seed, fold FROM cells JOIN sweeps USING (sweep_id) "
    "WHERE trial_id=? ORDER BY created, study, idx, seed, fold"
)
# of a trial: study_key, idx of the proposals of searches that have its configuration
list_proposals_of_trial = Statement(
    "SELECT study_key, idx FROM proposals JOIN trials USING (config_hash) WHERE trial_id=?"
)


def count_unlogged(records: Records, store: str, sweep_id: str) -> int:
    """Count the ended trials of a sweep that are not completely logged in a tracker's store."""
    rows = records.query(
        "SELECT count(DISTINCT trial_id) AS n FROM cells JOIN trials USING (trial_id) WHERE "
        "sweep_id=? AND status!='running' AND NOT EXISTS (SELECT 1 FROM mlflow_runs AS m WHERE "
        "m.store=? AND m.sweep_id=cells.sweep_id AND m.trial_id=cells.trial_id AND "
        "m.logged_final>0)",
        [sweep_id, store],
    )
    return int(rows[0]["n"])


def format_cell_address(cell: Row) -> str:
    """Return `STUDY/CELL@SEED[.FOLD]`, the format of `--cell`."""
    fold = "" if cell["fold"] in (None, NO_FOLD) else f".{cell['fold']}"
    name = str(cell["cell"]).replace("\n", "\\n")  # a text value of a spec may have several lines
    return f"{cell['study']}/{name}@{cell['seed']}{fold}"


def mark_infeasible(records: Records, sweep_id: str) -> list[Row]:
    """Return the rows of a sweep's cells; `infeasible` says what of a cell exceeded its limits."""
    rows, reasons = records.list_cells(sweep_id), dict[tuple[str, str], str]()
    studies = records.get_sweep(sweep_id)["spec"].get("studies") or {}
    for row in rows:
        limits = (studies.get(row["study"]) or {}).get("limits") or {}
        trial = records.get_trial(row["trial_id"]) if limits else None
        if trial and (needs := Limits(**limits).select_excessive(read_needs(trial))):
            reasons[row["study"], row["cell"]] = f"it needed {describe_needs(needs)}"
    return [row | {"infeasible": reasons.get((row["study"], row["cell"]))} for row in rows]


def find_sweep(records: Records, id_or_name: str | None, path: str) -> str:
    """Return the id of the latest sweep with this id or name, or of the latest one if None.

    Raises:
        ConfigError: there is no such sweep; `path` is the option or field that names the sweep.
    """
    latest_first = list_sweeps(records)[::-1]
    for sweep in latest_first:
        if id_or_name in (None, sweep["sweep_id"], sweep["name"]):
            return str(sweep["sweep_id"])
    if not latest_first:
        raise ConfigError(path, "the ledger has no sweep", "Run a sweep first")
    sweeps = ", ".join(f"{s['name']} ({s['sweep_id']})" for s in latest_first)
    raise ConfigError(path, f"{id_or_name!r} is no sweep of the ledger", f"Choose one of {sweeps}")
