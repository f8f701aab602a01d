"""`space: default`: the axes that optimiser, loss and method state beside their options."""

from __future__ import annotations

from typing import Any

import pytest

from ablate.designs.search import Search
from ablate.search.space import Axis
from ablate.spec.expansion import list_section_axes
from ablate.spec.read import read_spec
from tests.ablate import specs
from trainables.config.network import BackboneConfig
from trainables.losses.base import LOSSES
from trainables.methods.base import METHODS
from trainables.words.errors import ConfigError

RATES = ["optimizer.lr", "optimizer.multipliers.proxies", "optimizer.multipliers.auxiliary"]
WEIGHTS = ["method.alpha", "method.beta", "method.gamma"]


def space(space: Any, **trial: Any) -> dict[str, Axis]:
    study = {"design": "search", "trials": 4, "space": space, "trial": trial}
    content = {"name": "default", "trial": {"loss.name": "normsoftmax"}, "studies": {"s": study}}
    read = read_spec(content).spec.studies["s"]
    assert isinstance(read, Search)
    return read.space


def test_all_sections_or_one_of_them() -> None:
    ddml = {"method": {"name": "ddml"}}
    relative = ["method.weights", *WEIGHTS]
    assert [*space("default", **ddml)] == [*RATES, "loss.temperature", *relative]
    mixed = space(
        {
            "method": "default",
            "method.beta": {"choice": [0.1]},
            "optimizer.lr": {"low": 1e-4, "high": 1e-3},
        },
        **ddml,
    )
    assert sorted(mixed) == sorted([*WEIGHTS, "optimizer.lr"])
    assert mixed["method.beta"].choice == (0.1,)


def test_weights_of_terms_are_searched_as_ratios_of_gradients() -> None:
    axes = space({"method": "default"}, method={"name": "nir"})
    assert axes.keys() >= {"method.weights", "method.weight", "method.flow.depth"}
    assert "method.omega" not in axes, "it would scale both terms"
    assert axes["method.weights"].choice == ("relative",)
    assert axes["method.weight"].list_ends() == [1e-3, 1.0] and axes["method.weight"].log
    detreg = space({"method": "default"}, method={"name": "detreg"})
    assert detreg["method.lambda1"].list_ends() == [1e-5, 1e-2], "1e-2 costs it seven points"
    for name in METHODS:
        weights = METHODS[name].WEIGHTS
        options = {option for term in weights if term != "metric" for option in weights[term]}
        if options:
            axes = space({"method": "default"}, method={"name": name})
            assert {f"method.{option}" for option in options} <= axes.keys()
            for end in (0, 1):
                values = {option: axes[f"method.{option}"].list_ends()[end] for option in options}
                METHODS[name].Config(name=name, **values, weights="relative")


@pytest.mark.parametrize(("weights", "low"), [("absolute", 1e-7), ("relative", 1e-6)])
def test_a_trial_that_states_the_meaning_of_weights_gets_their_ranges(
    weights: str, low: float
) -> None:
    axes = space({"method": "default"}, method={"name": "ddml", "weights": weights})
    assert [*axes] == WEIGHTS and axes["method.gamma"].low == low


def test_rates_follow_the_parts_that_a_trial_has() -> None:
    assert [*space({"optimizer": "default"})] == RATES[:2]
    assert [*space({"optimizer": "default"}, loss={"name": "multi_similarity"})] == RATES[:1]


def test_adapters_bring_the_ranges_of_their_options() -> None:
    axes = space("default", backbone={"mode": "lora"})
    assert [*axes] == [*RATES[:2], "loss.temperature", "backbone.rank", "backbone.alpha"]
    for option in ("rank", "alpha"):
        axis, section = axes[f"backbone.{option}"], BackboneConfig(mode="lora")
        assert axis.is_possible(getattr(section, option))
        for end in axis.list_ends():
            BackboneConfig.model_validate({"mode": "lora", option: end})
    with pytest.raises(ConfigError, match="there are no default ranges"):
        space({"backbone": "default"})


@pytest.mark.parametrize("name", ["nope", ["nope"], {"nope": 1}])
@pytest.mark.parametrize("section", ["loss", "method"])
def test_unknown_components_are_refused_as_without_it(section: str, name: Any) -> None:
    study = {"design": "search", "trials": 4, "space": "default"}
    content = {"name": "x", "trial": {section: {"name": name}}, "studies": {"s": study}}
    with pytest.raises(ConfigError, match=rf"trial\.{section}\.name: the name .* is unknown"):
        specs.plan(content)


def test_set_names_the_component_and_a_data_set_cannot() -> None:
    study = {"design": "search", "trials": 4, "space": {"loss": "default"}}
    content = {"name": "x", "studies": {"s": study}}
    read = read_spec(content, {"loss.name": "normsoftmax"})
    assert read.spec.studies["s"].paths == ("loss.temperature",)
    content["datasets"] = {"cars196": {"loss": {"name": "normsoftmax"}}}
    with pytest.raises(ConfigError, match=r"datasets\.cars196\.loss\.name: `space: default`"):
        read_spec(content)


@pytest.mark.parametrize("default", ["default", {"method": "default"}])
def test_it_equals_the_axes_written_out(default: Any) -> None:
    written = {
        p: a.model_dump(exclude_unset=True, by_alias=True)
        for p, a in space(default, **{"method.name": "nir"}).items()
    }

    def identify(axes: Any) -> str:
        study = {"design": "search", "trials": 4, "space": axes, "trial": {"method.name": "nir"}}
        return specs.plan(
            {"name": "default", "trial": {"loss.name": "normsoftmax"}, "studies": {"s": study}}
        ).sweep_id

    assert identify(default) == identify(written)


def test_sections_without_ranges_are_refused() -> None:
    with pytest.raises(ConfigError, match="there are default ranges for optimizer, loss, method"):
        space({"training.epochs": "default"})
    with pytest.raises(ConfigError, match="there are no default ranges"):
        space({"method": "default"})


@pytest.mark.parametrize(
    "name", [*(f"loss.{n}" for n in LOSSES), *(f"method.{n}" for n in METHODS)]
)
def test_every_stated_range_holds_the_default_and_makes_valid_trials(name: str) -> None:
    section, _, component = name.partition(".")
    registry: Any = LOSSES if section == "loss" else METHODS
    axes = list_section_axes(section, {section: {"name": component}})
    default = registry[component].Config.model_construct(name=component).model_dump()
    for path, content in axes.items():
        axis, value = Axis.model_validate(content), default
        for key in path.split(".")[1:]:
            value = value[key]
        assert axis.is_possible(value), f"{path}: {value}"
        for end in axis.list_ends():
            *above, last = path.split(".")[1:]
            options: Any = {last: end}
            for key in reversed(above):
                options = {key: options}
            registry[component].Config.model_validate({"name": component, **options})
