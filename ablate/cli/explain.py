"""Say in plain words what a spec does, or why a trial exists: `ablate explain`."""

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ablate.cli.options import (
    add_out,
    add_spec,
    build_options,
    find_trial,
    load_spec,
    locate_ledger,
)
from ablate.designs.parts import NEUTRAL
from ablate.designs.promote import SOURCE
from ablate.ledger import queries
from ablate.ledger.columns import Row
from ablate.ledger.records import Records
from ablate.results import read_frame
from ablate.search.sampling import get_sampler_name
from reports.best import find_best_cell
from reports.frame import list_objectives
from reports.stats.planning import POWER
from reports.tables.labels import format_level
from trainables.words.paths import flatten_paths
from trainables.words.terminal import print_text

if TYPE_CHECKING:
    from ablate.engine.work_estimate import Preview
    from ablate.plan.plan import Plan


TERMS = (
    "A trial trains one network once. A cell is one configuration; each seed of it is a trial, "
    "with other first weights and another order of images. A study is a group of cells. A frozen "
    "backbone stays as it was pretrained, and the layers after it train; with finetune, all train."
)
PARTS = {"method": "method.name", "loss": "loss.name", "data": "data.name"}
PARTS |= {"backbone": "backbone.name", "mode": "backbone.mode"}
SPLITS = {"val": "Validation", "test": "Test"}

Levels = Mapping[str, Mapping[str, str]]  # study of a template → factor → level


def add_explain(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Say in plain sentences what a spec trains and compares, and what its result will tell. "
        "With the beginning of a trial's id in place of SPEC: say why the trial exists."
    )
    add_spec(command)
    add_out(command)
    command.set_defaults(run=run_explain)


def run_explain(args: argparse.Namespace) -> int:
    """Explain a spec, or the trial whose id begins with the argument; return exit code 0."""
    if re.fullmatch(r"[0-9a-f]+(-s?\d*)?", args.spec) and not Path(args.spec).is_file():
        with Records(locate_ledger(args.out)) as records:
            trial = records.get_trial(find_trial(records, args.spec))
            print_text(explain_trial(records, trial or {}))
        return 0
    loaded = load_spec(args)
    from ablate import api
    from ablate.engine.work_estimate import preview_plan

    plan, settings = api.prepare(loaded, build_options(args), runs=False)
    print_text(explain_plan(plan, preview_plan(plan, settings)))
    return 0


class _Sentence(NamedTuple):
    """A sentence on a study: its frame, with {} where the item stands, and the item."""

    frame: str
    item: str


def explain_plan(plan: "Plan", preview: "Preview") -> str:
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


def _describe_studies(plan: "Plan") -> Iterator[str]:
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


def _merge_sentences(plan: "Plan", studies: Levels) -> list[str]:
    """Return the sentences on studies; those that share a frame become one, with all items."""
    items = dict[str, dict[str, list[str]]]()  # frame → item → the studies that have it
    for name, levels in studies.items():
        for sentence in _list_sentences(plan, name, levels):
            items.setdefault(sentence.frame, {}).setdefault(sentence.item, []).append(name)
    return [
        frame.replace("{}", ", ".join(f"{i}{_name_levels(n, studies)}" for i, n in own.items()))
        for frame, own in items.items()
    ]


def _list_trained(plan: "Plan", studies: Iterable[str]) -> str:
    """Return the methods, losses, data sets and backbones that the cells of studies have."""
    from ablate.plan.plan import MAX_EXAMINED
    from trainables.trial import TrialConfig

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
    from ablate.plan.warnings import shorten_list

    if len(names) == len(studies):
        return ""
    for factor in studies[names[0]]:
        own = dict.fromkeys(studies[name][factor] for name in names)
        if len(names) == sum(levels[factor] in own for levels in studies.values()):
            return f" ({factor} {', '.join(own)})"
    return f" ({shorten_list(names)})"


def _list_levels(levels: Mapping[str, Iterable[str]]) -> list[str]:
    return [f"{factor} {', '.join(names)}" for factor, names in levels.items()]


def _list_sentences(plan: "Plan", name: str, levels: Mapping[str, str]) -> Iterator[_Sentence]:
    """Yield the sentences on a study; the levels that it shares with its bases are in braces."""
    from ablate.plan.warnings import list_study_notes, shorten_list

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
    else:
        yield _Sentence(study.purpose, "; ".join(study.subjects))
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


def _describe_classes(plan: "Plan", classes: dict[str, str]) -> Iterator[str]:
    """Yield what each split's classes choose and measure.

    `classes` maps sentences on the classes of data sets to the split that selects the epoch.
    """
    from ablate.plan.warnings import shorten_list

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


def _describe_power(plan: "Plan", precision: dict[str, list[str]]) -> Iterator[str]:
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


def explain_trial(records: Records, trial: Row) -> str:
    """Say what a trial trains, which cells need it, who proposed it, and what it shares."""
    config, cells = trial["config"], queries.list_cells_of_trial(records, trial["trial_id"])
    names = (f"{key} {config[key]['name']}" for key in ("method", "loss", "data", "backbone"))
    lines = [
        f"Trial {trial['trial_id']} trains {', '.join(names)} ({config['backbone']['mode']}) for "
        f"{config['training']['epochs']} epochs, with seed {trial['seed']}. It is "
        f"{trial['status']}. `ablate ledger show {trial['trial_id']}` prints its results.",
        "\nWhy it exists",
        *(f"- {_explain_cell(records, trial, cell)}" for cell in cells),
        *([] if cells else ["- No sweep of this ledger needs it."]),
        "\nWhat it shares",
        *(f"- {text}" for text in _list_shared(trial, len(cells), queries.list_trials(records))),
    ]
    return "\n".join(lines)


def _explain_cell(records: Records, trial: Row, cell: Row) -> str:
    """Say which study needs a trial, as which cell, and where the cell's settings come from."""
    spec, rows = records.get_sweep(cell["sweep_id"])["spec"], records.list_cells(cell["sweep_id"])
    study = (spec.get("studies") or {}).get(cell["study"]) or {}
    same_study = [row for row in rows if row["study"] == cell["study"]]
    row = next(row for row in same_study if row["cell"] == cell["cell"])
    address, design = queries.format_cell_address(cell), study.get("design")
    text = f"Sweep {cell['name']} ({cell['sweep_id']}) needs it in a {design} study, as {address}."
    proposals = queries.list_proposals_of_trial(records, trial["trial_id"])
    key = next((each["study_key"] for each in proposals if each["idx"] == row["idx"]), None)
    if cell["cell"] == NEUTRAL:
        text += f" The method is switched off, at the best values of {study[NEUTRAL]['best_of']}."
    elif design == "search" and key is not None:
        frame = read_frame(records, cell["sweep_id"])
        objectives = list_objectives(frame.document, cell["study"])
        known, sentences = _explain_proposal(records.list_proposals(key), row["idx"], study)
        of_study = frame.cells[frame.cells["study"] == cell["study"]]
        best = find_best_cell(of_study[of_study["idx"].isin(known)], objectives)
        text += sentences
        text += f" The best of them by {objectives[0][0]} was {best.cell}." if best else ""
    elif SOURCE in row["coords"]:
        text += f" It trains cell {row['coords'][SOURCE]} of {study.get('of')} again."
    else:
        text += " The spec lists this cell."
    lineage = spec.get("lineages", {}).get(cell["study"], {}).get(cell["cell"], {})
    bases = [f"{base} ({count} trials)" for base, count in lineage.items()]
    bases = bases or [around["best_of"] for around in study.get("around") or ()]
    return text + (f" Its other settings were chosen by {', '.join(bases)}." if bases else "")


def _explain_proposal(rows: dict[int, Row], idx: int, study: Row) -> tuple[list[int], str]:
    """Return the proposals whose results were known when `idx` was proposed, and say who did so."""
    from ablate.sweep.proposer import list_earlier_of_round

    row, size, infeasible = rows[idx], study["round"], [i for i in rows if rows[i]["infeasible"]]
    values = ", ".join(f"{path} {format_level(value)}" for path, value in row["params"].items())
    if idx < len(study.get("points") or ()):
        return [], f" The spec lists it among the first points of the search: {values}."
    is_round = isinstance(size, int)  # else the search is asynchronous
    waiting = list_earlier_of_round(idx, infeasible, size) if is_round else row["beside"]
    known = [i for i in range(idx) if i not in {*waiting, *infeasible}]
    sampler = study["sampler"] if isinstance(study["sampler"], str) else study["sampler"]["name"]
    text = f" The sampler {sampler} proposed it as number {idx + 1} of {study['trials']}: {values}."
    text += f" It knew the results of {len(known)} earlier proposals."
    if sampler in ("tpe", "gp") and len(known) < study["startup"]:
        text += f" {sampler} draws at random until it knows {study['startup']} results."
    return known, text


def _list_shared(trial: Row, n_cells: int, trials: list[Row]) -> Iterator[str]:
    """Yield what a trial shares with other cells and trials: itself, features, checkpoints."""
    if n_cells > 1:
        yield f"These {n_cells} cells are equal in all settings, so one trial serves all of them."
    equal = [row["trial_id"] for row in trials if row["config_hash"] == trial["config_hash"]]
    yield f"Trials of its configuration, each with another seed: {', '.join(equal)}."
    images = [
        [row["config"]["backbone"], *map(row["config"]["data"].get, ("name", "root", "image_size"))]
        for row in [trial, *trials]
    ]
    if trial["config"]["backbone"]["mode"] == "frozen":
        same = images.count(images[0]) - 2
        yield f"The features of its frozen backbone are computed once, and for {same} others."
    if trial["checkpoint"]:
        yield f"Another machine can continue from its checkpoint in storage: {trial['checkpoint']}."
    elif trial["status"] != "done":
        yield "The same `ablate run` continues it from its own checkpoint, which no trial shares."
