"""`ablate embed`: a folder's pictures as a table of embeddings, in formats that run nothing when
they are read."""

from __future__ import annotations

import argparse
import io
import json
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ablate.cli.options import add_model
from ablate.values.terminal import print_text
from trainables.errors import ConfigError
from trainables.machine.texts import expand_user_path

if TYPE_CHECKING:
    import numpy as np

FORMATS = (".npz", ".parquet")


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Embed the pictures of a folder and its subfolders with the preprocessing of "
        "the trial's evaluation. Pictures that cannot be read are named and skipped."
    )
    command.epilog = (
        "Exit codes: 0 all pictures were used; 1 some could not be read; 2 wrong input."
    )
    add_model(command)
    command.add_argument(
        "--to",
        default="embeddings.npz",
        metavar="FILE",
        help="The file to write, .npz or .parquet (default: ./embeddings.npz).",
    )
    command.add_argument(
        "--index",
        metavar="FILE",
        help=("Also write a faiss index of the embeddings with the model's measure of similarity."),
    )


def run(args: argparse.Namespace) -> int:
    """Return 0 if all pictures are in the file, 1 if some could not be read."""
    import torch

    from ablate.cli.locate import check_new_file, explain_write_errors
    from ablate.cli.pictures import build_index, embed_folder, load_model
    from trainables.core.export import list_pictures
    from trainables.machine.files import write_atomically

    to = check_new_file(args.to, "--to")
    if to.suffix not in FORMATS:
        raise ConfigError("--to", f"the name of {to} must end in {' or '.join(FORMATS)}")
    index_file = args.index and check_new_file(args.index, "--index")
    root = expand_user_path(args.folder, "FOLDER")
    paths = list_pictures(root, "FOLDER")
    model = load_model(args.model, args.device)
    if index_file and find_spec("faiss") is None:
        raise ConfigError(
            "--index", "faiss-cpu is not installed. Install it, or leave --index out."
        )
    if index_file and build_index(model, torch.zeros(1, 1)) is None:
        raise ConfigError(
            "--index",
            f"{model.config.method.name} on {model.config.loss.name} has no similarity that a "
            "faiss index supports. Leave --index out; `ablate neighbours` works.",
        )
    with explain_write_errors(to, "--to"):
        to.parent.mkdir(parents=True, exist_ok=True)  # before all pictures are read
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
    names = [path.as_posix() for path in folder.paths]
    table = _encode_table(to.suffix, names, folder.embeddings.numpy(), json.dumps(about))
    with explain_write_errors(to, "--to"):
        write_atomically(to, table)
    print_text(f"{len(names)} pictures in {to}, {folder.embeddings.shape[1]} numbers each")
    if index_file and (indexed := build_index(model, folder.embeddings)):
        import faiss

        with explain_write_errors(index_file, "--index"):
            index_file.parent.mkdir(parents=True, exist_ok=True)
            index_file.write_bytes(faiss.serialize_index(indexed[0]).tobytes())
        print_text(f"faiss index of them, in the same order, in {index_file}")
    if folder.unread:
        print_text(f"{folder.unread} could not be read, and are left out", error=True)
    return 1 if folder.unread else 0


def _encode_table(suffix: str, paths: list[str], embeddings: np.ndarray, about: str) -> bytes:
    """Return a file of embeddings [N, E] float32 and paths [N], with JSON about what made them.

    .npz: arrays `embeddings`, `paths` and `about`. .parquet: columns `path` and `embedding` (lists
    of E numbers), `about` in the metadata.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    stream = io.BytesIO()
    if suffix == ".npz":
        np.savez(
            stream,
            embeddings=embeddings.astype("<f4"),
            paths=np.array(paths),
            about=np.array(about),
        )
    else:
        flat = pa.array(embeddings.reshape(-1), pa.float32())
        vectors = pa.FixedSizeListArray.from_arrays(flat, embeddings.shape[1])
        table = pa.table({"path": pa.array(paths, pa.string()), "embedding": vectors})
        pq.write_table(table.replace_schema_metadata({"about": about}), stream)
    return stream.getvalue()
