"""Expand `space: default` to the axes that components of a trial state beside their fields.

    space: default                                        # of optimiser, loss, method and adapters
    space: {method: default, optimizer.lr: {low: …, …}}   # those of the method, and one more

An axis that the file gives wins over a default one. Weights of a method's terms are searched as
ratios of gradients (`method.weights: relative`), unless the trial sets `method.weights: absolute`
or the file gives an axis for one of these weights.
"""

from collections.abc import Mapping
from typing import Any

from ablate.designs.layers import Layer, merge_layers
from trainables.words.errors import ConfigError
from trainables.words.messages import join_words
from trainables.words.paths import flatten_paths

DEFAULT = "default"
SECTIONS = ("optimizer", "loss", "method", "backbone")


def expand_default_spaces(data: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec, as YAML gives it, with axes in place of the word `default` in search spaces.

    The axes are those of the optimiser, and of the loss and method that a study's trials name after
    merging the spec's `trial`, the study's `trial` and `top` (`--set`); later ones win.

    Raises:
        ConfigError: `default` stands at a path that is no section with ranges.
    """
    studies = data.get("studies")
    expanded = dict(studies) if isinstance(studies, Mapping) else {}
    for name, study in expanded.items():
        space = study.get("space") if isinstance(study, Mapping) else None
        if space == DEFAULT:
            space = dict.fromkeys(SECTIONS, DEFAULT)
        if isinstance(space, Mapping) and DEFAULT in space.values():
            _check_data_sets(data.get("datasets"))
            trial = _merge_trial(data.get("trial"), study.get("trial"), top)
            expanded[name] = {**study, "space": _expand_space(f"studies.{name}", space, trial)}
    return {**data, "studies": expanded} if expanded else dict(data)


def _check_data_sets(datasets: Any) -> None:
    """Refuse `datasets` that name a loss or method, since a default space would miss its axes."""
    for name, settings in datasets.items() if isinstance(datasets, Mapping) else ():
        paths = flatten_paths(_merge_trial(settings)).keys()
        for path in {"loss.name", "method.name"} & paths:
            raise ConfigError(
                f"datasets.{name}.{path}",
                "`space: default` ignores this name",
                "Set it in `trial` too, or list the axes",
            )


def _merge_trial(*trials: Any) -> dict[str, Any]:
    """Merge partial trials, of which later ones win; {} if invalid, which validation reports."""
    layers = [Layer("trial", trial) for trial in trials if isinstance(trial, Mapping)]
    try:
        return merge_layers(layers)
    except ConfigError:
        return {}


def _expand_space(where: str, space: Mapping[str, Any], trial: Mapping[str, Any]) -> dict[str, Any]:
    """Return the axes of a study's space: default axes of sections, and written axes, which win."""
    axes: dict[str, Any] = {}
    for section, axis in space.items():
        if axis == DEFAULT and section not in SECTIONS:
            raise ConfigError(
                f"{where}.space.{section}",
                f"there are default ranges for {join_words(SECTIONS)}, not for {section}",
                "Write the axis",
            )
        if axis == DEFAULT:
            axes |= list_section_axes(section, trial)
    if space.get("method") == DEFAULT:
        axes = _make_weights_relative(axes, space, trial)
    axes |= {path: axis for path, axis in space.items() if axis != DEFAULT}
    if not axes:
        raise ConfigError(
            f"{where}.space",
            f"there are no default ranges for {join_words(space)} of this study",
            "Name an axis, for example optimizer.lr",
        )
    return axes


def _make_weights_relative(
    axes: Mapping[str, Any], space: Mapping[str, Any], trial: Mapping[str, Any]
) -> dict[str, Any]:
    """Return default axes in which the weights of the method's terms are ratios of gradients.

    A weight of the metric term, which would scale all terms alike, is then no axis.
    """
    from trainables.methods.base import METHODS, RATIO

    settings = trial.get("method")
    options = settings if isinstance(settings, Mapping) else {}
    method = METHODS.get(str(options.get("name")))
    if method is None:
        return dict(axes)
    paths = {f"method.{option}": term for term, names in method.WEIGHTS.items() for option in names}
    stated = options.get("weights")
    if not paths or stated == "absolute" or {*paths, "method.weights"} & space.keys():
        return dict(axes)
    others = {path: axis for path, axis in axes.items() if path not in paths}
    ratios = {}
    for path, term in paths.items():
        if term != "metric":
            low, high = method.RATIOS.get(path.partition(".")[2], RATIO)
            ratios[path] = {"low": low, "high": high, "log": True}
    # an axis, not a setting, so that studies that take the best values take the meaning too
    meaning = {} if stated == "relative" else {"method.weights": {"choice": ["relative"]}}
    return others | meaning | ratios


def list_section_axes(section: str, trial: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the axes, by path, that the optimiser, loss, method or backbone states for itself.

    The learning rate of proxies is an axis only if the loss has proxies, and that of a method's own
    parts only if the method is not plain. The axes of the backbone are those of adapters.

    Args:
        section: `optimizer`, `loss`, `method` or `backbone`.
        trial: settings that name the loss, the method and the mode of the backbone.
    """
    from trainables.config.network import BackboneConfig
    from trainables.config.optimization import OptimizerConfig
    from trainables.config.ranges import list_default_axes
    from trainables.losses.base import LOSSES, Loss
    from trainables.methods.base import METHODS
    from trainables.trial import TrialConfig

    if section == "backbone":
        backbone = trial.get("backbone")
        is_adapted = isinstance(backbone, Mapping) and backbone.get("mode") == "lora"
        return list_default_axes(BackboneConfig, section) if is_adapted else {}
    names, default = {}, TrialConfig()
    for part in ("loss", "method"):
        settings = trial.get(part)
        named = settings.get("name") if isinstance(settings, Mapping) else None
        names[part] = named or getattr(default, part).name
    loss, method = LOSSES.get(str(names["loss"])), METHODS.get(str(names["method"]))
    if loss is None or method is None:
        return list_default_axes(OptimizerConfig, "optimizer")  # the plan refuses unknown names
    if section == "method":
        return list_default_axes(method.Config, section)
    if section == "loss":
        return list_default_axes(loss.Config, section)
    axes = list_default_axes(OptimizerConfig, section)
    if loss.references is Loss.references:  # not overridden: the loss has no proxies
        axes.pop("optimizer.multipliers.proxies", None)
    if names["method"] == "plain":
        axes.pop("optimizer.multipliers.auxiliary", None)
    return axes
