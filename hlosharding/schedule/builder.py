"""Schedules written in Python: a step a call, types checked as they are said.

Floor: schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from hlosharding.errors import ScheduleError
from hlosharding.ir import Shape
from hlosharding.schedule.interpreter import infer_op
from hlosharding.schedule.local_ops import Add, Concat, Split
from hlosharding.schedule.op import Op, Value, type_of
from hlosharding.schedule.schedule import Schedule
from hlosharding.schedule.sources import Constant, Number
from hlosharding.schedule.steps import Apply, Free, Function, Parameter, Step, located, place_of
from hlosharding.schedule.transfers import Send, SubmeshAllGather, SubmeshAllReduce, SubmeshReduce, SubmeshReduceScatter
from hlosharding.schedule.value_type import ValueType
from hlosharding.sharding import REPLICATED, HloSharding


@dataclass(frozen=True, slots=True)
class Ref:
    """A value of a schedule that is being built."""

    name: str
    value: Value

    @property
    def type(self) -> ValueType:
        """Where it lies, and how."""
        return type_of(self.value)

    def __str__(self) -> str:
        return f"%{self.name}: {self.value}"


class ScheduleBuilder:
    """Steps of one function, in the order of the calls.

    >>> b = ScheduleBuilder()
    >>> x = b.parameter("x", Shape.array("f32", (8, 4)), (0,))
    >>> there = b.send(x, (1,))
    >>> print(b.finish(there))
    func @main(%x: f32[8,4] on {0}) {
      %v0 = send(%x) to={1} : f32[8,4] on {1}
      return %v0
    }
    """

    def __init__(self) -> None:
        self._parameters: list[Parameter] = []
        self._steps: list[Step] = []
        self._names: set[str] = set()
        self._ops: dict[str, Op] = {}
        self._new_names = map("v{}".format, count())

    def parameter(self, name: str, shape: Shape, devices: Sequence[int], sharding: HloSharding = REPLICATED) -> Ref:
        """What the schedule takes: an array of a global shape on some devices."""
        kind = ValueType(shape, tuple(devices), sharding)
        sharding.validate(shape.dims, len(kind.devices))
        self._parameters.append(Parameter(self._claim_name(name), kind))
        return Ref(name, kind)

    def run(self, op: Op, *operands: Ref, names: Sequence[str] = ()) -> list[Ref]:
        """A step; its results.  Raises ScheduleError where the operands do not fit."""
        step = Apply(op, tuple(operand.name for operand in operands), ())
        with located(place_of, "main", step):
            made = infer_op(op, [operand.value for operand in operands])
        new = (name for name in self._new_names if name not in self._names)
        results = [self._claim_name(names[n] if n < len(names) else next(new)) for n in range(len(made))]
        self._steps.append(replace(step, results=tuple(results)))
        if op.name.startswith("@"):
            self._keep(op)
        return [Ref(name, value) for name, value in zip(results, made, strict=True)]

    def _keep(self, op: Op) -> None:
        word = op.name[1:]
        if self._ops.setdefault(word, op) is not op:
            raise ScheduleError(f"two ops have the name {op.name}", remedy="name one otherwise")

    def split(self, value: Ref, parts: int, *, dim: int = 0, axis: str = "micro") -> list[Ref]:
        """Equal pieces along a dim: microbatches."""
        return self.run(Split(dim, parts, axis), value)

    def concat(self, *pieces: Ref, dim: int = 0) -> Ref:
        """The pieces joined again."""
        return self.run(Concat(dim), *pieces)[0]

    def constant(self, value: Any, to: Sequence[int]) -> Ref:
        """An array, or a number, that every run has."""
        return self.run(Constant.of(value, to))[0]

    def number(self, piece: int, parts: int, to: Sequence[int], *, axis: str = "micro") -> Ref:
        """The number of a piece, as u32[]."""
        return self.run(Number(piece, parts, axis, tuple(to)))[0]

    def add(self, *terms: Ref) -> Ref:
        """The sum of terms on the same devices, in the place of the first."""
        return self.run(Add(), *terms)[0]

    def send(self, value: Ref, to: Sequence[int], sharding: HloSharding | None = None) -> Ref:
        """The value on other devices."""
        return self.run(Send(tuple(to), sharding), value)[0]

    def reduce(self, *terms: Ref, to: Sequence[int]) -> Ref:
        """The sum of terms that lie apart, on one of their submeshes."""
        return self.run(SubmeshReduce(tuple(to)), *terms)[0]

    def all_reduce(self, *terms: Ref) -> list[Ref]:
        """The sum of terms that lie apart, on each of their submeshes."""
        return self.run(SubmeshAllReduce(), *terms)

    def reduce_scatter(self, *terms: Ref, dim: int = 0, axis: str = "owner") -> list[Ref]:
        """A piece of the sum on each of the terms' submeshes."""
        return self.run(SubmeshReduceScatter(dim, axis), *terms)

    def all_gather(self, *pieces: Ref, dim: int = 0) -> list[Ref]:
        """Pieces that lie apart, joined on each of their submeshes."""
        return self.run(SubmeshAllGather(dim), *pieces)

    def free(self, *values: Ref) -> None:
        """Nothing reads these any more."""
        self._steps.append(Free(tuple(value.name for value in values)))

    def finish(self, *results: Ref) -> Schedule:
        """The schedule, verified."""
        main = Function("main", tuple(self._parameters), tuple(self._steps), tuple(r.name for r in results))
        made = Schedule({"main": main}, dict(self._ops))
        made.verify()
        return made

    def _claim_name(self, name: str) -> str:
        if name in self._names:
            raise ScheduleError(f"%{name} is defined twice", remedy="each value has a name of its own")
        self._names.add(name)
        return name
