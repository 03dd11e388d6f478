"""Garbage collection waits while a pass runs: a program of 10,000 instructions is built, and none of it is garbage.

Floor: ground.  Standard library only.  Without it the collector walks the growing graph again and again, which doubles
the time of the passes; and walking it once when a pass ends costs a sixth of the pass.  So what a pass made joins the
oldest generation unseen, and a full collection comes when that has happened to many objects.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_FEW, _MANY = 50_000, 4_000_000


class _OldGeneration:
    """Where young objects go when a pass ends; where the user froze some, the collector sees to them."""

    def __init__(self) -> None:
        self.unseen = 0
        """Objects that joined since the last full collection."""
        gc.callbacks.append(self._collected)

    def join(self) -> None:
        young = gc.get_count()[0]
        if young < _FEW or gc.get_freeze_count():
            return
        gc.freeze()
        gc.unfreeze()
        self.unseen += young
        if self.unseen > _MANY:
            gc.collect()

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "stop" and info["generation"] == 2:
            self.unseen = 0


_old = _OldGeneration()


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
            _old.join()
            gc.enable()

    return call
