"""Garbage collection waits while a pass runs: a program of 10,000 instructions is built, and none of it is garbage.

Floor: ground.  Standard library only.  Without it the collector walks the growing graph again and again, which doubles
the time of the passes.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def collector_waits(function: Callable[P, R]) -> Callable[P, R]:
    """The function, during whose calls nothing is collected; nested calls leave the switch to the outermost.

    >>> collector_waits(gc.isenabled)(), gc.isenabled()
    (False, True)
    """

    @wraps(function)
    def call(*arguments: P.args, **keywords: P.kwargs) -> R:
        if not gc.isenabled():
            return function(*arguments, **keywords)
        gc.disable()
        try:
            return function(*arguments, **keywords)
        finally:
            gc.enable()

    return call
