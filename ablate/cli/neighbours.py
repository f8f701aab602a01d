"""`ablate neighbours`: pictures of a folder beside those that a model finds nearest, as pages."""

from __future__ import annotations

import argparse

from ablate.cli.options import add_model, parse_positive
from ablate.values.terminal import print_text
from trainables.errors import ConfigError
from trainables.machine.texts import expand_user_path


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Write a web page of pictures with their nearest neighbours in the folder. If "
        "its subfolders are classes, pictures of the same class are framed."
    )
    command.epilog = (
        "Exit codes: 0 all pictures were used; 1 some could not be read; 2 wrong input."
    )
    add_model(command)
    command.add_argument(
        "--to",
        default="neighbours",
        metavar="DIR",
        help="The folder to write (default: ./neighbours).",
    )
    command.add_argument(
        "--nearest",
        type=parse_positive,
        default=8,
        metavar="K",
        help="The number of neighbours of each picture (default: 8).",
    )
    command.add_argument(
        "--queries",
        type=parse_positive,
        default=500,
        metavar="N",
        help="The number of query pictures, evenly spaced in the folder (default: 500).",
    )


def run(args: argparse.Namespace) -> int:
    """Return 0 for a gallery of all pictures, 1 if some could not be read."""
    from ablate.cli.gallery import INDEX, write_gallery
    from ablate.cli.locate import explain_write_errors
    from ablate.cli.pictures import embed_folder, load_model, search_folder
    from trainables.core.export import list_pictures

    to = expand_user_path(args.to, "--to")
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise ConfigError("--to", f"{to} exists already. Name a new folder, or remove it.")
    root = expand_user_path(args.folder, "FOLDER")
    paths = list_pictures(root, "FOLDER")
    model = load_model(args.model, args.device)
    folder = embed_folder(model, root, paths)
    size = len(folder.paths)
    if size < 2:
        raise ConfigError("FOLDER", f"{size} pictures can be read, and neighbours need at least 2")
    queries = search_folder(model, folder, args.queries, args.nearest)
    with explain_write_errors(to, "--to"):
        write_gallery(to, root, queries, title=f"Nearest pictures: {root.resolve().name}")
    print_text(f"{len(queries)} of {size} pictures with their nearest")
    if folder.classes is not None:
        hits = sum(query.hit for query in queries)
        print_text(f"the nearest is of the same class for {hits} of these {len(queries)}")
    print_text(f"open {to / INDEX}")
    if folder.unread:
        print_text(f"{folder.unread} could not be read, and are left out", error=True)
    return 1 if folder.unread else 0
