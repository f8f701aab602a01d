"""`python -m ablate.run SPEC`: the same as `ablate run SPEC`.

Importing this module would hide the function `ablate.run` behind a module of that name, so that
the module itself can be called as the function.
"""

import sys
from types import ModuleType
from typing import Any

from ablate.cli.main import main, prepare_process


class _CallableModule(ModuleType):
    def __call__(self, spec: Any, **options: Any) -> Any:
        from ablate import api

        return api.run(spec, **options)


sys.modules[__name__].__class__ = _CallableModule

if __name__ == "__main__":
    prepare_process()
    sys.exit(main(["run", *sys.argv[1:]]))
