"""`@once`: what is made at first use is made by one thread, however many ask at once; `@remembered`: once an instance.

Floor: ground.  Standard library only.  `functools.cache` lets two threads make two, and each keep its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from threading import RLock
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


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


class remembered(Generic[P, T]):
    """A method of a class without slots whose answers each instance remembers; its arguments must be hashable.

    >>> class Squares:
    ...     @remembered
    ...     def of(self, number: int) -> int:
    ...         print("asked")
    ...         return number * number
    >>> squares = Squares()
    >>> squares.of(3), squares.of(3)
    asked
    (9, 9)
    """

    def __init__(self, method: Callable[Concatenate[Any, P], T]) -> None:
        self.method = method
        self.__doc__ = method.__doc__

    def __get__(self, instance: Any, owner: type | None = None) -> Callable[P, T]:
        # Under its name in the instance, which from then on is asked without us.
        asked: Any = cache(MethodType(self.method, instance))
        instance.__dict__[self.method.__name__] = asked
        return asked
