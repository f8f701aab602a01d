"""Plan the rows of comparisons again with the plain loss, for `report: same_rates: true`.

A row that has rates of its own may differ from the baseline because of its method or of its rates.
Each study of a `compare` table gets a second study with the same rows, settings and seeds, in which
a last factor sets the method to the plain loss. The table then also shows row − the same row with
the plain loss. Trials that the comparison has itself, such as those of its plain row, have the same
ids and are not trained again.
"""

from collections.abc import Mapping
from typing import Any

from ablate.designs.compare import Compare
from ablate.schedulers.precision import PrecisionSeeds
from ablate.spec.model import Spec
from trainables.words.errors import ConfigError

ENDING = "_same_rates"
FACTOR = {"same_rates": {"plain": {"trial": {"method": {"name": "plain"}}}}}


def add_same_rates_studies(data: Mapping[str, Any], spec: Spec) -> dict[str, Any]:
    """Return the mapping of a valid spec with a second study for each comparison of a table.

    Raises:
        ConfigError: no table has a comparison, or results decide the seeds of a comparison.
    """
    studies = dict(data["studies"])
    for name, study in spec.studies.items():
        tables = [table for table in spec.report.tables if table.study == name]
        if not isinstance(study, Compare) or all(table.kind != "compare" for table in tables):
            continue
        seeds = spec.seeds if study.seeds is None else study.seeds
        if study.race is not None or isinstance(seeds, PrecisionSeeds):
            raise ConfigError(
                f"studies.{name}",
                "`report.same_rates` needs a fixed list of seeds, and no race",
                "List the seeds, or remove `same_rates`",
            )
        if name + ENDING in studies:
            raise ConfigError(
                f"studies.{name}{ENDING}",
                f"`report.same_rates` adds a study named {name}{ENDING}",
                "Rename the study",
            )
        cross = {**studies[name].get("cross", {}), **FACTOR}
        title = f"{study.title or name}: the plain loss at the same rates"
        # as_published: rows that differ in their rates alone need no equal budgets
        changes = {"title": title, "cross": cross, "tuning": "as_published"}
        studies[name + ENDING] = {**studies[name], **changes}
    if len(studies) == len(data["studies"]):
        raise ConfigError(
            "report.same_rates",
            "no table of the kind compare shows a compare study",
            "Add the table, or remove `same_rates`",
        )
    return {**data, "studies": studies}


def map_same_rates_studies(spec: Spec) -> dict[str, str]:
    """Map each comparison to the study that `report: same_rates: true` added for it."""
    if not spec.report.same_rates:
        return {}
    return {name: name + ENDING for name in spec.studies if name + ENDING in spec.studies}
