"""Explain a spec in plain sentences, by the facts that `ablate plan` finds."""

from collections.abc import Iterator

from ablate.engine.work_estimate import Preview
from ablate.plan.fairness import shorten_list
from ablate.plan.plan import MAX_EXAMINED, Plan
from ablate.plan.warnings import list_study_notes
from ablate.samplers.sampling import get_sampler_name
from ablate.values.paths import flatten_paths
from reports.stats.power import POWER
from trainables.trial import TrialConfig

TERMS = (
    "A trial trains one network once. A cell is one configuration; each seed of it is a trial, "
    "with other first weights and another order of images. A study is a group of cells. A frozen "
    "backbone stays as it was pretrained, and the layers after it train; with finetune, all train."
)
PURPOSES = {  # design → what a study does; {what}: its factors or rows
    "components": "switches {what} on and off in every combination",
    "leave_one_out": "trains with all of {what}, then without each",
    "add_one": "trains without {what}, then with one at a time",
    "one_factor": "changes {what} one at a time",
    "compare": "compares {what}",
}
PARTS = {"method": "method.name", "loss": "loss.name", "data": "data.name"}
PARTS |= {"backbone": "backbone.name", "mode": "backbone.mode"}
SPLITS = {"val": "Validation", "test": "Test"}


def explain_plan(plan: Plan, preview: Preview) -> str:
    """Say what a plan trains and compares, who sees which classes, and what it will tell."""
    sections = {
        "What is trained, and what is compared": _describe_studies(plan),
        "Who sees which classes": _describe_classes(plan, preview.classes),
        "What the result will tell": _describe_power(plan, preview.precision),
        "What it takes": map(_to_sentence, preview.work),
        "What to mind": iter(preview.notes or ["Nothing."]),
    }
    lines = [f"{plan.spec.name}: {plan.spec.title or 'a sweep'}", TERMS]
    for heading, texts in sections.items():
        lines += ["", heading, *(f"- {text}" for text in texts)]
    return "\n".join(lines)


def _to_sentence(text: str) -> str:
    """Return a line of a plan as a sentence, with a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


def _describe_studies(plan: Plan) -> Iterator[str]:
    """Yield what each study does, on which studies it builds, and what its trials train."""
    defaults = flatten_paths(TrialConfig().model_dump(mode="json"))
    for name in (name for name in plan.order if name not in plan.copies):
        study, seeds, folds = plan.spec.studies[name], plan.list_seeds(name), plan.list_folds(name)
        points, sampled = study.all_points[:MAX_EXAMINED], study.sampling()
        source, baseline = study.find_source_cell(), study.find_baseline()
        bases, notes = study.find_base_studies(), list_study_notes(plan, name)
        if sampled is not None:
            text = f"searches {', '.join(study.paths)} by the sampler {get_sampler_name(sampled)}"
            goals = [f"{goal.metric} ({goal.direction})" for goal in plan.list_objectives(name)]
            notes.append(f"its best cell is chosen by {', then '.join(goals)}")
        elif source is not None:
            bases.pop(source.best_of, None)
            text, notes = f"trains cells of {source.best_of} again: {'; '.join(notes)}", []
        else:
            rows = [point.cell for point in points]
            factors = getattr(study, "components", study.paths)
            phrase = PURPOSES.get(study.design, "combines values of {what}")
            text = phrase.format(what="; ".join(rows if study.design == "compare" else factors))
        if baseline is not None:
            bases.pop(baseline.best_of, None)
            notes.append(f"one cell has the method off, at the best values of {baseline.best_of}")
        if bases:
            notes.append(f"cells start from the best cell of {shorten_list([*bases])}")
        runs = f"{len(seeds)} seed{'s' * (len(seeds) > 1)} ({shorten_list([*map(str, seeds)])})"
        kind = "folds" if study.splits is None else "splits"
        runs += f" on each of {len(folds)} {kind} of the classes" if len(folds) > 1 else ""
        notes.append(f"it has {study.size} cells, each with {runs}")
        layers = [plan.build_layers(name, p, plan.find_example(name)) for p in points or (None,)]
        configs = [defaults | flatten_paths(each.merged) for each in layers]
        parts = [
            f"{label} {' or '.join(dict.fromkeys(str(config[path]) for config in configs))}"
            for label, path in PARTS.items()
        ]
        notes.append(f"trained are {', '.join(parts)}")
        yield " ".join(map(_to_sentence, [f"`{name}` {text}", *notes]))
    if plan.copies:
        yield f"All this is done {plan.spec.searches} times, with other seeds of the searches."


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
