"""Checks of the machine that take milliseconds, made before torch is imported."""

from __future__ import annotations

import os
import resource

from trainables.errors import ConfigError
from trainables.machine.cache_folder import locate_default_cache

GIB = 2**30
# Measured with torch 2.x built for CUDA and two workers: 3 GB fails while libraries are loaded; at
# 4 GB plans work and Ray's workers are killed; at 8 GB a sweep runs.
PLAN_GIB, RUN_GIB = 3.5, 7.0


def check_machine(*, runs_ray: bool) -> None:
    """Raise if torch or Ray could not start here, or if the cache folder is unusable.

    Args:
        runs_ray: Ray will be started, which maps more memory than torch alone.

    Raises:
        ConfigError: the limit of `ulimit -v` is too low, or `ABLATE_CACHE` names no usable folder.
    """
    needed = RUN_GIB if runs_ray else PLAN_GIB
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < needed * GIB:
        raise ConfigError(
            "ulimit -v",
            f"the address space is limited to {limit / GIB:.1f} GiB, and the libraries map at "
            f"least {needed:g} GiB: run `ulimit -v unlimited` first, or ask for more memory in the "
            "job's script",
        )
    # The default cache below the home folder is not checked: plans of embedded data sets need none.
    if not os.environ.get("ABLATE_CACHE"):
        return
    cache = locate_default_cache()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        # one that can only be read may be shared by others, with data in it
        if not os.access(cache, os.W_OK | os.X_OK) and not any(cache.iterdir()):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        fault = f"the cache {str(cache)[:200]} cannot be written ({error.strerror})"
        raise ConfigError("ABLATE_CACHE", f"{fault}. Set it to another folder.") from None
