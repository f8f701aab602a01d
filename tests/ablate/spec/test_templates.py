"""Studies that are written once for several levels of factors (`for`)."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from ablate.cli.options import parse_levels
from ablate.spec.read import read_spec
from trainables.words.errors import ConfigError

SPACES = Path(__file__).parents[3] / "search_spaces"
SPACE = {"optimizer.lr": {"low": 1e-4, "high": 1e-2}}


def build_spec(**changes: Any) -> dict[str, Any]:
    return {
        "name": "templates",
        "factors": {
            "size": {"small": {"trial": {"embedding.dim": 8}}, "large": {}},
            "method": {name: {"trial": {"method": {"name": name}}} for name in ("plain", "ddml")},
        },
        "studies": {
            "rates_{size}": {"for": ["size"], "design": "search", "trials": 4, "space": SPACE},
            "tune_{method}_{size}": {
                "for": {"size": "all", "method": {"ddml": {"trials": 3, "space": SPACE}}},
                "design": "search",
                "title": "{method} at {size}",
                "around": {"best_of": "rates_{size}"},
                "trials": 2,
            },
            "judged": {"design": "compare", "cross": ["size", "method"]},
        },
        **changes,
    }


def refuse(spec: dict[str, Any], **options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        read_spec(spec, **options)
    return str(caught.value)


def test_a_study_is_made_for_each_combination_of_levels() -> None:
    spec = read_spec(build_spec()).spec
    assert [*spec.studies] == [
        *("rates_small", "rates_large", "tune_ddml_small", "tune_ddml_large", "judged")
    ]
    tuned: Any = spec.studies["tune_ddml_small"]
    assert (tuned.title, tuned.trials) == ("ddml at small", 3)
    assert tuned.around[0].best_of == "rates_small"
    assert tuned.trial == {"embedding.dim": 8, "method": {"name": "ddml"}}
    judged: Any = spec.studies["judged"]
    assert [*judged.cross] == ["size", "method"] and [*judged.cross["size"]] == ["small", "large"]


def test_levels_are_left_out_and_single_studies_changed() -> None:
    spec = build_spec()
    spec["studies"]["rates_small"] = {"trials": 7}
    spec["factors"]["size"]["large"] = None
    for found in (read_spec(spec), read_spec(build_spec(), levels={"size": ["small"]})):
        assert [*found.spec.studies] == ["rates_small", "tune_ddml_small", "judged"]
    rates: Any = read_spec(spec).spec.studies["rates_small"]
    assert rates.trials == 7 and [*rates.space] == [*SPACE]
    # a level that `for` names and the command line leaves out makes no study
    tables = [{"kind": "search", "study": name} for name in ("rates_small", "tune_ddml_small")]
    figures = [{"kind": "slices", "studies": [table["study"]]} for table in tables]
    spec = build_spec(report={"tables": tables, "figures": figures})
    assert len(read_spec(spec).spec.report.tables) == 2
    kept = read_spec(spec, levels=parse_levels(["method=plain"])).spec
    assert not any(name.startswith("tune") for name in kept.studies)
    assert [table.study for table in kept.report.tables] == ["rates_small"]
    assert [figure.studies for figure in kept.report.figures] == [("rates_small",)]


def test_a_study_of_single_terms_is_made_for_the_levels_that_are_kept() -> None:
    kept = read_spec(SPACES / "comparisons/heads.yaml", levels={"data": ["typefaces"]}).spec
    names = ["terms_proxy_anchor_typefaces"]
    assert [name for name in kept.studies if name.startswith("terms")] == names
    assert [t.study for t in kept.report.tables if t.study.startswith("terms")] == names


def test_each_study_of_heads_has_its_levels() -> None:
    levels = ("typefaces", "emoji"), ("normsoftmax", "proxy_anchor"), ("plain", "ddml", "nir")
    studies: Any = read_spec(SPACES / "comparisons/heads.yaml").spec.studies
    for data, loss, method in itertools.product(*levels):
        study = studies[f"tune_{method}_{loss}_{data}"]
        names = [study.trial[section]["name"] for section in ("data", "loss", "method")]
        assert names == [data, loss, method]
        (around,) = study.around
        centre = "near" if method == "plain" else "best_plain"
        assert around.best_of == f"{centre}_{loss}_{data}"


@pytest.mark.parametrize(
    ("studies", "message"),
    [
        ({"a": {"for": ["size"]}}, "two combinations make the study a. Name all factors"),
        ({"{hue}": {"for": ["hue"]}}, "the factor 'hue' is unknown; there are size, method"),
        ({"{size}": {"for": {"size": "huge"}}}, "the level 'huge' is unknown; there are small"),
        ({"{size}": {"for": 3}}, "studies.{size}.for: 3 is no mapping"),
        ({"{size}": {"for": {"size": {"small": 3}}}}, "for.size.small: 3 is no mapping"),
        ({"{size}": {"for": ["size"], "design": "grid"}}, "studies.small"),
        ({"j": {"design": "compare", "cross": ["hue"]}}, "studies.j.cross: the factor 'hue'"),
    ],
)
def test_faults_of_templates_are_named(studies: dict[str, Any], message: str) -> None:
    assert message in refuse(build_spec(studies=studies))


def test_faults_of_factors_and_levels_are_named(tmp_path: Path) -> None:
    assert "factors: 3 is no mapping" in refuse(build_spec(factors=3))
    assert "factors.size.a: 3 is no mapping" in refuse(build_spec(factors={"size": {"a": 3}}))
    assert "--levels: the level 'tiny'" in refuse(build_spec(), levels={"size": ["tiny"]})
    with pytest.raises(ConfigError, match="is not FACTOR=LEVEL"):
        parse_levels(["size"])
    text = 'name: lines\nfactors: {f: {a: {}}}\nstudies:\n  "s_{f}": {for: [f], design: grit}\n'
    (tmp_path / "spec.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"line 4: studies\.s_a"):
        read_spec(tmp_path / "spec.yaml")
