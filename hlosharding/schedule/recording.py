"""What a schedule does, as flat records: the interpreter's run on types, seen by the simulator.

Floor: schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
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
    """Applications in order; of each value who made it, and its type."""

    machine: Machine
    applications: list[Application] = field(default_factory=list[Application])
    types: list[ValueType] = field(default_factory=list[ValueType])
    """By the number of the value, without shares: of which microbatch it is matters neither to time nor to memory.
    Equal ones are one object."""
    makers: list[int] = field(default_factory=list[int])
    freed_values: set[int] = field(default_factory=set[int])
    """Those that a step frees."""
    results: Names = ()
    _works: dict[tuple[Any, ...], tuple[Work, tuple[int, ...], tuple[int, ...]]] = field(
        default_factory=dict[tuple[Any, ...], tuple[Work, tuple[int, ...], tuple[int, ...]]]
    )
    _wholes: dict[tuple[int, ...], tuple[ValueType, ValueType]] = field(
        default_factory=dict[tuple[int, ...], tuple[ValueType, ValueType]]
    )
    """By identity of a type's parts: the first with these, which keeps them alive, and what stands for it."""
    _distinct: dict[ValueType, ValueType] = field(default_factory=dict[ValueType, ValueType])

    @property
    def distinct_types(self) -> list[ValueType]:
        """Of values whose types are one object, one."""
        return list({id(kind): kind for kind in self.types}.values())

    def numbers_where(self, holds: Callable[[Op], bool]) -> list[int]:
        """Of the applications whose op is such a one."""
        return [number for number, done in enumerate(self.applications) if holds(done.step.op)]

    def entered(self, parameters: Names, values: Sequence[Value]) -> None:
        for value in values:
            self._made(type_of(value), AT_START)

    def applied(self, step: Apply, function: str, operands: Names, results: Names, made: Sequence[Value]) -> None:
        number = len(self.applications)
        for value in made:
            self._made(type_of(value), number)
        work, sources, targets = self._work(step.op, operands, results)
        self.applications.append(Application(step, function, operands, results, work, sources, targets))

    def freed(self, values: Names) -> None:
        self.freed_values.update(values)

    def left(self, results: Names) -> None:
        self.results = results

    def _made(self, kind: ValueType, maker: int) -> None:
        self.types.append(self._whole(kind))
        self.makers.append(maker)

    def _whole(self, kind: ValueType) -> ValueType:
        key = id(kind.shape), id(kind.devices), id(kind.sharding)
        found = self._wholes.get(key)
        if found is None:
            whole = replace(kind, shares=())
            found = self._wholes[key] = kind, self._distinct.setdefault(whole, whole)
        return found[1]

    def _work(self, op: Op, operands: Names, results: Names) -> tuple[Work, tuple[int, ...], tuple[int, ...]]:
        """Of equal ops on equal types once."""
        types = self.types
        key = (op, *[id(types[n]) for n in operands], *[id(types[n]) for n in results])
        found = self._works.get(key)
        if found is None:
            taken, made = [types[n] for n in operands], [types[n] for n in results]
            found = op.work(taken, made, self.machine), devices_of_all(taken), devices_of_all(made)
            self._works[key] = found
        return found
