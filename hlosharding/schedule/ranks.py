"""A schedule projected to each of its devices: the interpreter's run on types, seen by one that notes who does what.

Floor: schedule.  Every rank keeps the schedule's order, so that programs made here never wait for each other in a ring.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from hlosharding.errors import ScheduleError
from hlosharding.ir import Shape
from hlosharding.schedule.interpreter import Names, Observer, interpret
from hlosharding.schedule.op import Op, Value, type_of
from hlosharding.schedule.rank_program import RankProgram
from hlosharding.schedule.rank_steps import (
    Application,
    BoundaryTile,
    RankApply,
    RankFree,
    RankJoin,
    RankReceive,
    RankSend,
    RankStep,
)
from hlosharding.schedule.steps import Apply, Functions, function_named
from hlosharding.schedule.tile_parts import TilePart, tile_parts
from hlosharding.schedule.tiles import tile_shape
from hlosharding.schedule.transfers import Send
from hlosharding.schedule.value_type import ValueType, devices_text


def rank_programs(functions: Functions, wanted: int | None = None) -> dict[int, RankProgram]:
    """The program of each device, by device; of one alone where `wanted` names it.  Raises ScheduleError.

    >>> from hlosharding.schedule import parse_schedule
    >>> schedule = parse_schedule('''
    ... func @main(%x: f32[8,4] on {0,1} as {devices=[2,1]<=[2]}) {
    ...   %y = send(%x) to={2} sharding={replicated}
    ...   return %y
    ... }''')
    >>> for program in rank_programs(schedule.functions).values():
    ...     print(program)
    rank 0(%x: f32[4,4]) {
      send(%x) to=2 as=%y/0
      return
    }
    rank 1(%x: f32[4,4]) {
      send(%x) to=2 as=%y/1
      return
    }
    rank 2() {
      %y/0 = receive() from=0 : f32[4,4]
      %y/1 = receive() from=1 : f32[4,4]
      %y = join(%y/0, %y/1) at={[0,0],[4,0]} : f32[8,4]
      return %y
    }
    """
    seen = _Seen([parameter.name for parameter in function_named(functions, "main").parameters])
    interpret(functions, observer=seen)
    return _Projection(seen, wanted).programs()


class _Event(NamedTuple):
    step: Apply | None
    """None: values are freed."""
    operands: Names
    results: Names
    where: str


class _Seen(Observer):
    """The run as it was: values by number, with type and name."""

    def __init__(self, parameter_names: Sequence[str]) -> None:
        self._parameter_names = parameter_names
        self.types: list[ValueType] = []
        self.wished: list[str] = []
        self.events: list[_Event] = []
        self.parameters: Names = ()
        self.results: Names = ()

    def entered(self, parameters: Names, values: Sequence[Value]) -> None:
        self.parameters = parameters
        self._made(self._parameter_names, values)

    def applied(self, step: Apply, function: str, operands: Names, results: Names, made: Sequence[Value]) -> None:
        within = "" if function == "main" else f"{function}."
        self._made([f"{within}{name}" for name in step.results], made)
        self.events.append(_Event(step, operands, results, step.where))

    def named(self, name: str, value: int, function: str) -> None:
        self.wished[value] = name if function == "main" else f"{function}.{name}"

    def freed(self, values: Names) -> None:
        self.events.append(_Event(None, values, (), ""))

    def left(self, results: Names) -> None:
        self.results = results

    def _made(self, names: Sequence[str], values: Sequence[Value]) -> None:
        self.types += map(type_of, values)
        self.wished += names

    def names(self) -> list[str]:
        """One for each value: what a function does again makes other values."""
        taken = dict.fromkeys(self.wished, 0)
        return [self._fresh(name, taken) for name in self.wished]

    @staticmethod
    def _fresh(name: str, taken: dict[str, int]) -> str:
        taken[name] += 1
        if taken[name] == 1:
            return name
        fresh = f"{name}.{taken[name]}"
        while fresh in taken:
            taken[name] += 1
            fresh = f"{name}.{taken[name]}"
        taken[fresh] = 1
        return fresh


class _Member(NamedTuple):
    """One device in an op: the numbers of operands and results that lie on it."""

    device: int
    group: tuple[int, ...]
    operands: tuple[int, ...]
    results: tuple[int, ...]


class _Projection:
    """Steps of the devices, as they are told of."""

    def __init__(self, seen: _Seen, wanted: int | None) -> None:
        self._seen, self._names = seen, seen.names()
        devices = sorted({device for kind in set(seen.types) for device in kind.devices})
        if wanted is not None and wanted not in devices:
            raise ScheduleError(f"device {wanted} takes no part", remedy=f"these do: {devices_text(devices)}")
        self._steps: dict[int, list[RankStep]] = {n: [] for n in ([wanted] if wanted is not None else devices)}
        self._members = cache(self._members_of)
        self._deliveries = cache(_deliveries)

    def programs(self) -> dict[int, RankProgram]:
        for event in self._seen.events:
            self._steps_of(event)
        return {device: self._program(device, steps) for device, steps in self._steps.items()}

    def _program(self, device: int, steps: Sequence[RankStep]) -> RankProgram:
        parameters, results = self._seen.parameters, self._seen.results
        return RankProgram(device, self._boundary(device, parameters), tuple(steps), self._boundary(device, results))

    def _boundary(self, device: int, values: Names) -> tuple[BoundaryTile, ...]:
        kinds = [(number, value, self._seen.types[value]) for number, value in enumerate(values)]
        here = [(n, value, kind) for n, value, kind in kinds if device in kind.devices]
        return tuple(BoundaryTile(self._names[value], number, kind) for number, value, kind in here)

    def _steps_of(self, event: _Event) -> None:
        if event.step is None:
            self._free(event.operands)
        elif isinstance(event.step.op, Send):
            self._send(event.operands[0], event.results[0], event.where)
        else:
            self._apply(event.step.op, event)

    def _free(self, values: Names) -> None:
        for device, steps in self._steps.items():
            here = tuple(self._names[n] for n in values if device in self._seen.types[n].devices)
            if here:
                steps.append(RankFree(here))

    def _apply(self, op: Op, event: _Event) -> None:
        names, types = self._names, self._seen.types
        application, members = self._members(
            op, tuple(types[n] for n in event.operands), tuple(types[n] for n in event.results)
        )
        which = names[next(iter((*event.results, *event.operands)))]
        for member in members:
            taken = tuple(names[event.operands[n]] for n in member.operands)
            made = tuple(names[event.results[n]] for n in member.results)
            step = RankApply(member.device, application, taken, made, member.group, which, event.where)
            self._steps[member.device].append(step)

    def _members_of(
        self, op: Op, operands: tuple[ValueType, ...], results: tuple[ValueType, ...]
    ) -> tuple[Application, list[_Member]]:
        """Of equal ops on equal types once."""
        of_operands, of_results = _by_device(operands), _by_device(results)
        members = [
            _Member(device, group, tuple(of_operands.get(device, ())), tuple(of_results.get(device, ())))
            for group in op.groups(operands, results)
            for device in group
            if device in self._steps
        ]
        return Application(op, operands, results), members

    def _send(self, value: int, result: int, where: str) -> None:
        arrived = self._seen.types[result]
        shape = tile_shape(arrived)
        for device, own in self._deliveries(self._seen.types[value], arrived).items():
            self._deliver(device, own, self._names[value], self._names[result], shape, where)

    def _deliver(self, device: int, own: Sequence[TilePart], value: str, result: str, shape: Shape, where: str) -> None:
        """What one receiver gets, as steps of its senders and its own."""
        is_whole = len(own) == 1 and own[0].at is None
        names = (result,) if is_whole else tuple(f"{result}/{n}" for n in range(len(own)))
        for part, name in zip(own, names, strict=True):
            if part.source in self._steps:
                self._steps[part.source].append(RankSend(value, device, name, part.cut, where))
        if device not in self._steps:
            return
        steps = self._steps[device]
        for part, name in zip(own, names, strict=True):
            steps.append(RankReceive(name, part.source, shape.with_dims(part.dims(shape.dims)), where))
        if not is_whole:
            steps.append(RankJoin(result, names, tuple(part.start(shape.rank) for part in own), shape, where))


def _deliveries(departed: ValueType, arrived: ValueType) -> dict[int, list[TilePart]]:
    """What each receiver gets; one whose tile is all padding gets nothing."""
    found: dict[int, list[TilePart]] = {device: [] for device in arrived.devices}
    for part in tile_parts(departed, arrived):
        found[part.target].append(part)
    return found


def _by_device(kinds: Sequence[ValueType]) -> dict[int, list[int]]:
    """Numbers of the values that lie on each device."""
    found: dict[int, list[int]] = {}
    for number, kind in enumerate(kinds):
        for device in kind.devices:
            found.setdefault(device, []).append(number)
    return found
