"""Steps of a pipeline recorded for the simulator as they are said, without a schedule between.

Floor: schedule.  A search asks for times and memory of thousands of pipelines; what a step makes of equal operands is
inferred once, and which microbatch a value is of does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hlosharding.cost import Machine
from hlosharding.ir import Shape
from hlosharding.schedule.builder import Ref, ScheduleBuilder
from hlosharding.schedule.op import Op, Value, type_of
from hlosharding.schedule.recording import Recording
from hlosharding.schedule.steps import Apply
from hlosharding.schedule.value_type import ValueType
from hlosharding.sharding import REPLICATED, HloSharding


class RecordingBuilder(ScheduleBuilder):
    """Takes the calls of a ScheduleBuilder; a value's name is its number in the recording."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._recording = Recording(machine)
        self._made: dict[tuple[Any, ...], tuple[Apply, list[ValueType]]] = {}

    def parameter(self, name: str, shape: Shape, devices: Sequence[int], sharding: HloSharding = REPLICATED) -> Ref:
        kind = ValueType(shape, tuple(devices), sharding)
        number = len(self._recording.types)
        self._recording.entered((number,), [kind])
        return Ref(str(number), kind)

    def run(self, op: Op, *operands: Ref, names: Sequence[str] = ()) -> list[Ref]:
        step, types = self._inferred(op, operands)
        first = len(self._recording.types)
        numbers = tuple(range(first, first + len(types)))
        self._recording.applied(step, "main", tuple(int(o.name) for o in operands), numbers, types)
        return [Ref(str(number), kind) for number, kind in zip(numbers, types, strict=True)]

    def _inferred(self, op: Op, operands: Sequence[Ref]) -> tuple[Apply, list[ValueType]]:
        key = (op, *[id(operand.type) for operand in operands])
        found = self._made.get(key)
        if found is None:
            given: list[Value] = [operand.type for operand in operands]
            plain: dict[ValueType, ValueType] = {}
            made = (replace(type_of(value), shares=()) for value in op.infer(given))
            found = self._made[key] = Apply(op, (), ()), [plain.setdefault(kind, kind) for kind in made]
        return found

    def recorded(self, *results: Ref) -> Recording:
        """All that was said."""
        self._recording.left(tuple(int(result.name) for result in results))
        return self._recording
