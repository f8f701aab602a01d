"""What changes the hash of a component's source, and what does not."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainables.core.source.components import (
    APART,
    HERE,
    ROOTS,
    class_hash,
    component_hash,
    definition,
    hashes_of,
    located,
)
from trainables.core.source.hashes import Hashes
from trainables.core.source.modules import Definition, NoSource
from trainables.core.source.reach import Reach
from trainables.data.dataset import DATASETS
from trainables.losses.base import LOSSES
from trainables.methods.base import METHODS

ROOT = Path(__file__).parents[3]
NUMBER = itertools.count()
Files = dict[str, str]
Hash = Callable[..., str]

METHOD = '''
"""A method."""

import math
import torch.nn.functional as F
from torch import nn
from PKG import shapes
from PKG.helper import SCALE, softened
from PKG.base import Base, register

@register("thing")
class Thing(Base):
    """Its formula."""

    REVISION = 1
    width = 3

    class Config(Base):
        weight: float = 1.0

    @classmethod
    def check(cls, trial):
        raise ValueError("no")

    def terms(self, x: float, *, factor: float = 2.0) -> float:
        # doubled
        total = sum(value * factor for value in shapes.both(x, second=1))
        named = [each for each in (total, math.pi)]
        return -SCALE * softened(total) + F.relu(x) + named[0]

    def embed(self, x):
        return x
'''
FILES: Files = {
    "__init__.py": "",
    "method.py": METHOD,
    "helper.py": '''
SCALE = 4.0
UNUSED = 1

def softened(value, slope=0.5):
    """Softened."""
    return slope * value if value > 0 else deeper(value)

def deeper(value):
    if value < -100:
        raise ValueError(f"much too small: {value}")
    return softened(value + 1)
''',
    "shapes.py": """
def both(first, second):
    return first, second
""",
    "base.py": """
class Base:
    offset = 0

    def lowest(self):
        return self.offset

def register(name):
    def add(cls):
        return cls
    return add
""",
}


@pytest.fixture
def hash_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hash]:
    """Writes a package under a name of its own, and gives the hash of a definition in it."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def of(files: Files, place: str = "method:Thing") -> str:
        package = f"outside_{next(NUMBER)}"
        for name, text in files.items():
            path = tmp_path / package / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("PKG", package), encoding="utf-8")
        module, _, name = place.partition(":")
        return Hashes(Reach(package), {}).of(Definition(f"{package}.{module}", name))

    yield of


def edited(name: str, before: str, after: str) -> Files:
    assert before in FILES[name], before
    return FILES | {name: FILES[name].replace(before, after)}


SAME: dict[str, Files] = {
    "another package name": FILES,
    "docstring": edited("method.py", '"""Its formula."""', '"""Its formula, in words."""'),
    "no docstring": edited("helper.py", '    """Softened."""\n', ""),
    "comment": edited("method.py", "# doubled", "# twice"),
    "annotations": edited(
        "method.py", "x: float, *, factor: float = 2.0) -> float:", "x, *, factor=2.0):"
    ),
    "order of imports": edited(
        "method.py",
        "import math\nimport torch.nn.functional as F\n",
        "from torch.nn import functional as G\nimport sys, math\n",
    )
    | {
        "method.py": METHOD.replace(
            "import math\nimport torch.nn.functional as F\n",
            "from torch.nn import functional as G\nimport sys, math\n",
        ).replace("F.relu", "G.relu")
    },
    "a name imported otherwise": edited(
        "method.py", "import torch.nn.functional as F", "from torch.nn.functional import relu"
    )
    | {
        "method.py": METHOD.replace(
            "import torch.nn.functional as F", "from torch.nn.functional import relu"
        ).replace("F.relu", "relu")
    },
    "a module's own name for a function": FILES
    | {
        "method.py": METHOD.replace("from PKG.helper import SCALE, softened", "import PKG.helper")
        .replace("SCALE *", "PKG.helper.SCALE *")
        .replace("softened(", "PKG.helper.softened(")
    },
    "late import": FILES
    | {
        "method.py": METHOD.replace("from PKG import shapes\n", "").replace(
            "        # doubled\n", "        from . import shapes\n"
        )
    },
    "local names": edited("method.py", "total", "sum_of_all"),
    "names in a comprehension": edited(
        "method.py", "value * factor for value", "each * factor for each"
    ),
    "a function's parameter": edited("helper.py", "value", "x"),
    "a parameter given by name": FILES
    | {
        "method.py": METHOD.replace("second=1", "other=1"),
        "shapes.py": FILES["shapes.py"].replace("second", "other"),
    },
    "a helper's name": FILES
    | {
        name: FILES[name].replace("softened", "smoothed").replace("deeper", "below")
        for name in ("method.py", "helper.py")
    },
    "a class's name": edited("base.py", "class Base", "class Root")
    | {"method.py": METHOD.replace("import Base, register", "import Root as Base, register")},
    "a constant's name": FILES
    | {name: FILES[name].replace("SCALE", "FACTOR") for name in ("method.py", "helper.py")},
    "a helper in another file": FILES
    | {
        "method.py": METHOD.replace("PKG.helper", "PKG.deep.er.soft"),
        "deep/__init__.py": "",
        "deep/er/__init__.py": "",
        "deep/er/soft.py": FILES["helper.py"],
    },
    "parts of a file in another": FILES
    | {
        "method.py": METHOD.replace(
            "import SCALE, softened", "import softened\nfrom PKG.constants import SCALE"
        ),
        "constants.py": "SCALE = 4.0\n",
        "helper.py": FILES["helper.py"].replace("SCALE = 4.0\n", ""),
    },
    "a name exported again": FILES
    | {
        "__init__.py": "from PKG.helper import softened as soft",
        "method.py": METHOD.replace(
            "import SCALE, softened", "import SCALE\nfrom PKG import soft as softened"
        ),
    },
    "all of a module imported": FILES
    | {"method.py": METHOD.replace("import SCALE, softened", "import *")},
    "order of definitions": FILES
    | {"helper.py": "\n".join(reversed(FILES["helper.py"].split("\n\n")))},
    "order of methods": FILES
    | {
        "method.py": METHOD.replace("    def embed(self, x):\n        return x\n", "").replace(
            "    def terms", "    def embed(self, x):\n        return x\n\n    def terms"
        )
    },
    "what is not reached": edited("helper.py", "UNUSED = 1", "UNUSED = 2"),
    "its configuration": edited("method.py", "weight: float = 1.0", "weight: float = 2.0"),
    "its check": edited("method.py", '"no"', '"never"'),
    "its REVISION": edited("method.py", "REVISION = 1", "REVISION = 2"),
    "an error's words": edited("helper.py", "much too small", "far too small"),
    "a log line": FILES
    | {
        "helper.py": "import logging\nLOG = logging.getLogger(__name__)\n"
        + FILES["helper.py"].replace("    return slope", "    LOG.info('x')\n    return slope")
    },
    "type checking": FILES
    | {
        "helper.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
        "    from PKG.method import Thing\n" + FILES["helper.py"]
    },
}

OTHER: dict[str, Files] = {
    "a term": edited("method.py", "-SCALE * softened", "100 * SCALE * softened"),
    "an operator": edited("method.py", "softened(total) + F", "softened(total) - F"),
    "a call": edited("method.py", "F.relu", "F.elu"),
    "an attribute": edited("base.py", "self.offset", "self.width"),
    "a helper": edited("helper.py", "value + 1", "value + 2"),
    "a float for an int": edited("helper.py", "value + 1", "value + 1.0"),
    "a helper's helper in a circle": edited("helper.py", "< -100", "< -10"),
    "a helper of a module": edited("shapes.py", "first, second\n", "second, first\n"),
    "a parameter's place": edited("shapes.py", "first, second)", "second, first)"),
    "a base class": edited("base.py", "offset = 0", "offset = 1"),
    "a constant": edited("helper.py", "SCALE = 4.0", "SCALE = 4.5"),
    "a default": edited("helper.py", "slope=0.5", "slope=0.25"),
    "a default by name": edited("method.py", "factor: float = 2.0", "factor: float = 3.0"),
    "an attribute of the class": edited("method.py", "width = 3", "width = 4"),
    "a decorator": FILES
    | {
        "helper.py": "import functools\n"
        + FILES["helper.py"].replace("def deeper", "@functools.cache\ndef deeper")
    },
    "two locals exchanged": edited("method.py", "named[0]", "total"),
    "a constant set twice": edited("helper.py", "UNUSED = 1", "SCALE += 1"),
    "what importing does": edited("helper.py", "UNUSED = 1", "print('here')"),
    "what importing the package does": FILES | {"__init__.py": "import sys\nsys.flags = 1\n"},
    "no exception": edited("helper.py", 'raise ValueError(f"much too small: {value}")', "return 0"),
    "another exception": edited("helper.py", "raise ValueError", "raise KeyError"),
    "a key": FILES | {"shapes.py": "def both(first, second):\n    return {'a': first}, second\n"},
}


@pytest.mark.parametrize("change", SAME)
def test_what_moves_and_words_do(hash_of: Hash, change: str) -> None:
    assert hash_of(SAME[change]) == hash_of(FILES)


def test_an_entry_in_a_registry_is_no_code(hash_of: Hash) -> None:
    table = "class Table:\n    def register(self, name):\n        return print\nTHINGS = Table()\n"
    text = "from PKG.table import THINGS\n@THINGS.register('a')\nclass a:\n    x = len(THINGS)\n"
    files = {"__init__.py": "", "table.py": table, "m.py": text}
    before = hash_of(files, "m:a")
    assert hash_of(files | {"m.py": text.replace("'a'", "'b'")}, "m:a") == before
    assert hash_of(files | {"table.py": table.replace("print", "len")}, "m:a") == before
    assert hash_of(files | {"m.py": text.replace(".register('a')", ".add('a')")}, "m:a") != before


def test_each_change_of_code_has_a_hash_of_its_own(hash_of: Hash) -> None:
    found = {name: hash_of(files) for name, files in OTHER.items()} | {"none": hash_of(FILES)}
    assert len(set(found.values())) == len(found), found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a, b = 1, 2", "b, a = 1, 2"),
        ("a = 1\nif a:\n    a = 2", "a = 1\nif not a:\n    a = 2"),
        (
            "try:\n    from json import dumps as a\nexcept ImportError:\n    a = 1",
            "try:\n    from json import loads as a\nexcept ImportError:\n    a = 1",
        ),
        (
            "def a(x):\n    def inner(y, z):\n        return y - z\n    return inner(y=x, z=1)",
            "def a(x):\n    def inner(z, y):\n        return z - y\n    return inner(y=x, z=1)",
        ),
        (
            "def b(y, z):\n    return y - z\na = {'f': b}",
            "def b(z, y):\n    return z - y\na = {'f': b}",
        ),
        ("import PKG.other\na = getattr(PKG.other, 'x')", "import PKG.other\na = PKG.other"),
        (
            "def a(v):\n    match v:\n        case [x, *y]:\n            return x",
            "def a(v):\n    match v:\n        case [x, *y]:\n            return y",
        ),
        ("a = lambda x, y: (x, y)", "a = lambda x, y: (y, x)"),
        ("a = [x for x in y for y in z]", "a = [x for y in z for x in y]"),
        ("a = f'{x!r:>3}'", "a = f'{x!s:>3}'"),
        (
            "from dataclasses import dataclass\n@dataclass\nclass a:\n    x: int\n    y: int",
            "from dataclasses import dataclass\n@dataclass\nclass a:\n    y: int\n    x: int",
        ),
    ],
)
def test_small_differences(hash_of: Hash, one: str, other: str) -> None:
    more = {"__init__.py": "", "other.py": "x = 1\n"}
    found = [hash_of(more | {"m.py": text}, "m:a") for text in (one, other)]
    assert found[0] != found[1]


@pytest.mark.parametrize(
    "use",
    [
        "import PKG.other as o\na = vars(o)",
        "from PKG import other\na = getattr(other, 'x')",
        "import importlib\na = importlib.import_module('PKG.other')",
        "import importlib\nP = 'PKG'\na = importlib.import_module(f'{P}.other')",
    ],
)
def test_a_module_that_is_handed_on_counts_whole(hash_of: Hash, use: str) -> None:
    files = {"__init__.py": "", "m.py": use}
    if "f'" in use:  # how the name goes on cannot be told: the package itself
        one, two = {"__init__.py": "y = 1\n"}, {"__init__.py": "y = 2\n"}
    else:
        one, two = {"other.py": "x = 1\ny = 1\n"}, {"other.py": "x = 1\ny = 2\n"}
    assert hash_of(files | one, "m:a") != hash_of(files | {"other.py": ""} | two, "m:a")


def test_a_configuration_s_own_arithmetic_counts(hash_of: Hash) -> None:
    """No name leads to it: a component is handed its configuration."""
    config = """
from pydantic import BaseModel, field_validator

class Options(BaseModel):
    depth: int = 3

    @field_validator("depth")
    def low(cls, value):
        return min(value, 9)

    def halves(self):
        return self.depth / 2
"""
    use = "import PKG.config\ndef build(options):\n    return options.halves()\n"
    files = {"__init__.py": "", "config.py": config, "m.py": use}
    before = hash_of(files, "m:build")
    assert (
        hash_of(files | {"config.py": config.replace("min(value, 9)", "value")}, "m:build")
        == before
    )
    assert hash_of(files | {"config.py": config.replace("= 3", "= 4")}, "m:build") == before
    assert hash_of(files | {"config.py": config.replace("/ 2", "/ 3")}, "m:build") != before
    made = use.replace("options.halves()", "PKG.config.Options()")
    assert hash_of(files | {"m.py": made}, "m:build") != hash_of(
        files | {"m.py": made, "config.py": config.replace("= 3", "= 4")}, "m:build"
    )


def test_a_file_beside_a_file_counts_and_another_package_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(number: int, folder: Path) -> str:
        (folder / f"loose_{number}.py").write_text(
            f"from beside_{number} import scale\ndef a(x):\n    return scale(x)\n"
        )
        (folder / f"beside_{number}.py").write_text(f"def scale(x):\n    return {number} * x\n")
        monkeypatch.syspath_prepend(str(folder))
        return Hashes(Reach(f"loose_{number}"), {}).of(Definition(f"loose_{number}", "a"))

    assert found(1, tmp_path) != found(2, tmp_path)
    installed = tmp_path / "site-packages"
    installed.mkdir()
    names = [Hashes(Reach("loose_3"), {}) for _ in (found(3, installed),)]
    reached = names[0].reached(Definition("loose_3", "a"))
    assert {each.module for each in reached} == {"loose_3"}


def test_a_class_without_source_is_said_to_have_none() -> None:
    space = {"__name__": "a_notebook"}
    exec("class Made:\n    def f(self):\n        return 1\n", space)
    with pytest.raises(NoSource, match=r"a_notebook\.Made"):
        located(space["Made"])  # type: ignore[arg-type]
    space = {"__name__": __name__}
    exec("class Path:\n    def f(self):\n        return 1\n", space)  # a name that this file has
    with pytest.raises(NoSource, match="<string>"):
        class_hash(space["Path"])  # type: ignore[arg-type]


def classes() -> list[type]:
    return [registry[name] for registry in (LOSSES, METHODS, DATASETS) for name in registry]


def test_every_component_has_a_hash_of_its_own() -> None:
    """So that no root has been lost, and no class is passed over."""
    names = [*ROOTS]
    for kind, registry in (("loss", LOSSES), ("method", METHODS), ("data", DATASETS)):
        names += [f"{kind}.{name}" for name in registry if name != "sphvit"]
    found = {name: component_hash(name) for name in names}
    assert all(value is not None for value, _ in found.values()), found
    assert len({value for value, _ in found.values()}) == len(found)
    assert all(hashes_of(HERE).reach.statement(definition(place)) for place in APART)
    reached = hashes_of(HERE).reached(Definition(LOSSES["proxy_anchor"].__module__, "ProxyAnchor"))
    assert {"gathered", "log_sum", "NOTHING", "Loss", "start"} <= {each.name for each in reached}


def test_hashes_take_little_time_and_no_torch() -> None:
    code = (
        "import sys, time; from trainables.core.source import components as c; "
        "t = time.process_time(); [c.part_hash(name) for name in c.ROOTS]; "
        "print(time.process_time() - t, 'torch' in sys.modules)"
    )
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, check=True
    )
    seconds, torch = done.stdout.split()
    assert torch == "False"
    assert float(seconds) < 2.0, f"{seconds} s of CPU, {time.monotonic() - begun:.1f} s in all"


def interpreters() -> list[str]:
    """Other versions of Python on this machine that a user may have."""
    versions = [f"3.{minor}" for minor in range(11, 15)]
    known = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = {v: shutil.which(f"python{v}") for v in versions}
    for version in versions:
        places = sorted(known.glob(f"{version}.*/bin/python"))
        found[version] = str(places[-1]) if places else found[version]
    here = f"3.{sys.version_info.minor}"
    return [path for version, path in found.items() if path is not None and version != here]


@pytest.mark.parametrize("python", interpreters())
def test_other_versions_of_python_give_the_same(python: str) -> None:
    found = {f"{each.__module__}:{each.__qualname__}": class_hash(each) for each in classes()}
    found |= {name: component_hash(name)[0] or "" for name in ROOTS}
    code = (
        "import json, sys\n"
        "from trainables.core.source.components import *\n"
        "of = hashes_of(HERE).of\n"
        "print(json.dumps({n: of(definition(n))[:16] if ':' in n else part_hash(n)"
        " for n in json.loads(sys.argv[1])}))"
    )
    done = subprocess.run(
        [python, "-c", code, json.dumps(list(found))],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )
    if "cannot execute" in done.stderr or done.returncode == 127:
        pytest.skip(f"{python} does not run")
    assert json.loads(done.stdout) == found
