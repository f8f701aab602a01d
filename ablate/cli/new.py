"""`ablate new`: write a first spec from a few options, or copy a recipe."""

import argparse

from ablate.spec.yaml_loader import list_recipes
from trainables.errors import ConfigError

GOALS = {
    "tune": "search the method's settings, and read the best on test classes",
    "terms": "tune the method, then switch each of its terms on and off",
    "compare": "tune the plain loss, then the method at its rates, and compare the best of both",
    "losses": "tune each --loss alike, without a method, and compare the best of each",
}
# option, metavar, default, and a note for --help
PARTS = (
    ("data", "NAME|DIR", "typefaces", "a data set, or a folder of class folders; "),
    ("loss", "NAME", "proxy_anchor", "give it again for each loss of --goal losses; "),
    ("method", "NAME", "ddml", "plain is the loss alone; "),
    ("backbone", "NAME", "tf_efficientnet_lite0", "any backbone of timm; "),
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.epilog = f"Recipes: {', '.join(list_recipes())}."
    text = "The name of the sweep; its file is NAME.yaml."
    command.add_argument("name", metavar="NAME", help=text)
    text = "Copy this recipe, for example ddml, under the name NAME. Edit the copy as you like."
    command.add_argument("--from", metavar="RECIPE", dest="recipe", help=text)
    for option, metavar, default, note in PARTS:
        help_text = f"{note}default: {default}"
        command.add_argument(f"--{option}", metavar=metavar, action="append", help=help_text)
    goals = "; ".join(f"{goal}: {purpose}" for goal, purpose in GOALS.items())
    text = f"What the spec is for (default: tune). {goals}."
    command.add_argument("--goal", choices=GOALS, default="tune", help=text)
    command.add_argument("--to", metavar="FILE", help="The file to write (default: ./NAME.yaml).")


def run(args: argparse.Namespace) -> int:
    """Write a new spec, or a copy of a recipe; return exit code 0."""
    from ablate.cli.new_spec import write_new_spec

    chosen = [f"--{option}" for option, *_ in PARTS if vars(args)[option]]
    chosen += ["--goal"] if args.goal != "tune" else []
    if args.recipe is not None and chosen:
        raise ConfigError(
            "--from",
            "a recipe is copied as it is",
            f"Leave out {', '.join(chosen)}, and edit the copy",
        )
    if args.goal == "losses":
        if args.method:
            raise ConfigError("--method", "--goal losses has no method", "Leave --method out")
        if len(set(args.loss or ())) < 2:
            raise ConfigError("--loss", "--goal losses compares two losses or more", "Name them")
        args.method = ["plain"]
    for option, _, default, _ in PARTS:
        values = vars(args)[option] or [default]
        if len(values) > 1 and (option, args.goal) != ("loss", "losses"):
            raise ConfigError(
                f"--{option}",
                f"{' and '.join(values)} are given",
                "Give one; only --goal losses takes several, of --loss",
            )
        setattr(args, option, values if option == "loss" else values[0])
    return write_new_spec(args, GOALS[args.goal])
