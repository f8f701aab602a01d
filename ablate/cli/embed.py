"""`ablate embed`: write the embeddings of a folder's pictures to an .npz file."""

import argparse
import io
import json

from ablate.cli.options import add_model
from trainables.words.errors import ConfigError
from trainables.words.terminal import print_text
from trainables.words.texts import expand_user_path


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Embed the pictures of a folder and its subfolders as the evaluation of the model's trial "
        "does. The file has the arrays `embeddings`, `paths` and `about` (JSON on the model)."
    )
    add_model(command)
    text = "The .npz file to write (default: ./embeddings.npz)."
    command.add_argument("--to", default="embeddings.npz", metavar="FILE", help=text)
    text = "Also write a faiss index of the embeddings with the model's measure of similarity."
    command.add_argument("--index", metavar="FILE", help=text)


def run(args: argparse.Namespace) -> int:
    """Write the embeddings of pictures to files; return 1 if some pictures are unreadable."""
    import numpy as np
    import torch

    from ablate.cli.locate import check_new_file, explain_write_errors
    from ablate.cli.pictures import build_index, embed_folder, load_model, report_unreadable
    from trainables.core.pictures import list_pictures
    from trainables.words.files import write_atomically

    # check all input before the pictures are read
    to = check_new_file(args.to, "--to")
    if to.suffix != ".npz":
        raise ConfigError("--to", f"{to} is not the name of an .npz file", "Let it end in .npz")
    index_file = check_new_file(args.index, "--index") if args.index else None
    root = expand_user_path(args.folder, "FOLDER")
    paths = list_pictures(root, "FOLDER")
    model = load_model(args.model, args.device)
    if index_file and build_index(model, torch.zeros(1, 1)) is None:  # try one row of zeros
        raise ConfigError(
            "--index",
            "faiss is not installed, or cannot compare as this model does",
            "Leave out --index",
        )
    with explain_write_errors(to, "--to"):
        to.parent.mkdir(parents=True, exist_ok=True)
    # embed the pictures
    folder = embed_folder(model, root, paths)
    geometry = model.network.method.loss.retrieval
    about = {
        "model": args.model,
        "method": model.config.method.name,
        "loss": model.config.loss.name,
        "backbone": model.config.backbone.name,
        "image_size": model.config.data.image_size,
        "compared_by": geometry.kind,
        "normalized": geometry.normalize,
    }
    # write the file
    stream = io.BytesIO()
    np.savez(
        stream,
        embeddings=folder.embeddings.numpy().astype("<f4"),
        paths=np.array([path.as_posix() for path in folder.paths]),
        about=np.array(json.dumps(about)),
    )
    with explain_write_errors(to, "--to"):
        write_atomically(to, stream.getvalue())
    n_pictures, dim = folder.embeddings.shape
    print_text(f"{to} has the embeddings of {n_pictures} pictures, {dim} numbers each")
    if index_file and (indexed := build_index(model, folder.embeddings)):
        import faiss

        with explain_write_errors(index_file, "--index"):
            index_file.parent.mkdir(parents=True, exist_ok=True)
            index, _ = indexed
            index_file.write_bytes(faiss.serialize_index(index).tobytes())
        print_text(f"{index_file} has a faiss index of the embeddings, in the same order")
    return report_unreadable(folder)
