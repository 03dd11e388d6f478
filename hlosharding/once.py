"""`@once`: what is made at first use is made by one thread, however many ask at once.

Floor: ground.  Standard library only.  `functools.cache` lets two threads make two, and each keep its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import TypeVar

T = TypeVar("T")


def once(make: Callable[[], T]) -> Callable[[], T]:
    """The function, which runs at its first call; every call gives what that one gave.

    >>> table = once(lambda: print("made") or [])
    >>> table() is table()
    made
    True
    """
    lock, made = RLock(), list[T]()

    @wraps(make)
    def ask() -> T:
        if not made:
            with lock:
                if not made:
                    made.append(make())
        return made[0]

    return ask
