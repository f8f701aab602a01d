"""`ablate embed`: a folder's pictures as a table of embeddings, in formats that run nothing when
they are read."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.cli.options import add_model
from ablate.values.terminal import progress_shown, say
from trainables.errors import ConfigError
from trainables.machine.texts import user_path

if TYPE_CHECKING:
    import numpy as np

    from trainables.core.export import Model


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Embed a folder of pictures, at any depth, as the trial that trained the model "
        "evaluated its own. What cannot be read is named and left out."
    )
    command.epilog = "Exit codes: 0 all pictures; 1 some could not be read; 2 wrong input."
    add_model(command)
    command.add_argument(
        "--to",
        default="embeddings.npz",
        metavar="FILE",
        help=".npz or .parquet (default: ./embeddings.npz)",
    )
    command.add_argument(
        "--index",
        metavar="FILE",
        help="also write a faiss index of them, which compares as the model does",
    )


def run(args: argparse.Namespace) -> int:
    """0: all pictures are in the file. 1: some could not be read."""
    from ablate.cli.nearest import read_folder, require_index
    from ablate.cli.pictures import Unread, listed, model_of

    to = _new_file(args.to, "--to", args.replace)
    if to.suffix not in WRITERS:
        raise ConfigError("--to", repr(str(to)), f"a file ending in {' or '.join(WRITERS)}")
    index_file = None if args.index is None else _new_file(args.index, "--index", args.replace)
    root, paths = listed(args.folder)
    model = model_of(args.model, args.device)
    if index_file is not None:
        require_index(model, 1)  # refuses a model that none fits, before all are read
    unread, draft = Unread(), to.with_name(f".{to.name}.part")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        draft.touch()  # refuses a folder that cannot be written, likewise
        with progress_shown():
            found = read_folder(model, root, paths, unread)
        names = [path.as_posix() for path in found.paths]
        WRITERS[to.suffix](draft, names, found.embeddings.numpy(), about(model, args.model))
        draft.replace(to)
        if index_file is not None:
            index = require_index(model, found.embeddings.shape[1])
            index.add(found.embeddings)
            index_file.parent.mkdir(parents=True, exist_ok=True)
            index.write(index_file)
    except OSError as error:
        raise ConfigError(
            "--to", f"{to}, which cannot be written ({error.strerror or error})", "a writable file"
        ) from error
    finally:
        draft.unlink(missing_ok=True)
    say(f"{len(names)} pictures in {to}, {found.embeddings.shape[1]} numbers each")
    if index_file is not None:
        say(f"faiss index of them, in the same order, in {index_file}")
    if unread.count:
        say(f"{unread.count} could not be read, and are left out", error=True)
    return 1 if unread.count else 0


def _new_file(given: str, option: str, replace: bool) -> Path:
    path = user_path(given, option)
    if path.exists() and not replace:
        raise ConfigError(option, f"{path}, which is there", "a new file", "Or give --replace")
    return path


def about(model: Model, given: str) -> dict[str, Any]:
    """What stands beside the embeddings: what made them, and how they are compared."""
    geometry = model.network.method.loss.retrieval
    return {
        "model": given,
        "method": model.config.method.name,
        "loss": model.config.loss.name,
        "backbone": model.config.backbone.name,
        "image_size": model.config.data.image_size,
        "compared_by": geometry.kind,
        "normalized": geometry.normalize,
    }


def write_npz(file: Path, paths: list[str], embeddings: np.ndarray, told: dict[str, Any]) -> None:
    """Write `embeddings` [N, E] float32, `paths` [N] text, `about` JSON, as numpy.load reads."""
    import numpy as np

    with file.open("wb") as stream:
        np.savez(
            stream,
            embeddings=embeddings.astype("<f4"),
            paths=np.array(paths),
            about=np.array(json.dumps(told)),
        )


def write_parquet(
    file: Path, paths: list[str], embeddings: np.ndarray, told: dict[str, Any]
) -> None:
    """Write columns `path` and `embedding` (a list of E float32), `about` in the metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    flat = pa.array(embeddings.reshape(-1), pa.float32())
    values = pa.FixedSizeListArray.from_arrays(flat, embeddings.shape[1])
    table = pa.table({"path": pa.array(paths, pa.string()), "embedding": values})
    pq.write_table(table.replace_schema_metadata({"about": json.dumps(told)}), file)


WRITERS = {".npz": write_npz, ".parquet": write_parquet}
