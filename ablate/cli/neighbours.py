"""`ablate neighbours`: write a web page of pictures with their nearest neighbours."""

import argparse

from ablate.cli.options import add_model, parse_positive
from trainables.words.errors import ConfigError
from trainables.words.terminal import print_text
from trainables.words.texts import expand_user_path


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Write a web page of at most 500 pictures of a folder, evenly spaced, with their nearest "
        "neighbours. If its subfolders are classes, pictures of the same class are framed."
    )
    add_model(command)
    text = "The new folder to write the page to (default: ./neighbours)."
    command.add_argument("--to", default="neighbours", metavar="DIR", help=text)
    text = "The number of neighbours of each picture (default: 8)."
    command.add_argument("--nearest", type=parse_positive, default=8, metavar="K", help=text)


def run(args: argparse.Namespace) -> int:
    """Write a web page of pictures with their neighbours; return 1 if a picture is unreadable."""
    from ablate.cli.gallery import INDEX, count_hits, find_neighbours, write_gallery
    from ablate.cli.locate import explain_write_errors
    from ablate.cli.pictures import embed_folder, load_model, report_unreadable
    from trainables.core.pictures import list_pictures

    to = expand_user_path(args.to, "--to")
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise ConfigError("--to", f"{to} exists already", "Name a new folder, or remove it")
    root = expand_user_path(args.folder, "FOLDER")
    paths = list_pictures(root, "FOLDER")
    model = load_model(args.model, args.device)
    folder = embed_folder(model, root, paths)
    size = len(folder.paths)
    if size < 2:
        raise ConfigError(
            "FOLDER", f"only {size} picture can be read", "Name a folder with two pictures or more"
        )
    queries = find_neighbours(model, folder, args.nearest)
    with explain_write_errors(to, "--to"):
        write_gallery(to, root, queries, model.config.data.grey_range)
    print_text(f"the page has {len(queries)} of {size} pictures, each with its nearest neighbours")
    if (hits := count_hits(queries)) is not None:
        print_text(f"{hits} of these {len(queries)} have a nearest neighbour of the same class")
    print_text(f"open the page in a browser: {to / INDEX}")
    return report_unreadable(folder)
