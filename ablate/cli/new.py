"""`ablate new`: write a first spec from a few options."""

import argparse

GOALS = {
    "tune": "search the method's settings, and read the best on test classes",
    "terms": "tune the method, then switch each of its terms on and off",
    "compare": "tune the method and the plain loss alike, and compare the best of both",
}


def add_arguments(command: argparse.ArgumentParser) -> None:
    text = "The name of the sweep; its file is NAME.yaml."
    command.add_argument("name", metavar="NAME", help=text)
    for option, metavar, default, note in (
        ("data", "NAME|DIR", "typefaces", "a data set, or a folder of class folders; "),
        ("loss", "NAME", "proxy_anchor", ""),
        ("method", "NAME", "ddml", "plain is the loss alone; "),
        ("backbone", "NAME", "tf_efficientnet_lite0", "any backbone of timm; "),
    ):
        help_text = f"{note}default: {default}"
        command.add_argument(f"--{option}", metavar=metavar, default=default, help=help_text)
    goals = "; ".join(f"{goal}: {purpose}" for goal, purpose in GOALS.items())
    text = f"What the spec is for (default: tune). {goals}."
    command.add_argument("--goal", choices=GOALS, default="tune", help=text)
    command.add_argument("--to", metavar="FILE", help="The file to write (default: ./NAME.yaml).")


def run(args: argparse.Namespace) -> int:
    from ablate.cli.new_spec import write_new_spec

    return write_new_spec(args, GOALS[args.goal])
