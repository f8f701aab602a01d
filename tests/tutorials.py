"""Run the tutorials, as a reader of a page would, each in a folder of its own.

    python -m tests.tutorials [PAGE …]

(`make docs`) runs them at full size, and writes their output into the pages.

A page is a tutorial if it has the comment `<!-- ran -->`. A block that begins with a comment with a
file's name is that file. Other blocks of `bash` and `python` run, one after the other. These
comments direct the runner:

    <!-- needs X -->               before a block: it runs only where X has a stand-in (`STAND_INS`)
    <!-- output -->                after a block: what it printed, up to `<!-- end output -->`
    <!-- output from "A" to "B" --> the lines from the first one with A up to the next one with B
    <!-- output of PATTERN -->     a file that the block made; a picture is copied to docs/pictures
    <!-- ran -->                   what `STAMP` says of the last run, up to `<!-- end ran -->`
    <!-- in miniature: "A" is "B"; … -->  A is replaced in the blocks that follow, in tests alone

`tutorial.ipynb` is run by nbclient; comments stand in its cells of text.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import nbformat
from nbclient import NotebookClient

from tests.ablate.backends.slurm import Cluster
from tests.documented import GUIDES, PICTURES, ROOT
from tests.trainables.data import trees

BLOCK = re.compile(
    r"(?:^<!-- needs (?P<need>[^>]+?) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```\n"
    r"(?:\n<!-- output(?P<part>[^>]*) -->\n(?P<output>.*?)<!-- end output -->\n)?",
    re.MULTILINE | re.DOTALL,
)
FILE = re.compile(r"(?:# |<!-- )([\w.]+\.\w+)(?: -->)?\n")
RAN = re.compile(r"<!-- ran -->.*?<!-- end ran -->", re.DOTALL)
MINIATURE = re.compile(r"<!-- in miniature: (.*?) -->", re.DOTALL)
STAMP = (
    "Run at commit {commit} on {date}: {cpu:.0f} s of CPU time, {wall:.0f} s in all, "
    "on {cores} cores with a load of {load:.0f}."
)
# pages that test_tutorials_components.py runs, and not test_tutorials.py
COMPONENT_PAGES = ("machines", "design", "loss", "method")
SUBREAPER = 36  # of prctl(2): the runner inherits, and counts, what Ray leaves


class Block(NamedTuple):
    """need: None if it runs everywhere. part: which part of its output the page shows."""

    language: str
    code: str
    need: str | None = None
    part: str | None = None

    @property
    def file(self) -> str | None:
        named = FILE.match(self.code)
        return named[1] if named else None

    @property
    def runs(self) -> bool:
        return self.file is None and self.language in ("bash", "python")


def list_tutorials() -> list[Path]:
    pages = [*sorted(GUIDES.glob("*.md")), GUIDES / "tutorial.ipynb"]
    return [page for page in pages if "<!-- ran -->" in page.read_text(encoding="utf-8")]


def list_blocks(page: Path) -> list[Block]:
    """Return a page's blocks; of a notebook, the cells of code, where `%%bash` is one of bash."""
    if page.suffix == ".ipynb":
        cells = nbformat.read(page, 4).cells
        codes = (cell.source for cell in cells if cell.cell_type == "code")
        return [
            Block("bash", code.removeprefix("%%bash\n"))
            if "%%bash" in code
            else Block("python", code)
            for code in codes
        ]
    return [build_block(match) for match in BLOCK.finditer(page.read_text(encoding="utf-8"))]


def build_block(match: re.Match[str]) -> Block:
    return Block(match["language"], match["code"], match["need"], match["part"])


def shrink(text: str) -> str:
    """Make a page's replacements in what follows them; each must be of use."""
    before, *parts = MINIATURE.split(text, maxsplit=1)
    if not parts:
        return text
    rules, rest = parts
    for shown, small in re.findall(r'"(.*?)" is "(.*?)"', rules, re.DOTALL):
        assert shown in rest, f"nothing to replace in miniature: {shown}"
        rest = rest.replace(shown, small)
    return before + rest


# ------------------------------------------------------------------------------- where blocks run


def build_environment(folder: Path) -> dict[str, str]:
    """As after `pip install`, which installs into the folder and fetches nothing."""
    return {
        **os.environ,
        "PATH": f"{folder}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{folder}:{folder}/site:{ROOT}:{os.environ.get('PYTHONPATH', ROOT)}",
        "ABLATE_CACHE": str(folder / "cache"),
        "PIP_TARGET": str(folder / "site"),
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads the variable so: no isolation
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "COLUMNS": "100",
    }


def run_block(block: Block, folder: Path, environment: dict[str, str]) -> str:
    """Run a block, and return what it printed, without the folder's name."""
    bash, python = ["bash", "-euo", "pipefail", "-c"], ["/usr/bin/env", "python", "-c"]
    done = subprocess.run(
        [*(bash if block.language == "bash" else python), block.code],
        cwd=folder,
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert done.returncode == 0, f"{block.code}\n{done.stdout}"
    return done.stdout.replace(str(folder), "…")


@contextmanager
def stand_in_for_slurm(folder: Path, environment: dict[str, str]) -> Iterator[None]:
    cluster = Cluster(folder / "slurm", folder)
    (cluster.folder / "run").touch()
    environment.update(
        cluster.environment | {"PATH": f"{cluster.folder}/bin:{environment['PATH']}"}
    )
    yield


@contextmanager
def stand_in_for_a_ray_cluster(folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """Two nodes on this machine; the command `ray`, which starts and stops nodes, does nothing."""
    from ray.cluster_utils import Cluster as RayCluster

    node = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80_000_000}
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / "ray").write_text("#!/bin/sh\n")
    (folder / "bin" / "ray").chmod(0o755)
    with patch.dict(os.environ, environment):  # which the nodes' processes have
        cluster = RayCluster(initialize_head=True, head_node_args=node)
        try:
            cluster.add_node(**node)
            environment["RAY_ADDRESS"] = cluster.address
            yield
        finally:
            environment.pop("RAY_ADDRESS", None)
            cluster.shutdown()


@contextmanager
def stand_in_for_cub200(folder: Path, environment: dict[str, str]) -> Iterator[None]:
    trees.cub200(folder / "datasets" / "CUB_200_2011")
    yield


StandIn = Callable[[Path, dict[str, str]], AbstractContextManager[None]]
STAND_INS: dict[str, StandIn] = {
    "Slurm": stand_in_for_slurm,
    "a Ray cluster": stand_in_for_a_ray_cluster,
    "CUB-200-2011": stand_in_for_cub200,
}
LISTED = {"a GPU", "a cluster", "the internet"}  # blocks that need these are parsed, not run


class Run:
    """A run of a page in a folder. small: with the page's replacements and the stand-ins.

    programs: a folder that stands first in PATH and PYTHONPATH.
    """

    def __init__(
        self, page: Path, folder: Path, programs: Path | None = None, *, small: bool
    ) -> None:
        self.page, self.folder, self.small = page, folder, small
        self.environment = build_environment(folder)
        if programs is not None:
            for name in ("PATH", "PYTHONPATH"):
                self.environment[name] = f"{programs}:{self.environment[name]}"
        (folder / "search_spaces").symlink_to(ROOT / "search_spaces")

    def run(self) -> str:
        """Run the page, and return its text with the new output."""
        text = self.page.read_text(encoding="utf-8")
        if self.page.suffix == ".ipynb":
            return self._run_notebook(text)
        return BLOCK.sub(self._run_match, shrink(text) if self.small else text)

    def _run_match(self, match: re.Match[str]) -> str:
        block = build_block(match)
        if block.file:
            (self.folder / block.file).write_text(block.code, encoding="utf-8")
        with ExitStack() as stack:
            if block.need and self.small and block.need in STAND_INS:
                stand_in = STAND_INS[block.need](self.folder, self.environment)
                stack.enter_context(stand_in)
            elif block.need or not block.runs:
                return match[0]
            printed = run_block(block, self.folder, self.environment)
        if block.part is None:
            return match[0]
        shown = self._show(block.part.strip(), printed)
        start, end = (match.start(0), match.start("output"))
        return f"{match.string[start:end]}{shown}<!-- end output -->\n"

    def _show(self, part: str, printed: str) -> str:
        """Return the part of a block's output that a page shows."""
        if part.startswith("of "):
            (made,) = self.folder.glob(part.removeprefix("of "))
            if made.suffix in (".png", ".svg"):
                picture = PICTURES / f"{self.page.stem}_{made.name}"
                if not self.small:
                    shutil.copyfile(made, picture)
                return f"![{made.stem}](../pictures/{picture.name})\n"
            printed = made.read_text(encoding="utf-8")
        lines = [line.rstrip() for line in printed.splitlines()]
        while lines and not lines[-1]:
            lines.pop()
        assert lines, f"{self.page.name}: no output"
        limits = re.findall(r'"(.*?)"', part)
        if limits:
            starts = [i for i, line in enumerate(lines) if limits[0] in line]
            assert starts, f"{self.page.name}: no {limits[0]!r} in {printed}"
            ends = [i for i, line in enumerate(lines) if limits[-1] in line and i > starts[0]]
            assert ends or len(limits) == 1, f"{self.page.name}: no {limits[-1]!r} in {printed}"
            start, stop = starts[0], ends[0] + 1 if len(limits) > 1 else len(lines)
            lines = [*["…"][: start > 0], *lines[start:stop], *["…"][: stop < len(lines)]]
        return "```text\n" + "\n".join(lines) + "\n```\n"

    def _run_notebook(self, text: str) -> str:
        notebook = nbformat.reads(text, 4)
        if self.small:
            shrunk = shrink("\f".join(cell.source for cell in notebook.cells)).split("\f")
            for cell, source in zip(notebook.cells, shrunk, strict=True):
                cell.source = source
        client = NotebookClient(
            notebook, timeout=600, resources={"metadata": {"path": self.folder}}
        )
        client.execute(env=self.environment)
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)  # times, which differ in each run
            if "outputs" in cell:  # warnings name folders of this machine
                cell.outputs = [part for part in cell.outputs if part.get("name") != "stderr"]
        return nbformat.writes(notebook).replace(str(self.folder), "…") + "\n"


# --------------------------------------------------------------------------------------- make docs


def renew(page: Path) -> None:
    """Run a page at full size in a child, and write its output and the stamp into it.

    This process inherits and waits for the processes that Ray leaves, whose time counts, too.
    """
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    commit = subprocess.check_output(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, text=True
    )
    start, used = time.monotonic(), measure_cpu()
    child = os.fork()
    if child == 0:
        with tempfile.TemporaryDirectory() as folder:
            page.write_text(Run(page, Path(folder).resolve(), small=False).run(), encoding="utf-8")
        os._exit(0)
    while (ended := os.wait())[0] != child:
        pass
    if ended[1]:
        raise SystemExit(f"{page.name} is as it was")
    stamp = STAMP.format(
        commit=commit.strip(),
        date=datetime.now(UTC).date(),
        cpu=measure_cpu() - used,
        wall=time.monotonic() - start,
        cores=os.cpu_count(),
        load=os.getloadavg()[2],  # of the last 15 minutes
    )
    newline = "\\n" if page.suffix == ".ipynb" else "\n"
    text = page.read_text(encoding="utf-8")
    text = RAN.sub(lambda _: f"<!-- ran -->{newline}{stamp}{newline}<!-- end ran -->", text)
    page.write_text(text, encoding="utf-8")
    print(f"{page.name}: {stamp}")


def measure_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.tutorials")
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE")
    for path in parser.parse_args().pages or list_tutorials():
        renew(path.resolve())
