"""Attributes that are read from a proto at first use.

Floor: ir.  `functools.cached_property` does the same for twice the price: it makes the instance's dict, and takes a
lock (before Python 3.12).  A pass pays that for thousands of instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class decoded(Generic[T]):
    """A method's answer as an attribute, remembered on the instance under the method's name.

    >>> class Answer:
    ...     @decoded
    ...     def number(self) -> int:
    ...         print("asked")
    ...         return 42
    >>> one = Answer()
    >>> one.number, one.number
    asked
    (42, 42)
    """

    def __init__(self, method: Callable[[Any], T]) -> None:
        self.method, self.name = method, method.__name__
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> decoded[T]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> decoded[T] | T:
        if instance is None:
            return self
        answer = self.method(instance)
        setattr(instance, self.name, answer)
        return answer
