"""`ablate neighbours`: pictures of a folder beside those that a model finds nearest, as pages."""

from __future__ import annotations

import argparse

from ablate.cli.options import add_model, positive
from ablate.values.terminal import progress_shown, say
from trainables.errors import ConfigError
from trainables.machine.texts import user_path


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Write pages of pictures, each with those of the folder that the model finds "
        "nearest. Where its folders are classes, hits are framed. Any browser opens them."
    )
    command.epilog = "Exit codes: 0 all pictures; 1 some could not be read; 2 wrong input."
    add_model(command)
    command.add_argument(
        "--to", default="neighbours", metavar="DIR", help="folder (default: ./neighbours)"
    )
    command.add_argument(
        "--nearest", type=positive, default=8, metavar="K", help="how many each (default: 8)"
    )
    command.add_argument(
        "--queries",
        type=positive,
        default=500,
        metavar="N",
        help="of how many pictures, evenly spaced in the folder (default: 500)",
    )


def run(args: argparse.Namespace) -> int:
    """0: a gallery of all pictures. 1: some could not be read."""
    from ablate.cli.gallery import INDEX, is_gallery, write
    from ablate.cli.nearest import read_folder, search_folder
    from ablate.cli.pictures import Unread, listed, model_of

    to = user_path(args.to, "--to")
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        if not to.is_dir() or not is_gallery(to):
            raise ConfigError("--to", f"{to}, which is there", "a new folder", "Name another one")
        if not args.replace:
            raise ConfigError("--to", f"{to}, a gallery", "a new folder", "Or give --replace")
    root, paths = listed(args.folder)
    model = model_of(args.model, args.device)
    unread = Unread()
    with progress_shown():
        found = read_folder(model, root, paths, unread)
    if len(found.paths) < 2:
        raise ConfigError("FOLDER", f"{len(found.paths)} pictures that can be read", "at least 2")
    queries = search_folder(model, found, args.queries, args.nearest)
    try:
        pages = write(to, found.root, queries, title=f"Nearest pictures: {root.resolve().name}")
    except OSError as error:
        why = error.strerror or error
        raise ConfigError(
            "--to", f"{to}, which cannot be written ({why})", "a writable folder"
        ) from error
    say(f"{len(queries)} of {len(found.paths)} pictures with their nearest on {pages} pages")
    if found.classes is not None:
        hits = sum(query.hit for query in queries)
        say(f"the nearest is of the same class for {hits} of these {len(queries)}")
    say(f"open {to / INDEX}")
    if unread.count:
        say(f"{unread.count} could not be read, and are left out", error=True)
    return 1 if unread.count else 0
