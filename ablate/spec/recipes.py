"""Find the specs that come with ablate, in a checkout or an installed wheel (`search_spaces/`)."""

import re
from os.path import normpath
from pathlib import Path

from trainables.words.errors import ConfigError
from trainables.words.messages import join_words, suggest_nearest

FOLDER = Path(__file__).resolve().parents[2] / "search_spaces"
_REFERENCE = re.compile(r"^(extends: |  sources: )(\S+\.yaml)$", re.MULTILINE)

# recipes of 0.2.0 whose studies are now in another recipe, or that are one with fewer trials
FOLDED = {
    "all_methods_small": "all_methods",
    "ddml_toy": "ddml_bases",
    "few_images_4_why": "few_images_4",
    "few_images_why": "few_images_10",
    "heads_why": "heads",
    "networks_why": "networks",
    "reality_check_small": "reality_check",
}


def list_recipes() -> list[str]:
    """Return the names of the recipes (`ddml`, `papers/ddml`, …), sorted."""
    names = [path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.yaml")]
    return sorted(name for name in names if not name.endswith(".sources"))


def locate_spec(path: Path, name: str) -> Path:
    """Return `path`, or, if no file is there, the recipe or file of a recipe called `name`."""
    recipe = FOLDER / f"{name.removeprefix('search_spaces/').removesuffix('.yaml')}.yaml"
    is_recipe = FOLDER in Path(normpath(recipe)).parents and recipe.is_file()
    return recipe if is_recipe and (path.is_dir() or not path.exists()) else path


def suggest_recipe(name: str, otherwise: str) -> str:
    """Return a remedy for a spec that is not there: where the file is now, or a similar name."""
    stem, recipes = Path(name).name.removesuffix(".yaml"), list_recipes()
    stem = FOLDED.get(stem, stem)
    for recipe in recipes:
        if Path(recipe).name == stem:
            return f"The recipe is at search_spaces/{recipe}.yaml."
    return suggest_nearest(name.removesuffix(".yaml"), recipes, otherwise)


def read_recipe(name: str) -> str:
    """Return the text of a recipe; the files that it names are found from any folder.

    Raises:
        ConfigError: there is no such recipe.
    """
    if (path := locate_spec(FOLDER, name)) == FOLDER or path.match("*.sources.yaml"):
        raise ConfigError(
            "--from",
            f"the recipe {name!r} is unknown; there are {join_words(list_recipes())}",
            suggest_recipe(name, "Choose one of the known names."),
        )
    parent = path.relative_to(FOLDER).parent
    return _REFERENCE.sub(lambda m: m[1] + normpath(parent / m[2]), path.read_text("utf-8"))
