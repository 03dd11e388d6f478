"""Programs nested a thousand loops deep: what runs out of Python's stack runs again in a thread that has more of it.

Floor: ground.  Walks that follow a program's calls recurse with them; nearly no program is
nested as deep as the stack, so that nothing is asked before: a call that fails has changed nothing, and is made anew.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import wraps
from typing import ParamSpec, TypeVar

from hlosharding.errors import ModuleError

P = ParamSpec("P")
R = TypeVar("R")

_FRAMES = 400_000
_BYTES = 1 << 30
"""Of address space: what is not reached takes no memory."""
# Both limits that it raises are those of the whole process.
_one_at_a_time = threading.Lock()
_here = threading.local()


def deep_stack(function: Callable[P, R]) -> Callable[P, R]:
    """The function, called again with a deep stack where the first call ends in RecursionError.

    >>> @deep_stack
    ... def depth(number: int) -> int:
    ...     return 1 + depth(number - 1) if number else 0
    >>> depth(5000)
    5000
    """

    @wraps(function)
    def call(*arguments: P.args, **keywords: P.kwargs) -> R:
        if getattr(_here, "is_deep", False):
            return function(*arguments, **keywords)
        _here.is_nested, is_outer = True, not getattr(_here, "is_nested", False)
        try:
            return function(*arguments, **keywords)
        except RecursionError:
            if not is_outer:
                raise
        finally:
            _here.is_nested = not is_outer
        return _in_deep_thread(lambda: function(*arguments, **keywords))

    return call


def _in_deep_thread(work: Callable[[], R]) -> R:
    made: list[R] = []
    failed: list[BaseException] = []

    def run() -> None:
        _here.is_deep = True
        try:
            made.append(work())
        except BaseException as error:  # noqa: BLE001  (told to whoever waits)
            failed.append(error)

    context = copy_context()
    with _one_at_a_time:
        frames, size = sys.getrecursionlimit(), threading.stack_size(_BYTES)
        thread = threading.Thread(target=lambda: context.run(run), name="hlosharding deep stack", daemon=True)
        try:
            sys.setrecursionlimit(_FRAMES)
            thread.start()
            threading.stack_size(size)  # at once: threads that others start meanwhile need no such stack
            thread.join()
        finally:
            threading.stack_size(size)
            sys.setrecursionlimit(frames)
    if failed and isinstance(failed[0], RecursionError):
        raise ModuleError("it is nested too deep to be followed") from failed[0]
    if failed:
        raise failed[0]
    return made[0]
