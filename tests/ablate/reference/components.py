"""The page of each method and loss, and the index of all, from docstrings, recipes and records.

A class's docstring says what it computes; its paragraph `Deviations:` says where and why it differs
from paper and public code, its section `Logged:` names and explains terms and observed scalars, and
`References:` names the paper. Of an option, the docstring of its `Config` says the meaning and, in
`Sources:`, where the default is from, and its field has the range of searches. What a docstring
does not say stops the generator with a sentence.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator
from os.path import relpath
from pathlib import Path
from textwrap import dedent
from typing import Any

from pydantic import BaseModel

from ablate.testing.methods import build_seeded_method, draw_features
from tests.ablate.reference import recipes
from tests.ablate.reference.docstrings import default_source, meaning
from tests.ablate.reference.fields import FieldsPage, plain
from tests.ablate.reference.markdown import cell, code, table
from tests.benchmarks.bench_components import FILE as COSTS
from tests.trainables.components import labels_for, loss_options, method_options
from trainables import streams
from trainables.config.ranges import AXIS, SOURCE
from trainables.core.loss_terms import EpochMetrics
from trainables.losses.base import LOSSES
from trainables.losses.proxies import draw_initial_proxies
from trainables.methods.base import METHODS, Batch, Progress

REGISTRIES: dict[str, Any] = {"method": METHODS, "loss": LOSSES}
FOLDERS = {"method": "methods", "loss": "losses"}
PAGES = recipes.SPACES.with_name("docs") / "reference"
SECTIONS = ("Deviations", "Logged", "References", "Example")
# Options with which a method has all of its terms and observed scalars.
EVERYTHING: dict[str, dict[str, Any]] = {"nir": {"synthetic": "both", "gradient_limit": 1.0}}
GEOMETRIES = {
    "cosine": "cosines",
    "dot": "inner products",
    "l2": "Euclidean distances, of unit vectors by default",
    "l2sq": "squared Euclidean distances, of unit vectors by default",
    "hyperbolic": "geodesic distances in the Poincaré ball",
}
IN_COLUMNS = {"term": "term/{}/value", "observed": "observed/{}", "measured": "test/{}"}


class Missing(ValueError):
    """A docstring does not say what a page must."""


class Docstring:
    """The paragraphs of a component's class, and of the bases that its module defines for it.

    body: those of no section. sections: the text of each section, the nearest class's.
    """

    def __init__(self, cls: type) -> None:
        self.body: list[str] = []
        self.sections: dict[str, str] = {}
        registered = {registry[name] for registry in REGISTRIES.values() for name in registry}
        for each in cls.__mro__:
            is_family = each.__module__ == cls.__module__ and each not in registered
            if (each is cls or is_family) and each.__doc__:
                self.read(
                    each.__doc__, first="" if each is cls else f"Its family, `{each.__name__}`: "
                )

    def read(self, doc: str, first: str) -> None:
        begins, section, found = (
            rf"({'|'.join(SECTIONS)})(?::|(?= \w+ the))\s*",
            "",
            dict[str, str](),
        )
        for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(doc)):
            head = re.match(begins, paragraph)
            section = head[1] if head else section if paragraph.startswith("    ") else ""
            if section:
                found[section] = found.get(section, "") + paragraph[head.end() if head else 0 :]
            else:
                self.body.append(first + paragraph)
                first = ""
        self.sections = found | self.sections

    @property
    def summary(self) -> str:
        first = join(self.body[0]).rstrip(":").partition(". ")[0].rstrip(".")
        return re.sub(r"; `\w+` with$", "", first)

    @property
    def equations(self) -> list[str]:
        return [text for text in self.body if text.startswith("    ")]

    @property
    def logged(self) -> dict[str, str]:
        entries = re.findall(r"^\s*(\w+(?:, \w+)*): (.*(?:\n {8}.*)*)", self.logged_text, re.M)
        return {name: join(text) for names, text in entries for name in names.split(", ")}

    @property
    def logged_text(self) -> str:
        return self.sections.get("Logged", "")

    def paper(self, name: str) -> tuple[str, str]:
        """The first work of the references: its year, and its title with a link."""
        text = join(self.sections.get("References", ""))
        title, year = re.search(r'"(.+?),?"', text), re.search(r"\b(?:19|20)\d\d\b(?!\.\d)", text)
        link = re.search(r"https?://\S+?(?=[.,;:)]*(?:\s|$))", text)
        if not (title and year and link):
            raise Missing(f"{name}: References need a title in quotes, a year and a link.")
        return year[0], f"[{title[1]}]({link[0]})"


def names(kind: str) -> list[str]:
    """The components of this project; other packages and tests may have registered theirs."""
    registry = REGISTRIES[kind]
    return [name for name in registry if registry[name].__module__.startswith("trainables.")]


def pages() -> dict[str, str]:
    """File below docs/reference/ → text."""
    costs = json.loads(COSTS.read_text(encoding="utf-8"))
    fields = FieldsPage()
    made = {}
    for kind in REGISTRIES:
        for name in names(kind):
            text = "\n\n".join(sections(kind, name, fields, costs))
            made[f"{FOLDERS[kind]}/{name}.md"] = f"{text}\n"
    return made | {"README.md": index()}


def sections(kind: str, name: str, fields: FieldsPage, costs: dict[str, Any]) -> Iterator[str]:
    cls, doc = REGISTRIES[kind][name], Docstring(REGISTRIES[kind][name])
    source = f"trainables/{FOLDERS[kind]}/{cls.__module__.rpartition('.')[2]}.py"
    yield f"# {kind.capitalize()} `{name}`"
    year, paper = doc.paper(name)
    facts = [("paper", paper), ("year", year), ("tuned here by", tuned(kind, name))]
    required = loss_options(name) if kind == "loss" else {"name": name}
    options = ", ".join(f"{k}: {v}" for k, v in required.items())
    facts.append(("in a spec", code(f"{kind}: {{{options}}}")))
    if kind == "loss" and cls.takes == "score":
        facts.append(("compares by", GEOMETRIES[cls.geometry.kind]))
    if kind == "loss" and cls.batch.per_class > 1:
        facts.append(("needs of a batch", f"{cls.batch.per_class} images of each class or more"))
    if kind == "method" and name != "plain":
        neutral = ", ".join(f"{key}: {show(value)}" for key, value in cls.NEUTRAL.items())
        facts.append(("equals the plain loss with", code(neutral)))
    facts += [("source code", f"[{source}](../../../{source})"), ("code revision", cls.REVISION)]
    yield table(("", " "), [(key, str(value)) for key, value in facts])
    if not doc.equations:
        raise Missing(f"{name}: the docstring has no equation, an indented block.")
    yield "## What it computes"
    yield from (paragraph(text) for text in doc.body)
    yield f"{symbols(cls, kind)} {equation_numbers(doc)}"
    yield "## Options"
    yield options_table(cls.Config, fields, name)
    yield "## What a trial logs"
    yield logged_table(kind, name, doc)
    yield "## Deviations from the paper and the public code"
    text = doc.sections.get("Deviations")
    yield join(text[0].upper() + text[1:]) if text else "None is known beyond what the options say."
    yield "## Cost"
    yield cost(costs, f"{kind} {name}")
    yield "## Results"
    yield from results(kind, name)
    yield "## References"
    yield join(doc.sections["References"])


# ------------------------------------------------------------------- sections


def join(text: str) -> str:
    return " ".join(text.split())


def paragraph(text: str) -> str:
    """Prose in one line, an indented block as code."""
    if text.startswith("    "):
        return f"```text\n{dedent(text)}\n```"
    return linked(join(text))


def symbols(cls: type, kind: str) -> str:
    """The legend of the module, or of the contract of all losses."""
    for module in (sys.modules[cls.__module__], sys.modules[f"trainables.{FOLDERS[kind]}.base"]):
        if found := re.search(r"Shape legend: (.*?)\.?\s*(?:\n\n|\Z)", str(module.__doc__), re.S):
            return f"Symbols: {join(found[1]).rstrip('.')}."
    raise Missing(f"{cls.__module__} has no shape legend.")


def equation_numbers(doc: Docstring) -> str:
    text, numbers = join(doc.sections["References"]), r"Eq\. \d+(?:(?:,| to| and) \d+)*"
    if found := re.findall(numbers, text) or re.findall(numbers, " ".join(doc.equations)):
        return (
            f"Equation numbers in the papers of the references: {', '.join(dict.fromkeys(found))}."
        )
    if "authors' code" in text:
        return "The equations are those of the authors' code, as the references say."
    return "The references name no equation number."


def options_table(config: type[BaseModel], fields: FieldsPage, name: str) -> str:
    rows = list(option_rows(config, fields, "", name))
    head = ("option", "default", "allowed", "searched by default", "source", "meaning")
    return table(head, rows) if rows else "It has no options."


def option_rows(
    config: type[BaseModel], fields: FieldsPage, above: str, name: str
) -> Iterator[tuple[str, ...]]:
    nodes = config.model_json_schema()["properties"]
    for field, info in config.model_fields.items():
        key = info.alias or field
        if key == "name":
            continue
        extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
        inner = info.annotation if inspect.isclass(info.annotation) else None
        is_section = inner is not None and issubclass(inner, BaseModel)
        has_inner = "$ref" in str(nodes[key])
        kind, bounds = ("mapping", "") if has_inner else fields.kind(nodes[key], key)
        source = extra.get(SOURCE) or default_source(config, key)
        about = meaning(config, key)
        if not about or not (source or is_section):
            lack = "a source, in `Sources:`" if about else "a meaning"
            raise Missing(f"{name}.{above}{key} lacks {lack} in the docstring of its Config.")
        value = ... if info.is_required() else info.get_default(call_default_factory=True)
        default = "required" if value is ... else code(show(value))
        yield (
            code(f"{above}{key}"),
            "the rows below" if is_section else default,
            f"{kind}, {bounds}" if bounds else kind,
            axis_text(extra.get(AXIS)),
            cell(str(source)),
            linked(cell(about).rstrip(".")),
        )
        if is_section:
            assert inner is not None
            yield from option_rows(inner, fields, f"{above}{key}.", name)


def axis_text(axis: Any) -> str:
    if not axis:
        return ""
    scale = ", log" if axis.get("log") else ""
    return f"{axis['low']:g} to {axis['high']:g}{scale}"


def show(value: Any) -> str:
    """A value as YAML in a line has it."""
    if isinstance(value, BaseModel):
        changed = value.model_dump(exclude_unset=True)
        return "{" + ", ".join(f"{key}: {show(item)}" for key, item in changed.items()) + "}"
    shown = f"{value:g}" if isinstance(value, float) else plain(value)
    return shown.replace("null", "none")


def linked(text: str) -> str:
    """A text in which names of the code are links, and "the class" is above."""
    proxies = "[initial proxies](../README.md#initial-proxies)"
    role = "[`auxiliary`](../fields.md#trial)"
    text = text.replace("`draw_initial_proxies`", proxies).replace("`auxiliary`", role)
    return text.replace("see the class", "see above")


def probe(kind: str, name: str) -> dict[str, str]:
    """Each term and scalar that the component adds to those of every trial → what it is."""
    method = {**method_options(name), **EVERYTHING.get(name, {})} if kind == "method" else "plain"
    network = build_seeded_method(method, loss_options(name) if kind == "loss" else "proxy_anchor")
    generator = streams.create_generator(0, "reference")
    batch = network.prepare(Batch(draw_features(8), labels_for("n_pair", 8, 4)), generator)
    state = network(batch.inputs, batch.labels, Progress(), generator)
    terms = network.terms(state, batch.labels, Progress(), generator)
    EpochMetrics(0, 0).add(terms).backward()  # type: ignore[no-untyped-call]
    kinds = {"term": terms, "observed": network.observed(), "measured": network.MEASURES}
    return {key: what for what, keys in reversed(kinds.items()) for key in keys if key != "metric"}


def logged_table(kind: str, name: str, doc: Docstring) -> str:
    kinds, told = probe(kind, name), doc.logged
    if set(kinds) != set(told):
        raise Missing(
            f"{name}: its docstring must explain in `Logged:` {sorted(kinds.keys() - told.keys())}"
            f", and not {sorted(told.keys() - kinds.keys())}."
        )
    every = "[what every trial logs](../README.md#what-every-trial-logs)"
    if not kinds:
        return f"Only {every}."
    rows = [
        (code(IN_COLUMNS[kinds[key]].format(key)), cell(text).rstrip("."))
        for key, text in told.items()
    ]
    return f"Besides {every}:\n\n" + table(("quantity", "meaning"), rows)


def cost(document: dict[str, Any], name: str) -> str:
    if name not in document.get("costs", {}):
        raise Missing(f"{name} has no cost. Run python -m tests.benchmarks.bench_components.")
    row, shape = document["costs"][name], document["shape"]
    more = row["parameters"] - row["base_parameters"]
    counts = f" ({row['parameters']:,} against {row['base_parameters']:,})" if more else ""
    change = f"{abs(more):,} {'more' if more > 0 else 'fewer'}" if more else "equally many"
    return (
        f"A training step takes **{row['ratio']:.3g} times** the CPU time of the plain loss, which "
        f"is the method `plain` with the loss `normsoftmax` ({row['ms']:.3g} ms against "
        f"{row['base_ms']:.3g} ms). It trains {change} parameters{counts}. Shape: "
        f"{shape['images']} cached feature vectors of {shape['features']:,} numbers, "
        f"{shape['dimensions']} dimensions, {shape['classes']} classes. A backbone that trains adds"
        f" its time to both sides. Measured {row['date']} at commit {row['commit']}, "
        f"{row['machine']}, [in turns](../README.md#cost)."
    )


def results(kind: str, name: str) -> Iterator[str]:
    here = PAGES / FOLDERS[kind]
    yield "### Measured here"
    if rows := recipes.judged().get((kind, name)):
        yield (
            "The linked pages show each comparison with its data set, network and tuning. Intervals"
            " cover 95 %. A published gain is on another data set and network: a guide to the "
            "pattern, not to the level."
        )
        head = ("comparison", "row", "against", "metric", "difference", "verdict", "n")
        links = [f"[{cell(row.title)}]({relpath(row.page, here)})" for row in rows]
        lines = [(at, *map(cell, row[2:])) for at, row in zip(links, rows, strict=True)]
        yield table((*head, "published gain"), lines)
    else:
        paths = [*recipes.tuned().get((kind, name), {})]
        measured = [path for path in paths if path.parent.name not in ("gpu", "papers")]
        earlier = [recipes.RESULTS / f"{path.stem}.md" for path in measured]
        names = ", ".join(f"[{p.name}]({relpath(p, here)})" for p in earlier if p.is_file())
        more = f" Pages with earlier or other measurements: {names}." if names else ""
        yield f"No result of this {kind} has been judged by the present rule.{more}"
    yield "### Published"
    numbers = recipes.printed().get((kind, name), [])
    if not numbers:
        yield f"No printed table that a recipe repeats has a number of this {kind}."
        return
    yield (
        "Numbers as printed, in per cent where they are shares; most papers choose the best epoch "
        "on the test classes. The recipes in search_spaces/papers/ repeat these rows. The tables:"
    )
    tables = dict.fromkeys((n.paper, n.table, n.caption) for n in numbers)
    yield "\n".join(f"- [`{p}`](../methods/{p}.md), {t}: {join(text)}" for p, t, text in tables)
    head = ("table", "column", "row", "printed", "gain", "over the row", "apparent slip")
    yield table(head, [(f"`{n.paper}`, {n.table}", *map(cell, n[3:])) for n in numbers])


def tuned(kind: str, name: str, folder: str | None = None, most: int = 99) -> str:
    """Links to the recipes with a search over the component's options, its own ones first."""
    here = PAGES / (FOLDERS[kind] if folder is None else folder)
    paths = sorted(
        recipes.tuned().get((kind, name), {}),
        key=lambda path: (not path.stem.startswith(name), len(path.parts), path.stem),
    )
    names = [str(path.relative_to(recipes.SPACES)) for path in paths]
    links = [f"[{n}]({relpath(p, here)})" for n, p in list(zip(names, paths, strict=True))[:most]]
    more = [f"{len(paths) - most} more"] if len(paths) > most else []
    return ", ".join(links + more) or "no recipe"


# ---------------------------------------------------------------------- index


def index() -> str:
    """The template `index.md`, with tables of all components and of initial proxies."""
    text = Path(__file__).with_name("index.md").read_text(encoding="utf-8")
    for kind, registry in REGISTRIES.items():
        rows = []
        for name in names(kind):
            doc = Docstring(registry[name])
            year, paper = doc.paper(name)
            link = f"[`{name}`]({FOLDERS[kind]}/{name}.md)"
            rows.append((link, year, paper, tuned(kind, name, "", most=3), cell(doc.summary)))
        shown = table((kind, "year", "paper", "tuned here by", "what it does"), rows)
        text = text.replace(f"<!-- {FOLDERS[kind]} -->", shown)
    doc_lines = inspect.cleandoc(str(draw_initial_proxies.__doc__)).partition("uses it:\n")[2]
    inits = [line.strip().rstrip(".").partition(": ") for line in doc_lines.splitlines()]
    shown = table(("init", "distribution and origin"), [(code(n), cell(t)) for n, _, t in inits])
    return text.replace("<!-- inits -->", shown)
