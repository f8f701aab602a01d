"""Explain a spec in plain sentences, by the facts that `ablate plan` finds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ablate.designs.compare import Compare
from ablate.engine.work_estimate import Preview
from ablate.plan.fairness import shorten_list
from ablate.plan.plan import MAX_EXAMINED, Plan
from ablate.plan.warnings import list_study_notes
from ablate.samplers.sampling import get_sampler_name
from ablate.values.paths import flatten_paths
from reports.stats.planning import POWER
from trainables.trial import TrialConfig

TERMS = (
    "A trial trains one network once. A cell is one configuration; each seed of it is a trial, "
    "with other first weights and another order of images. A study is a group of cells. A frozen "
    "backbone stays as it was pretrained, and the layers after it train; with finetune, all train."
)
PURPOSES = {  # design → what a study does; {}: its factors
    "components": "switches {} on and off in every combination",
    "leave_one_out": "trains with all of {}, then without each",
    "add_one": "trains without {}, then with one at a time",
    "one_factor": "changes {} one at a time",
}
PARTS = {"method": "method.name", "loss": "loss.name", "data": "data.name"}
PARTS |= {"backbone": "backbone.name", "mode": "backbone.mode"}
SPLITS = {"val": "Validation", "test": "Test"}

Levels = Mapping[str, Mapping[str, str]]  # study of a template → factor → level


class _Sentence(NamedTuple):
    """A sentence on a study: its frame, with {} where the item stands, and the item."""

    frame: str
    item: str


def explain_plan(plan: Plan, preview: Preview) -> str:
    """Say what a plan trains and compares, who sees which classes, and what it will tell."""
    sections = {
        "What is trained, and what is compared": _describe_studies(plan),
        "Who sees which classes": _describe_classes(plan, preview.classes),
        "What the result will tell": _describe_power(plan, preview.precision),
        "What it takes": map(_to_sentence, preview.work),
        "What to mind": (note.removeprefix("warning: ") for note in preview.notes or ["Nothing."]),
    }
    lines = [f"{plan.spec.name}: {plan.spec.title or 'a sweep'}", TERMS]
    for heading, texts in sections.items():
        lines += ["", heading, *(f"- {text}" for text in texts)]
    return "\n".join(lines)


def _to_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


def _describe_studies(plan: Plan) -> Iterator[str]:
    """Yield what each study, or each of a template, does, on what it builds and what it trains."""
    groups = dict[str, dict[str, dict[str, str]]]()  # template → its studies → their levels
    for name in (name for name in plan.order if name not in plan.copies):
        template, levels = plan.loaded.origins.get(name, (name, {}))
        groups.setdefault(template, {})[name] = levels
    for template, studies in groups.items():
        (name, levels), *others = studies.items()
        every = {key: dict.fromkeys(own[key] for own in studies.values()) for key in levels}
        title = f"`{template}` ({len(studies)} studies: {'; '.join(_list_levels(every))}): each"
        action, *notes = _merge_sentences(plan, studies if others else {name: {}})
        action = f"{title if others else f'`{name}`'} {action}"
        trained = f"trained are {_list_trained(plan, studies)}"
        yield " ".join(map(_to_sentence, [action, *notes, trained]))
    if plan.copies:
        yield f"All this is done {plan.spec.searches} times, with other seeds of the searches."


def _merge_sentences(plan: Plan, studies: Levels) -> list[str]:
    """Return the sentences on studies; those that share a frame become one, with all items."""
    items = dict[str, dict[str, list[str]]]()  # frame → item → the studies that have it
    for name, levels in studies.items():
        for sentence in _list_sentences(plan, name, levels):
            items.setdefault(sentence.frame, {}).setdefault(sentence.item, []).append(name)
    return [
        frame.replace("{}", ", ".join(f"{i}{_name_levels(n, studies)}" for i, n in own.items()))
        for frame, own in items.items()
    ]


def _list_trained(plan: Plan, studies: Iterable[str]) -> str:
    """Return the methods, losses, data sets and backbones that the cells of studies have."""
    defaults = flatten_paths(TrialConfig().model_dump(mode="json"))
    configs = [
        defaults | flatten_paths(plan.build_layers(name, point, plan.find_example(name)).merged)
        for name in studies
        for point in plan.spec.studies[name].all_points[:MAX_EXAMINED] or (None,)
    ]
    return ", ".join(
        f"{label} {' or '.join(dict.fromkeys(str(config[path]) for config in configs))}"
        for label, path in PARTS.items()
    )


def _name_levels(names: Sequence[str], studies: Levels) -> str:
    """Return a note on the levels, or names, of these studies; "" if they are all studies."""
    if len(names) == len(studies):
        return ""
    for factor in studies[names[0]]:
        own = dict.fromkeys(studies[name][factor] for name in names)
        if len(names) == sum(levels[factor] in own for levels in studies.values()):
            return f" ({factor} {', '.join(own)})"
    return f" ({shorten_list(names)})"


def _list_levels(levels: Mapping[str, Iterable[str]]) -> list[str]:
    return [f"{factor} {', '.join(names)}" for factor, names in levels.items()]


def _list_sentences(plan: Plan, name: str, levels: Mapping[str, str]) -> Iterator[_Sentence]:
    """Yield the sentences on a study; the levels that it shares with its bases are in braces."""
    study, seeds, folds = plan.spec.studies[name], plan.list_seeds(name), plan.list_folds(name)
    source, off, sampled = study.find_source_cell(), study.find_baseline(), study.sampling()
    bases, notes = study.find_base_studies(), list_study_notes(plan, name)
    for base in bases:
        bases[base], own = plan.loaded.origins.get(base, (base, {}))
        for factor in (key for key, level in own.items() if level != levels.get(key)):
            bases[base] = bases[base].replace(f"{{{factor}}}", own[factor])
    if sampled is not None:
        frame = f"searches {{}} by the sampler {get_sampler_name(sampled)}"
        yield from (_Sentence(frame, path) for path in study.paths)
        goals = [f"{goal.metric} ({goal.direction})" for goal in plan.list_objectives(name)]
        notes.append(f"its best cell is chosen by {', then '.join(goals)}")
    elif source is not None:
        frame = notes.pop(0).replace(source.best_of, "{}")
        yield _Sentence(f"trains again {frame}", bases.pop(source.best_of))
    elif isinstance(study, Compare):
        rows = "; ".join([*study.variants, *_list_levels(study.cross)])
        yield _Sentence("compares {}", rows)
    else:
        frame = PURPOSES.get(study.design, "combines values of {}")
        yield _Sentence(frame, "; ".join(getattr(study, "components", study.paths)))
    yield from (_Sentence(f"{note}{{}}", "") for note in notes)
    if off is not None:
        best = bases.pop(off.best_of, off.best_of)
        yield _Sentence("one cell has the method off, at the best of {}", best)
    if bases:
        best = shorten_list([*bases.values()])
        yield _Sentence("cells start from the best cell of {}", best)
    runs = f"{len(seeds)} seed{'s' * (len(seeds) > 1)} ({shorten_list([*map(str, seeds)])})"
    kind = "folds" if study.splits is None else "splits"
    runs += f" on each of {len(folds)} {kind} of the classes" if len(folds) > 1 else ""
    yield _Sentence(f"it has {{}}, each with {runs}", f"{study.size} cells")


def _describe_classes(plan: Plan, classes: dict[str, str]) -> Iterator[str]:
    """Yield what each split's classes choose and measure.

    `classes` maps sentences on the classes of data sets to the split that selects the epoch.
    """
    studies = {name: plan.spec.studies[name] for name in plan.order}
    choosing = {base for study in studies.values() for base in study.find_base_studies()}
    goals = [goal.metric for name in choosing for goal in plan.list_objectives(name)]
    choices = {
        "the epoch at which a network is kept, unless the last one is": {*classes.values()},
        "the best cells of studies": {metric.partition("/")[0] for metric in goals},
    }
    yield from (*classes, "Training classes set the weights of the networks.")
    for split, word in SPLITS.items():
        if chosen := [choice for choice, splits in choices.items() if split in splits]:
            yield f"{word} classes choose {', and '.join(chosen)}."
    tested = [name for name in studies if "test" in plan.list_evaluation_splits(name)]
    if any("test" in splits for splits in choices.values()):
        yield "Numbers on test classes are too good for new classes, because test classes choose."
    elif tested:
        yield f"Test classes choose nothing. They measure the networks of {shorten_list(tested)}."


def _describe_power(plan: Plan, precision: dict[str, list[str]]) -> Iterator[str]:
    """Yield the differences that each comparison detects, and the number of its tuning trials."""
    budgets = plan.count_tuning_trials()
    tables = {name: texts for name, texts in precision.items() if texts}
    for name, texts in tables.items():
        counts = " or ".join(map(str, sorted({*budgets.get(name, {}).values()})))
        tuning = f" Each of its rows was tuned by {counts} trials." if counts else ""
        if counts == "0" and getattr(plan.spec.studies[name], "tuning", None) is not None:
            tuning = " Its rows were not tuned: they have the settings that the spec states."
        yield f"`{name}`: {'; '.join(texts)}.{tuning}"
    if not tables:
        yield "The report shows numbers without a verdict, since no table compares rows by seeds."
        return
    yield f"A true difference of that size is found in {POWER:.0%} of cases, a smaller in fewer."
    yield "Once trials have finished, this command gives these differences in points."
    if any(plan.spec.studies[name].splits is None for name in tables):
        yield "Verdicts of a study without splits are about other seeds, not about other classes."
