"""`ablate embed`: a folder's pictures as a table of embeddings, in formats that run nothing when
they are read."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from ablate.cli.options import add_model
from ablate.values.terminal import progress_shown, say
from trainables.errors import ConfigError
from trainables.machine.texts import user_path

if TYPE_CHECKING:
    from torch import Tensor

    from ablate.cli.nearest import Index
    from trainables.core.export import Model


class Writer(Protocol):
    """Takes blocks of paths and embeddings, [B, E]; `close` makes the file whole."""

    def add(self, paths: Sequence[str], block: Tensor) -> None: ...
    def close(self) -> None: ...


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
    from ablate.cli.nearest import require_index
    from ablate.cli.pictures import Unread, embedded, listed, model_of

    to = user_path(args.to, "--to")
    if to.suffix not in WRITERS:
        raise ConfigError("--to", repr(str(to)), f"a file ending in {' or '.join(WRITERS)}")
    if to.exists() and not args.replace:
        raise ConfigError("--to", f"{to}, which is there", "a new file", "Or give --replace")
    index_file = None if args.index is None else user_path(args.index, "--index")
    if index_file is not None and index_file.exists() and not args.replace:
        raise ConfigError(
            "--index", f"{index_file}, which is there", "a new file", "Or give --replace"
        )
    root, paths = listed(args.folder)
    model = model_of(args.model, args.device)
    unread, count, width = Unread(), 0, 0
    index: Index | None = None
    draft = to.with_name(f".{to.name}.part")
    try:
        writer = WRITERS[to.suffix](draft, about(model, args.model))
        with progress_shown():
            for rows, block in embedded(model, root, paths, unread):
                writer.add([paths[row].as_posix() for row in rows], block)
                count, width = count + len(rows), block.shape[1]
                if index_file is not None:
                    index = index or require_index(model, width)
                    index.add(block)
        if not count:
            raise unread.all_of(root)
        writer.close()
        draft.replace(to)
        if index is not None and index_file is not None:
            index_file.parent.mkdir(parents=True, exist_ok=True)
            index.write(index_file)
    except OSError as error:
        raise ConfigError(
            "--to", f"{to}, which cannot be written ({error.strerror or error})", "a writable file"
        ) from error
    finally:
        draft.unlink(missing_ok=True)
    say(f"{count} pictures in {to}, {width} numbers each")
    if index_file is not None:
        say(f"faiss index of them, in the same order, in {index_file}")
    if unread.count:
        say(f"{unread.count} could not be read, and are left out", error=True)
    return 1 if unread.count else 0


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


class Npz:
    """`embeddings` [N, E] float32, `paths` [N] text, `about` JSON; read by numpy.load alone.

    Embeddings wait in a file, not in memory: their number is known when all are read.
    """

    def __init__(self, path: Path, told: dict[str, Any]) -> None:
        self.path, self.told = path, told
        self.paths: list[str] = []
        self.width = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self.rows: IO[bytes] = tempfile.TemporaryFile(dir=path.parent)  # noqa: SIM115 - see close

    def add(self, paths: Sequence[str], block: Tensor) -> None:
        import numpy as np

        self.paths += paths
        self.width = block.shape[1]
        self.rows.write(np.ascontiguousarray(block.numpy(), "<f4").data)

    def close(self) -> None:
        import numpy as np

        header = {
            "descr": "<f4",
            "fortran_order": False,
            "shape": (len(self.paths), self.width),
        }
        with self.rows, zipfile.ZipFile(self.path, "w") as file:
            with file.open("embeddings.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(member, header)
                self.rows.seek(0)
                shutil.copyfileobj(self.rows, member)
            for name, values in (("paths", self.paths), ("about", json.dumps(self.told))):
                with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.array(values), allow_pickle=False)


class Parquet:
    """Columns `path` and `embedding` (a list of E float32); `about` in the schema's metadata."""

    def __init__(self, path: Path, told: dict[str, Any]) -> None:
        self.path, self.told = path, told
        self.writer: Any = None
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, paths: Sequence[str], block: Tensor) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        values = pa.FixedSizeListArray.from_arrays(
            pa.array(block.numpy().reshape(-1), pa.float32()), block.shape[1]
        )
        table = pa.table({"path": pa.array(paths, pa.string()), "embedding": values})
        if self.writer is None:
            schema = table.schema.with_metadata({"about": json.dumps(self.told)})
            self.writer = pq.ParquetWriter(self.path, schema)
        self.writer.write_table(table)

    def close(self) -> None:
        self.writer.close()


WRITERS: dict[str, type[Npz] | type[Parquet]] = {".npz": Npz, ".parquet": Parquet}
