"""A null method through a shipped comparison; `make soak` has 400 repetitions of each of them."""

from __future__ import annotations

from pathlib import Path

from tests.ablate import planted

REPETITIONS = 16


def test_a_method_without_effect_is_the_plain_loss_and_a_gain_is_found(tmp_path: Path) -> None:
    fair = planted.simulate("networks", REPETITIONS, 0.15)
    assert abs(fair["bias"]) < planted.MOST_BIAS + 3 * fair["sd"] / REPETITIONS**0.5
    assert fair["better"] + fair["worse"] <= 0.25
    assert fair["power"] > 0.8
    # the stages that networks.yaml had before: the plain loss alone searches rates once more
    text = (
        f"extends: {planted.SPACES / 'comparisons/networks.yaml'}\nname: biased\n"
        "studies: {tune_ddml: {around: {best_of: near}}}\n"
    )
    (tmp_path / "biased.yaml").write_text(text, encoding="utf-8")
    biased = planted.simulate(str(tmp_path / "biased"), REPETITIONS, 0.15)
    assert biased["sd"] > 1.5 * fair["sd"] and biased["bias"] < fair["bias"]
    assert biased["power"] < fair["power"]
