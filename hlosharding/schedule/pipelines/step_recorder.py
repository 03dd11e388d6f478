"""The steps of a pipeline, as they follow each other: the same for all pipelines with the same passes, whatever these
compute and cost.

Floor: schedule.  A search asks for times and memory of thousands of pipelines, and most of them differ in prices alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from hlosharding.cost import Machine
from hlosharding.ir import Shape
from hlosharding.schedule.builder import Ref, ScheduleBuilder
from hlosharding.schedule.interpreter import Names
from hlosharding.schedule.local_ops import Add
from hlosharding.schedule.op import Op, Work, type_of
from hlosharding.schedule.pipelines.pipeline import Pipeline
from hlosharding.schedule.simulation import (
    AT_START,
    Application,
    Recording,
    ScheduleSimulation,
    simulate_recording,
)
from hlosharding.schedule.steps import Apply
from hlosharding.schedule.value_type import Types, ValueType, devices_of_all
from hlosharding.sharding import REPLICATED, HloSharding


class _Kind(NamedTuple):
    """Applications of one op to values of the same types; types are numbers."""

    op: Op
    operands: tuple[int, ...]
    results: tuple[int, ...]


class _Step(NamedTuple):
    kind: int
    operands: Names
    results: Names


@dataclass(frozen=True)
class Steps:
    """What is done to which values, without types and prices."""

    kinds: Sequence[_Kind]
    steps: Sequence[_Step]
    types: list[int]
    """The number of each value's type."""
    makers: list[int]
    results: Names

    def price(self, parameters: Types, ops: Mapping[Op, Op], machine: Machine) -> Recording:
        """The steps with other ops in place of those of `ops`.  Raises ScheduleError where types do not fit."""
        types: dict[int, ValueType] = dict(zip(self.types, parameters, strict=False))  # these are the first values
        applied: list[tuple[Apply, Work, tuple[int, ...], tuple[int, ...]]] = []
        for kind in self.kinds:
            op, taken = ops.get(kind.op, kind.op), [types[n] for n in kind.operands]
            made = _infer_types(op, taken)
            for number, each in zip(kind.results, made, strict=True):
                types.setdefault(number, each)
            work = op.work(taken, made, machine)
            applied.append((Apply(op, (), ()), work, devices_of_all(taken), devices_of_all(made)))
        applications: list[Application] = []
        for number, operands, results in self.steps:
            step, work, sources, targets = applied[number]
            applications.append(Application(step, "main", operands, results, work, sources, targets))
        kinds = [types[number] for number in range(len(types))]
        return Recording(machine, applications, kinds, self.types, self.makers, results=self.results)


def _infer_types(op: Op, operands: Types) -> list[ValueType]:
    """Of which microbatch a value is does not matter here."""
    return [replace(type_of(value), shares=()) for value in op.infer(operands)]


class StepRecorder(ScheduleBuilder):
    """Takes the calls of a ScheduleBuilder; a value's name is its number."""

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[tuple[Op, tuple[int, ...]], tuple[int, _Kind, Types]] = {}
        self._made: list[_Step] = []
        self._types: list[int] = []
        self._num_types = 0
        self._makers: list[int] = []

    def parameter(self, name: str, shape: Shape, devices: Sequence[int], sharding: HloSharding = REPLICATED) -> Ref:
        return self._value(self._new_types(1)[0], AT_START, ValueType(shape, tuple(devices), sharding))

    def run(self, op: Op, *operands: Ref, names: Sequence[str] = ()) -> list[Ref]:
        numbers = tuple(int(operand.name) for operand in operands)
        key = op, tuple(self._types[n] for n in numbers)
        if key not in self._kinds:
            self._kinds[key] = self._kind(op, key[1], [operand.type for operand in operands])
        number, kind, types = self._kinds[key]
        place = len(self._made)
        made = [self._value(n, place, each) for n, each in zip(kind.results, types, strict=True)]
        self._made.append(_Step(number, numbers, tuple(int(ref.name) for ref in made)))
        return made

    def _kind(self, op: Op, operands: tuple[int, ...], types: Types) -> tuple[int, _Kind, Types]:
        made = _infer_types(op, types)
        if isinstance(op, Add):  # the sum of two terms is what each of them is
            results = operands[:1]
        else:  # pieces of one array are alike whatever they are pieces of
            results = self._new_types(1) * len(made) if op.is_view else self._new_types(len(made))
        return len(self._kinds), _Kind(op, operands, results), made

    def _new_types(self, count: int) -> tuple[int, ...]:
        self._num_types += count
        return tuple(range(self._num_types - count, self._num_types))

    def _value(self, type_number: int, maker: int, kind: ValueType) -> Ref:
        self._types.append(type_number)
        self._makers.append(maker)
        return Ref(str(len(self._types) - 1), kind)

    def finish_steps(self, *results: Ref) -> Steps:
        """All that was said."""
        names = tuple(int(result.name) for result in results)
        kinds = [kind for _, kind, _ in self._kinds.values()]
        return Steps(kinds, self._made, self._types, self._makers, names)


class PipelineRuns:
    """Runs on one machine; the steps of pipelines that have the same passes are found once."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._steps: dict[object, tuple[Pipeline, Steps]] = {}

    def simulate(self, pipeline: Pipeline, name: str, microbatches: int) -> ScheduleSimulation:
        """What `pipeline.schedule(name, microbatches).simulate(machine)` gives."""
        key = pipeline.outline, name, microbatches
        if key not in self._steps:
            recorder = StepRecorder()
            self._steps[key] = pipeline, recorder.finish_steps(*pipeline.write(recorder, name, microbatches))
        like, steps = self._steps[key]
        ops = {step.op: other.op for step, other in zip(like.all_steps, pipeline.all_steps, strict=True)}
        return simulate_recording(steps.price(list(pipeline.inputs.values()), ops, self.machine))
