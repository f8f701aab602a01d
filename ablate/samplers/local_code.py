"""Digest and import code in local files, such as a downloaded package of OptunaHub."""

import importlib.util
import sys
from hashlib import sha256
from pathlib import Path
from types import ModuleType


def compute_code_digest(path: Path) -> str:
    """Return a hash of a file, or of all files of a package except hidden and compiled ones."""
    digest, is_package = sha256(), (path / "__init__.py").is_file()
    for file in sorted(path.rglob("*")) if is_package else [path]:
        name = file.relative_to(path)
        is_skipped = any(part.startswith((".", "__pycache__")) for part in name.parts)
        if file.is_file() and not is_skipped:
            digest.update(f"{name}\0{sha256(file.read_bytes()).hexdigest()}\0".encode())
    return digest.hexdigest()[:16]


def load_code(path: Path, digest: str) -> ModuleType:
    """Import a Python file or package; its digest in the module's name separates versions."""
    file = path / "__init__.py" if path.is_dir() else path
    spec = importlib.util.spec_from_file_location(f"ablate_local_{digest}", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    # relative imports look the package up in `sys.modules`
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
