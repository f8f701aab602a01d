"""Where modules lie: the file of one, the modules of a package, the folder of its author.

Nothing is imported: what a process has imported already says so itself, for the rest it is looked
up where an import would find it.
"""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from functools import cache
from pathlib import Path

INSTALLED = ("site-packages", "dist-packages")


def path_of(name: str) -> Path | None:
    """The file of a module, or the folder of a package that has none."""
    loaded = sys.modules.get(name)
    file = getattr(loaded, "__file__", None)
    if file is not None:
        return Path(file)
    first, *rest = name.split(".")
    folders: list[Path] = []
    for root in _roots(first):
        if not rest:
            inits = [root / "__init__.py", root] if root.is_dir() else [root]
            return next((path for path in inits if path.exists()), None)
        place = root.joinpath(*rest)
        compiled = sorted(place.parent.glob(f"{place.name}.*.so")) if root.is_dir() else []
        for path in (place / "__init__.py", place.with_suffix(".py"), *compiled):
            if path.is_file():
                return path
        folders += [place] if place.is_dir() else []
    return next(iter(folders), None)


@cache
def _roots(top: str) -> tuple[Path, ...]:
    """Folders of a top-level package, or the file of a top-level module."""
    loaded = sys.modules.get(top)
    if loaded is not None and getattr(loaded, "__file__", None) and not _packaged(loaded):
        return (Path(str(loaded.__file__)),)
    if loaded is not None and _packaged(loaded):
        return tuple(map(Path, loaded.__path__))
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return ()
    if spec is None:
        return ()
    if spec.submodule_search_locations is not None:
        return tuple(map(Path, spec.submodule_search_locations))
    return (Path(spec.origin),) if spec.origin and Path(spec.origin).exists() else ()


def _packaged(module: object) -> bool:
    return bool(getattr(module, "__path__", None))


def modules_of(top: str) -> list[str]:
    """All modules of a top-level package, by the files in its folders."""
    modules: set[str] = {top}
    for root in _roots(top):
        for path in root.rglob("*.py") if root.is_dir() else ():
            parts = path.relative_to(root).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            if all(part.isidentifier() for part in parts):
                modules.add(".".join([top, *parts]))
    return sorted(modules)


@cache
def local_folder(top: str) -> Path | None:
    """The folder in which a top-level package lies beside others of its author; None for what
    was installed, which lies beside everybody's."""
    roots = _roots(top)
    if not roots:
        return None
    folder = roots[0].resolve().parent
    library = Path(sysconfig.get_path("stdlib")).resolve()
    if library in (folder, *folder.parents) or any(part in INSTALLED for part in folder.parts):
        return None
    return folder
