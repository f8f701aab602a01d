"""How fast a sweep that runs goes on."""

from __future__ import annotations


def pace(elapsed: float, ended: int, working: int, warm: tuple[float, int] | None) -> float | None:
    """Seconds a trial, of all slots together; None before one has ended.

    Once as many trials more have ended as are at work: (elapsed − that time) / trials since, which
    knows all that a slot waits for between two trials, and no more of what was paid once, the start
    of workers. Until then elapsed / (ended + ½ working), which has that in it too.

    Args:
        elapsed: seconds since trials could run.
        warm: (elapsed, ended) when as many had ended as run at once; None: not so far.
    """
    if not ended:
        return None
    if warm is not None and ended - warm[1] >= max(1, working):
        return (elapsed - warm[0]) / (ended - warm[1])
    return elapsed / (ended + working / 2)
