"""The points that MLflow should have of a ledger, computed independently of the tracker."""

from __future__ import annotations

from collections import Counter

from ablate.ledger.ledger import Ledger

Point = tuple[str, str, float, int, int]  # trial, key, value, time in ms, step


def list_expected_points(ledger: Ledger) -> Counter[Point]:
    """Return every point that MLflow should have, each once."""
    points: Counter[Point] = Counter()
    for trial in ledger.query("SELECT * FROM trials"):
        name, step = trial["trial_id"], trial["best_epoch"]
        created, ended = round(1000 * trial["created"]), round(1000 * trial["ended"])
        for row in ledger.list_epochs(name):
            at = created + round(1000 * row["seconds"])
            points.update(
                (name, key, value, at, row["epoch"])
                for key, value in row["metrics"].items()
                if value is not None
            )
        recorded = ledger.get_recorded_times(name)
        for split, metrics in ledger.get_evaluations(name).items():
            at = round(1000 * recorded[split])
            points.update(
                (name, f"final/{split}/{key}", value, at, step)
                for key, value in metrics.items()
                if value is not None
            )
        points.update(
            (name, f"final/{key}", float(trial[key]), ended, step)
            for key in ("best_epoch", "epochs", "steps", "seconds")
        )
    return points
