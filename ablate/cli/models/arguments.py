"""The arguments of `embed`, `neighbours` and `backbones`."""

from __future__ import annotations

import argparse

from ablate.cli.arguments import Commands, positive


def add(commands: Commands) -> None:
    embed = commands.add_parser(
        "embed",
        help="embed a folder of pictures with a trained model",
        description="Embed a folder of pictures, at any depth, as the trial that trained the model "
        "evaluated its own. What cannot be read is named and left out.",
        epilog="Exit codes: 0 all pictures; 1 some could not be read; 2 wrong input.",
    )
    _model(embed)
    embed.add_argument(
        "--to",
        default="embeddings.npz",
        metavar="FILE",
        help=".npz or .parquet (default: ./embeddings.npz)",
    )
    embed.add_argument(
        "--index",
        metavar="FILE",
        help="also write a faiss index of them, which compares as the model does",
    )
    embed.set_defaults(handler="embed:embed")
    neighbours = commands.add_parser(
        "neighbours",
        help="a gallery of a folder's pictures with those that a model finds nearest",
        description="Write pages of pictures, each with those of the folder that the model finds "
        "nearest. Where its folders are classes, hits are framed. Any browser opens them.",
        epilog="Exit codes: 0 all pictures; 1 some could not be read; 2 wrong input.",
    )
    _model(neighbours)
    neighbours.add_argument(
        "--to", default="neighbours", metavar="DIR", help="folder (default: ./neighbours)"
    )
    neighbours.add_argument(
        "--nearest", type=positive, default=8, metavar="K", help="how many each (default: 8)"
    )
    neighbours.add_argument(
        "--queries",
        type=positive,
        default=500,
        metavar="N",
        help="of how many pictures, evenly spaced in the folder (default: 500)",
    )
    neighbours.set_defaults(handler="neighbours:neighbours")
    backbones = commands.add_parser(
        "backbones",
        help="those of the papers, and whether their weights are here",
        description="List the papers' backbones and whether their weights are here. With NAME, say "
        "which weights file a model needs that timm lacks; with --file, check such a file.",
    )
    backbones.add_argument("name", nargs="?", metavar="NAME", help="bn_inception, googlenet, …")
    backbones.add_argument("--file", metavar="PATH", help="a weights file to check")
    backbones.add_argument(
        "--save", metavar="FILE", help="write the model's tensors of it there, as .safetensors"
    )
    backbones.set_defaults(handler="backbones:backbones")


def _model(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "model", metavar="MODEL", help="best.safetensors, or the trial's folder that holds it"
    )
    command.add_argument("folder", metavar="FOLDER", help="of pictures; class folders or none")
    command.add_argument("--device", default="auto", help="auto (default), cpu, cuda or cuda:N")
    command.add_argument("--replace", action="store_true", help="write over what is there")
