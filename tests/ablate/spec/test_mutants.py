"""250 mutated specs: each plans, or says in one line what is wrong; never a traceback."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from ablate.ledger.facts import Facts
from ablate.ledger.ledger import Ledger
from ablate.plan.checks import build_checked_plan
from ablate.plan.plan import Overrides
from ablate.spec.read import read_spec
from ablate.spec.yaml_loader import load_yaml
from ablate.sweep.progression import Progression
from tests.ablate import specs, synthetic
from tests.ablate.spec import mutants
from trainables.words.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3] / "search_spaces"
SHIPPED = sorted((*ROOT.glob("*.yaml"), *ROOT.glob("comparisons/*.yaml")))
BATCHES, PER_BATCH = 5, 50

MORE: dict[str, Any] = {
    "one": {
        "design": "one_factor",
        "factors": {
            "method.alpha": [0.1, 1],
            "head": {"small": {"embedding.dim": 64}, "large": {"embedding": {"dim": 256}}},
        },
    },
    "half": {
        "design": "factorial",
        "fraction": "fractional",
        "resolution": 4,
        "factors": {
            "method.alpha": [0, 1],
            "method.beta": [0, 1],
            "method.gamma": [0, 1e-3],
            "loss": [{"name": "normsoftmax"}, {"name": "proxy_anchor"}],
        },
    },
    "some": {
        "design": "factorial",
        "exclude": [{"method.alpha": 0, "method.beta": [0, 1]}],
        "factors": {"method.alpha": [0, 1, 2], "method.beta": [0, 1]},
    },
    "without": {
        "design": "leave_one_out",
        "around": {"best_of": "tune"},
        "components": {"a": {"method.alpha": 0}, "b": {"method.beta": 0}},
    },
    "better": {"design": "promote", "of": "tune", "best": 3, "trial": {"training": {"epochs": 9}}},
    "finest": {
        "design": "promote",
        "of": "better",
        "share": 0.5,
        "take": ["optimizer.lr"],
        "trial": {"data.image_size": 128},
    },
    "third": {
        "design": "grid",
        "around": {"best_of": "better", "rank": 3},
        "grid": {"method.beta": [0.1, 1]},
    },
    "crossed": {
        "design": "compare",
        "around": {"best_of": "{centre}"},
        "cross": {
            "centre": {"tune": {}, "one": {}},
            "loss": {"ns": {"trial": {"loss": {"name": "normsoftmax"}}}, "pa": {}},
        },
        "exclude": [{"centre": "one", "loss": ["pa"]}],
    },
}
MADE = specs.spec()
MADE["studies"] |= MORE


def unfold(given: Any, folder: Path) -> str | None:
    """Plan a spec; the message if that is refused."""
    try:
        plan = build_checked_plan(read_spec(given), Overrides(), synthetic.fingerprint, folder)
    except ConfigError as error:
        return str(error)
    with Ledger(folder / "none.sqlite") as ledger:
        Progression(plan, Facts(ledger, None, retry_failed=False), record=False).list_new_cells()
    plan.resolve_spec()
    return None


def is_clear(message: str) -> bool:
    """Whether it is one line with a place and a sentence."""
    place, _, sentence = message.partition(": ")
    return bool(place and sentence) and "\n" not in message and len(message) < 2000


@pytest.mark.parametrize(
    "batch", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, *range(2, BATCHES)))]
)
def test_a_mutated_spec_plans_or_says_what_is_wrong(batch: int, tmp_path: Path) -> None:
    rng = random.Random(f"mutants {batch}")
    refused = 0
    for number in range(PER_BATCH):
        source = rng.choice([MADE, *SHIPPED])
        if isinstance(source, Path) and number % 4 == 0:
            given: Any = tmp_path / source.name
            given.write_text(mutants.of_text(source.read_text(encoding="utf-8"), rng))
        else:
            base = load_yaml(source).data if isinstance(source, Path) else source
            given = mutants.of_data({k: v for k, v in base.items() if k != "extends"}, rng)
        try:
            message = unfold(given, tmp_path)
        except Exception as error:
            raise AssertionError(f"batch {batch}, mutant {number}: {_told(given)}") from error
        if message is not None:
            refused += 1
            assert is_clear(message), f"{message}\nbatch {batch}, mutant {number}: {_told(given)}"
    assert refused > PER_BATCH // 4, "most mutants have a fault"
    assert unfold(MADE, tmp_path) is None, "the spec without a fault passes"


def _told(given: Any) -> str:
    return given.read_text() if isinstance(given, Path) else repr(given)
