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
    kinds: list[ValueType] = field(default_factory=list[ValueType])
    """The types that values have, without shares: of which microbatch one is matters neither to time nor to memory."""
    types: list[int] = field(default_factory=list[int])
    """By the number of the value, that of its type in `kinds`."""
    makers: list[int] = field(default_factory=list[int])
    freed_values: set[int] = field(default_factory=set[int])
    """Those that a step frees."""
    results: Names = ()
    _works: dict[tuple[Any, ...], tuple[Work, tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    _numbers: dict[ValueType, int] = field(default_factory=dict)
    _seen: dict[tuple[int, ...], tuple[ValueType, int]] = field(default_factory=dict)
    """By identity of a type's parts: the first with these, which keeps them alive, and the number of its kind."""

    def numbers_where(self, holds: Callable[[Op], bool]) -> list[int]:
        """Of the applications whose op is such a one."""
        return [number for number, done in enumerate(self.applications) if holds(done.step.op)]

    def on_enter(self, parameters: Names, values: Sequence[Value]) -> None:
        for value in values:
            self._add_value(type_of(value), AT_START)

    def on_apply(self, step: Apply, function: str, operands: Names, results: Names, made: Sequence[Value]) -> None:
        number = len(self.applications)
        for value in made:
            self._add_value(type_of(value), number)
        work, sources, targets = self._work_of(step.op, operands, results)
        self.applications.append(Application(step, function, operands, results, work, sources, targets))

    def on_free(self, values: Names) -> None:
        self.freed_values.update(values)

    def on_leave(self, results: Names) -> None:
        self.results = results

    def _add_value(self, kind: ValueType, maker: int) -> None:
        self.makers.append(maker)
        # Values of all microbatches have these very parts in common: no sharding is hashed or compared for each.
        key = id(kind.shape), id(kind.devices), id(kind.sharding), kind.is_on_host
        if key not in self._seen:
            bare = replace(kind, shares=())
            number = self._numbers.setdefault(bare, len(self.kinds))
            if number == len(self.kinds):
                self.kinds.append(bare)
            self._seen[key] = kind, number
        self.types.append(self._seen[key][1])

    def _work_of(self, op: Op, operands: Names, results: Names) -> tuple[Work, tuple[int, ...], tuple[int, ...]]:
        """Of equal ops on equal types once."""
        types = self.types
        key = (op, *[types[n] for n in operands], *[types[n] for n in results])
        found = self._works.get(key)
        if found is None:
            taken, made = [self.kinds[types[n]] for n in operands], [self.kinds[types[n]] for n in results]
            found = op.work(taken, made, self.machine), devices_of_all(taken), devices_of_all(made)
            self._works[key] = found
        return found
