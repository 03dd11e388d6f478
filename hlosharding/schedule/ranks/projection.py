"""A schedule projected to each of its devices: the interpreter's run on types, seen by one that notes who does what.

Floor: schedule.  Every rank keeps the schedule's order, so that programs made here never wait for each other in a ring.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from hlosharding.errors import ScheduleError
from hlosharding.ir import Shape
from hlosharding.schedule.flat_run import FlatRun, RunEvent
from hlosharding.schedule.interpreter import Names, interpret
from hlosharding.schedule.op import Op, Value
from hlosharding.schedule.ranks.rank_program import RankProgram
from hlosharding.schedule.ranks.steps import (
    BoundaryTile,
    RankApply,
    RankFree,
    RankJoin,
    RankReceive,
    RankSend,
    RankStep,
    TileOp,
)
from hlosharding.schedule.steps import Apply, Functions, function_named
from hlosharding.schedule.tile_parts import TilePart, tile_parts
from hlosharding.schedule.transfers import Send
from hlosharding.schedule.value_type import Types, ValueType, devices_text


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
    seen = _NamedRun([parameter.name for parameter in function_named(functions, "main").parameters])
    interpret(functions, observer=seen)
    return _Projection(seen, wanted).make_programs()


class _NamedRun(FlatRun):
    """The run with the names that values had in it."""

    def __init__(self, parameter_names: Sequence[str]) -> None:
        super().__init__()
        self.wished = list(parameter_names)

    def on_apply(self, step: Apply, function: str, operands: Names, results: Names, made: Sequence[Value]) -> None:
        super().on_apply(step, function, operands, results, made)
        self.wished += [self._name_within(function, name) for name in step.results]

    def on_name(self, name: str, value: int, function: str) -> None:
        self.wished[value] = self._name_within(function, name)

    @staticmethod
    def _name_within(function: str, name: str) -> str:
        return name if function == "main" else f"{function}.{name}"

    def name_values(self) -> list[str]:
        """One for each value: what a function does again makes other values."""
        taken = dict.fromkeys(self.wished, 0)
        return [self._fresh_name(name, taken) for name in self.wished]

    @staticmethod
    def _fresh_name(name: str, taken: dict[str, int]) -> str:
        taken[name] += 1
        if taken[name] == 1:
            return name
        fresh = f"{name}.{taken[name]}"
        # A value of the text may be called so already.
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

    def __init__(self, seen: _NamedRun, wanted: int | None) -> None:
        self._seen, self._names = seen, seen.name_values()
        devices = sorted({device for kind in set(seen.types) for device in kind.devices})
        if wanted is not None and wanted not in devices:
            raise ScheduleError(f"device {wanted} takes no part", remedy=f"these do: {devices_text(devices)}")
        self._steps: dict[int, list[RankStep]] = {n: [] for n in ([wanted] if wanted is not None else devices)}
        self._members = cache(self._members_of)
        self._deliveries = cache(_deliveries)

    def make_programs(self) -> dict[int, RankProgram]:
        for event in self._seen.events:
            self._project(event)
        return {device: self._make_program(device, steps) for device, steps in self._steps.items()}

    def _make_program(self, device: int, steps: Sequence[RankStep]) -> RankProgram:
        parameters, results = self._seen.parameters, self._seen.results
        return RankProgram(device, self._boundary(device, parameters), tuple(steps), self._boundary(device, results))

    def _boundary(self, device: int, values: Names) -> tuple[BoundaryTile, ...]:
        kinds = [(number, value, self._seen.types[value]) for number, value in enumerate(values)]
        here = [(n, value, kind) for n, value, kind in kinds if device in kind.devices]
        return tuple(BoundaryTile(self._names[value], number, kind) for number, value, kind in here)

    def _project(self, event: RunEvent) -> None:
        if event.step is None:
            self._free(event.operands)
        elif isinstance(event.step.op, Send):
            self._send(event.operands[0], event.results[0], event.step.where)
        else:
            self._apply(event.step, event)

    def _free(self, values: Names) -> None:
        for device, steps in self._steps.items():
            here = tuple(self._names[n] for n in values if device in self._seen.types[n].devices)
            if here:
                steps.append(RankFree(reads=here))

    def _apply(self, step: Apply, event: RunEvent) -> None:
        names, types = self._names, self._seen.types
        tile_op, members = self._members(
            step.op, tuple(types[n] for n in event.operands), tuple(types[n] for n in event.results)
        )
        which = names[next(iter((*event.results, *event.operands)))]
        for member in members:
            part = RankApply(
                device=member.device,
                tile_op=tile_op,
                reads=tuple(names[event.operands[n]] for n in member.operands),
                makes=tuple(names[event.results[n]] for n in member.results),
                peers=member.group,
                which=which,
                where=step.where,
            )
            self._steps[member.device].append(part)

    def _members_of(
        self, op: Op, operands: tuple[ValueType, ...], results: tuple[ValueType, ...]
    ) -> tuple[TileOp, list[_Member]]:
        """Of equal ops on equal types once."""
        of_operands, of_results = _by_device(operands), _by_device(results)
        members = [
            _Member(device, group, tuple(of_operands.get(device, ())), tuple(of_results.get(device, ())))
            for group in op.groups(operands, results)
            for device in group
            if device in self._steps
        ]
        return TileOp(op, operands, results), members

    def _send(self, value: int, result: int, where: str) -> None:
        arrived = self._seen.types[result]
        shape = arrived.tile
        for device, own in self._deliveries(self._seen.types[value], arrived).items():
            self._deliver(device, own, self._names[value], self._names[result], shape, where)

    def _deliver(self, device: int, own: Sequence[TilePart], value: str, result: str, shape: Shape, where: str) -> None:
        """What one receiver gets, as steps of its senders and its own."""
        is_whole = len(own) == 1 and own[0].at is None
        names = (result,) if is_whole else tuple(f"{result}/{n}" for n in range(len(own)))
        for part, name in zip(own, names, strict=True):
            if part.source in self._steps:
                send = RankSend(reads=(value,), peers=(device,), received=name, cut=part.cut, where=where)
                self._steps[part.source].append(send)
        if device not in self._steps:
            return
        steps = self._steps[device]
        for part, name in zip(own, names, strict=True):
            cut = shape.with_dims(part.dims(shape.dims))
            steps.append(RankReceive(makes=(name,), peers=(part.source,), shape=cut, where=where))
        if not is_whole:
            at = tuple(part.start(shape.rank) for part in own)
            steps.append(RankJoin(makes=(result,), reads=names, at=at, shape=shape, where=where))


def _deliveries(departed: ValueType, arrived: ValueType) -> dict[int, list[TilePart]]:
    """What each receiver gets; one whose tile is all padding gets nothing."""
    found: dict[int, list[TilePart]] = {device: [] for device in arrived.devices}
    for part in tile_parts(departed, arrived):
        found[part.target].append(part)
    return found


def _by_device(kinds: Types) -> dict[int, list[int]]:
    """Numbers of the values that lie on each device."""
    found: dict[int, list[int]] = {}
    for number, kind in enumerate(kinds):
        for device in kind.devices:
            found.setdefault(device, []).append(number)
    return found
