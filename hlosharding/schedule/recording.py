"""What a schedule does, as flat records: the interpreter's run on types, seen by the simulator.

Floor: schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hlosharding.cost import Machine
from hlosharding.schedule.interpreter import Names, Observer
from hlosharding.schedule.op import Op, Value, Work, type_of
from hlosharding.schedule.steps import Apply
from hlosharding.schedule.value_type import ValueType, devices_of_all

AT_START = -1
"""In place of the number of the application that made a value: the caller did."""


class Application(NamedTuple):
    """One run of an op."""

    step: Apply
    function: str
    operands: Names
    results: Names
    work: Work
    sources: tuple[int, ...]
    """Devices on which operands lie, and of results."""
    targets: tuple[int, ...]


@dataclass(slots=True)
class Recording(Observer):
    """Applications in order; of each value who made it, its type, and who read it last."""

    machine: Machine
    applications: list[Application] = field(default_factory=list[Application])
    types: list[ValueType] = field(default_factory=list[ValueType])
    """By the number of the value."""
    makers: list[int] = field(default_factory=list[int])
    readers: list[list[int]] = field(default_factory=list[list[int]])
    """Numbers of the applications that read it, in order."""
    freed_values: set[int] = field(default_factory=set[int])
    """Those that a step frees."""
    results: Names = ()
    _works: dict[tuple[Any, ...], tuple[Work, tuple[int, ...], tuple[int, ...]]] = field(
        default_factory=dict[tuple[Any, ...], tuple[Work, tuple[int, ...], tuple[int, ...]]]
    )

    @property
    def distinct_types(self) -> list[ValueType]:
        """Of values whose types are one object, one."""
        return list({id(kind): kind for kind in self.types}.values())

    def numbers_where(self, holds: Callable[[Op], bool]) -> list[int]:
        """Of the applications whose op is such a one."""
        steps = {id(done.step): done.step for done in self.applications}
        chosen = {key for key, step in steps.items() if holds(step.op)}
        return [number for number, done in enumerate(self.applications) if id(done.step) in chosen] if chosen else []

    def entered(self, parameters: Names, values: Sequence[Value]) -> None:
        for value in values:
            self._made(type_of(value), AT_START)

    def applied(self, step: Apply, function: str, operands: Names, results: Names, made: Sequence[Value]) -> None:
        number = len(self.applications)
        for value in made:
            self._made(type_of(value), number)
        for operand in operands:
            self.readers[operand].append(number)
        work, sources, targets = self._work(step.op, operands, results)
        self.applications.append(Application(step, function, operands, results, work, sources, targets))

    def freed(self, values: Names) -> None:
        self.freed_values.update(values)

    def left(self, results: Names) -> None:
        self.results = results

    def _made(self, kind: ValueType, maker: int) -> None:
        self.types.append(kind)
        self.makers.append(maker)
        self.readers.append([])

    def _work(self, op: Op, operands: Names, results: Names) -> tuple[Work, tuple[int, ...], tuple[int, ...]]:
        """Of equal ops on equal types once.  The types are kept, so that their identity is their own."""
        types = self.types
        key = (op, *[id(types[n]) for n in operands], *[id(types[n]) for n in results])
        found = self._works.get(key)
        if found is None:
            taken, made = [types[n] for n in operands], [types[n] for n in results]
            found = op.work(taken, made, self.machine), devices_of_all(taken), devices_of_all(made)
            self._works[key] = found
        return found
