"""Garbage collection waits while a pass runs: a program of 10,000 instructions is built, and none of it is garbage.

Floor: ground.  Standard library only.  Without it the collector walks the growing graph again and again, which doubles
the time of the passes; and walking it once when a pass ends costs a sixth of the pass.  So what a pass made joins the
oldest generation unseen, and a full collection comes when Python holds so much more than behind the last one.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_FEW = 50_000
_MANY = 4_000_000
"""Blocks, some 400 MB.  Of what passes make two thirds to three quarters go by themselves: when all of it was counted,
an eighth of the time of a search was full collections, most of what they walked being in use."""


class _OldGeneration:
    """Where young objects go when a pass ends; where the user froze some, the collector sees to them."""

    def __init__(self) -> None:
        self.seen = sys.getallocatedblocks()
        """Blocks that were held behind the last full collection."""
        gc.callbacks.append(self._collected)

    def join(self) -> None:
        if gc.get_count()[0] < _FEW or gc.get_freeze_count():
            return
        # All there is is set aside, and comes back as the oldest generation, without being walked: `gc` has no call for
        # the young alone.
        gc.freeze()
        gc.unfreeze()
        if sys.getallocatedblocks() - self.seen > _MANY:
            gc.collect()

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "stop" and info["generation"] == 2:
            self.seen = sys.getallocatedblocks()


_old = _OldGeneration()


def collector_waits(function: Callable[P, R]) -> Callable[P, R]:
    """The function, during whose calls nothing is collected; nested calls leave the switch to the outermost.

    >>> collector_waits(gc.isenabled)(), gc.isenabled()
    (False, True)
    """
    return _waiting(function, _old.join)


def collector_comes_after(function: Callable[P, R]) -> Callable[P, R]:
    """The same of work that leaves much garbage, as one does that makes several programs for the sake of one: when it
    ends, what it made is looked through, and nothing else.

    >>> collector_comes_after(gc.isenabled)(), gc.isenabled()
    (False, True)
    """
    return _waiting(function, partial(gc.collect, 1))


def _waiting(function: Callable[P, R], at_end: Callable[[], Any]) -> Callable[P, R]:
    @wraps(function)
    def call(*arguments: P.args, **keywords: P.kwargs) -> R:
        if not gc.isenabled():
            return function(*arguments, **keywords)
        gc.disable()
        try:
            return function(*arguments, **keywords)
        finally:
            at_end()
            gc.enable()

    return call
