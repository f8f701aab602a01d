"""What a report says of a search within limits."""

from __future__ import annotations

import math

from ablate.ledger.ledger import Ledger
from reports.best import format_best_config
from reports.frame import load_frame
from reports.recipe import Table
from reports.tables.build import build_table
from tests.reports.conftest import Sweep


def test_the_table_says_what_was_infeasible(sweep: Sweep) -> None:
    sweep.plan(seeds=1, studies=("tune",))
    with Ledger(sweep.ledger_path) as ledger:
        row = ledger.get_sweep(sweep.sweep_id)
        row["spec"]["studies"]["tune"]["limits"] = {"memory": 20_000_000_000, "seconds": 600.0}
        ledger.put_sweep(sweep.sweep_id, row["name"], row["spec"], row["provenance"])
        trials = [cell["trial_id"] for cell in ledger.list_cells(sweep.sweep_id)]
    sweep.finish(trials)
    with Ledger(sweep.ledger_path) as ledger:
        needs = [{"memory": 3e10}, {"memory": 3e10, "seconds": 900.0}, {"seconds": 700.0}]
        for idx, need in enumerate(needs, start=6):
            ledger.put_infeasible("key", idx, sweep.sweep_id, "tune", need)
        with ledger.begin_transaction() as db:  # the best one took too long
            db.execute("UPDATE trials SET seconds=700 WHERE trial_id=?", [trials[3]])
    sweep.track()
    frame = load_frame(sweep.uri, sweep.sweep_id)
    table = build_table(
        frame, Table(kind="search", study="tune", top=10, metrics=("val/map_at_r",))
    )
    assert "0003" not in [row.cell for row in table.rows] and len(table.rows) == 5
    notes = " ".join(table.notes)
    assert "not trained: 3 proposals (memory: 2, seconds: 2)" in notes
    assert "Without a result: 1 infeasible" in notes
    assert "Trained, and beyond the limits: 0003 (it needed 700 seconds)." in notes
    assert math.isnan(frame.cells.set_index("cell")["val/map_at_r"]["0003"])
    best = format_best_config(frame, "tune")
    assert best is not None and "cell 0003" not in best
