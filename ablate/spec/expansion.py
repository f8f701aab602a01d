"""Expand a spec's short forms: studies with `for`, and `space: default`.

`for` makes one study of each combination of levels of factors:

    factors:
      backbone:
        lite0: {trial: {backbone: {name: tf_efficientnet_lite0, weights: packaged}}}
        resnet50: {trial: {backbone: {name: resnet50.tv_in1k, weights: timm}}}
      method:
        plain: {trial: {method: {name: plain}}}
        ddml: {trial: {method: {name: ddml}}}
    studies:
      "rates_{backbone}": {for: [backbone], design: search, …}
      "tune_{method}_{backbone}":
        for: {backbone: all, method: {ddml: {space: {method: default}}}}
        around: {best_of: "rates_{backbone}"}
      judged: {design: compare, cross: [backbone, method], …}

makes the studies `rates_lite0`, `rates_resnet50`, `tune_ddml_lite0` and `tune_ddml_resnet50`. Names
of factors in braces stand for the level in all texts of the study except those in `trial`. Settings
of a level lie over those of the study, and the settings beside a level in `for` lie over both.
`factors.backbone.lite0: null` in a file that extends this one, or `--levels backbone=resnet50`,
leaves a level out of all studies, and the tables and figures of a study that is then not made. What
the spec has under the name of such a study lies over it.

`default` stands for the axes that components of a trial state beside their fields:

    space: default                                        # of optimiser, loss, method and adapters
    space: {method: default, optimizer.lr: {low: …, …}}   # those of the method, and one more

An axis that the file gives wins over a default one. Weights of a method's terms are searched as
ratios of gradients (`method.weights: relative`), unless the trial sets `method.weights: absolute`
or the file gives an axis for one of these weights.
"""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ablate.designs.layers import Layer, merge_layers, overlay_mappings
from trainables.words.errors import ConfigError
from trainables.words.messages import check_known, format_value, join_words
from trainables.words.paths import flatten_paths

FOR, ALL = "for", "all"
Factors = Mapping[str, dict[str, Any]]  # factor → level → its part of a study; None: left out


def expand_templates(
    data: Mapping[str, Any], chosen: Mapping[str, Sequence[str]]
) -> tuple[dict[str, Any], dict[str, tuple[str, dict[str, str]]]]:
    """Return a spec, as YAML gives it, with studies in place of templates (studies with `for`).

    Args:
        chosen: factor → the levels that are kept (`--levels`); other factors keep all.

    Returns:
        The spec, and the template and the levels of each study that a template made.

    Raises:
        ConfigError: a factor or level is unknown or malformed, or two combinations have one name.
    """
    factors, given = _read_factors(data.get("factors"), chosen), data.get("studies")
    if not isinstance(given, Mapping):
        return dict(data), {}
    # expand the templates
    made = dict[str, dict[str, Any]]()  # template → study → its content
    origins = dict[str, tuple[str, dict[str, str]]]()
    for name, study in given.items():
        if isinstance(study, Mapping) and FOR in study:
            made[name] = {}
            for copy, levels, content in _expand_study(name, study, factors):
                if copy in origins:
                    raise ConfigError(
                        f"studies.{name}",
                        f"two combinations make the study {copy}",
                        "Name all factors in braces",
                    )
                origins[copy], made[name][copy] = (name, levels), content
    # lay further settings of single studies over them, and fill in crossed factors
    studies = dict[str, Any]()
    for name, study in given.items():
        changes = {copy: given[copy] for copy in made.get(name, {}) if copy in given}
        if name in made:
            studies |= overlay_mappings(made[name], changes)
        elif name not in origins:
            studies[name] = study
    for name, study in studies.items():
        if isinstance(study, Mapping) and isinstance(study.get("cross"), list):
            cross = _list_levels(f"studies.{name}.cross", study["cross"], factors)
            studies[name] = {**study, "cross": cross}
    rest = {key: value for key, value in data.items() if key != "factors"}
    whole = {factor: {k: v or {} for k, v in levels.items()} for factor, levels in factors.items()}
    if isinstance(data.get("report"), Mapping) and whole != factors:
        made_of_all, _ = expand_templates({**data, "factors": whole}, {})
        left_out = [name for name in made_of_all["studies"] if name not in studies]
        rest["report"] = {k: drop_parts(part, left_out) for k, part in data["report"].items()}
    return {**rest, "studies": studies}, origins


def drop_parts(parts: Any, studies: Collection[str]) -> Any:
    """Return tables or figures without those of the given studies, and other settings unchanged."""
    if not isinstance(parts, list):
        return parts
    return [part for part in parts if not any(name in studies for name in _list_studies(part))]


def _list_studies(part: Any) -> list[Any]:
    """Return what a table or a figure names as its studies."""
    if not isinstance(part, Mapping):
        return []
    several = part.get("studies")
    return [part.get("study"), *(several if isinstance(several, list) else [])]


def _read_factors(given: Any, chosen: Mapping[str, Sequence[str]]) -> Factors:
    """Return the factors of a spec, in which levels that are not chosen are None."""
    factors = {
        factor: dict(_to_mapping(f"factors.{factor}", levels))
        for factor, levels in _to_mapping("factors", {} if given is None else given).items()
    }
    for factor, names in chosen.items():
        check_known("--levels", [factor], factors, "the factor")
        levels = factors[factor]
        present = [name for name, part in levels.items() if part is not None]
        check_known("--levels", names, present, "the level")
        factors[factor] = {name: part if name in names else None for name, part in levels.items()}
    return factors


def _to_mapping(path: str, value: Any) -> Mapping[str, Any]:
    """Return a value of the spec that must be a mapping."""
    if not isinstance(value, Mapping):
        raise ConfigError(
            path, f"{format_value(value)} is no mapping", "Write `name: …` on indented lines"
        )
    return value


def _list_levels(path: str, wanted: Any, factors: Factors) -> dict[str, dict[str, Any]]:
    """Return factor → level → its part of a study.

    Args:
        path: place of `wanted` in the spec.
        wanted: a list of factors; or factor → "all", a level, a list of levels, or levels with
            settings over those of the level.
    """
    parts: dict[str, dict[str, Any]] = {}
    wanted = {str(factor): ALL for factor in wanted} if isinstance(wanted, list) else wanted
    for factor, choice in _to_mapping(path, wanted).items():
        check_known(path, [factor], factors, "the factor")
        place, levels = f"{path}.{factor}", factors[factor]
        names = list(levels) if choice == ALL else choice if isinstance(choice, list) else [choice]
        settings = choice if isinstance(choice, Mapping) else {str(level): {} for level in names}
        check_known(place, settings, levels, "the level")
        parts[factor] = {
            level: overlay_mappings(
                _to_mapping(f"factors.{factor}.{level}", levels[level]),
                _to_mapping(f"{place}.{level}", changes or {}),
            )
            for level, changes in settings.items()
            if levels[level] is not None
        }
    return parts


def _expand_study(
    name: str, study: Mapping[str, Any], factors: Factors
) -> Iterator[tuple[str, dict[str, str], dict[str, Any]]]:
    """Yield name, levels and content of the study of each combination of levels in `for`."""
    levels = _list_levels(f"studies.{name}.{FOR}", study[FOR], factors)
    for combination in itertools.product(*levels.values()):
        names = dict(zip(levels, combination, strict=True))
        content = {key: value for key, value in study.items() if key != FOR}
        for factor, level in names.items():
            content = overlay_mappings(content, levels[factor][level])
        filled = {key: _fill(value, names) for key, value in content.items() if key != "trial"}
        yield _fill(name, names), names, {**content, **filled}


def _fill(part: Any, names: Mapping[str, str]) -> Any:
    """Return a part of a study with levels in place of their factors' names in braces."""
    if isinstance(part, str):
        for factor, level in names.items():
            part = part.replace(f"{{{factor}}}", level)
    elif isinstance(part, list):
        part = [_fill(item, names) for item in part]
    elif isinstance(part, Mapping):
        part = {key: _fill(value, names) for key, value in part.items()}
    return part


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
    config = loss.Config if section == "loss" else method.Config
    axes = list_default_axes(OptimizerConfig if section == "optimizer" else config, section)
    if loss.references is Loss.references:  # not overridden: the loss has no proxies
        axes.pop("optimizer.multipliers.proxies", None)
    if names["method"] == "plain":
        axes.pop("optimizer.multipliers.auxiliary", None)
    return axes
