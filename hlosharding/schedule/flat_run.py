"""A run of a schedule as a flat list: calls are inlined, values are numbers.

Floor: schedule.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from hlosharding.schedule.interpreter import Names, Observer
from hlosharding.schedule.op import Value, type_of
from hlosharding.schedule.steps import Apply
from hlosharding.schedule.value_type import ValueType

V = TypeVar("V", bound=Hashable)


class RunEvent(NamedTuple):
    """An op that ran, or values that were freed."""

    step: Apply | None
    """None: the operands are freed."""
    function: str
    operands: Names
    results: Names


class FlatRun(Observer):
    """What an interpreter's run did."""

    def __init__(self) -> None:
        self.types: list[ValueType] = []
        """By the number of the value."""
        self.events: list[RunEvent] = []
        self.parameters: Names = ()
        self.results: Names = ()

    def on_enter(self, parameters: Names, values: Sequence[Value]) -> None:
        self.parameters = parameters
        self.types += map(type_of, values)

    def on_apply(self, step: Apply, function: str, operands: Names, results: Names, made: Sequence[Value]) -> None:
        self.types += map(type_of, made)
        self.events.append(RunEvent(step, function, operands, results))

    def on_free(self, values: Names) -> None:
        self.events.append(RunEvent(None, "", values, ()))

    def on_leave(self, results: Names) -> None:
        self.results = results


def find_dropped(steps: Sequence[tuple[Sequence[V], Sequence[V]]], kept: Iterable[V]) -> list[list[V]]:
    """For each step, as what it reads and what it makes, the values that nobody reads after it; `kept` stay.

    >>> find_dropped([(["x"], ["y", "unread"]), (["x", "y"], ["z"])], ["z"])
    [['unread'], ['x', 'y']]
    """
    seen = set(kept)
    dropped: list[list[V]] = []
    for reads, makes in reversed(steps):
        gone = [value for value in dict.fromkeys((*reads, *makes)) if value not in seen]
        seen.update(gone)
        dropped.append(gone)
    return dropped[::-1]
