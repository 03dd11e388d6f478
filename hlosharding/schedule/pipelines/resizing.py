"""A pipeline for microbatches of any size, told from those for two: a search asks for many, and cutting takes longest.

Floor: schedule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NoReturn, TypeVar

import numpy as np

from hlosharding.cost import Machine, cost
from hlosharding.errors import ScheduleError
from hlosharding.executor import BoundaryArray
from hlosharding.ir import Between, NotResizable, ResizableModule
from hlosharding.schedule.op import Op, Work
from hlosharding.schedule.pipelines.pipeline import Closing, Piece, Pipeline
from hlosharding.schedule.stage_program import ProgramOp, StageProgram, program_work
from hlosharding.schedule.value_type import Types, ValueType

Step = TypeVar("Step", Piece, Closing)


@dataclass(frozen=True)
class Sized:
    """A pipeline, and what its microbatches are."""

    pipeline: Pipeline
    examples: int
    """Of a microbatch those that one device has."""
    count: int


class ResizablePipeline:
    """What two pipelines that were cut alike, for microbatches of two sizes, are for the sizes between.

    `shared`: devices that may share a device's examples.  Raises NotResizable where they were cut otherwise, or where
    their programs have other ops.
    """

    def __init__(self, first: Sized, second: Sized, shared: int = 1) -> None:
        self.first, self.second, self.shared = first, second, shared
        if first.pipeline.outline != second.pipeline.outline:
            raise NotResizable("the pipelines are cut in different places")
        known: dict[tuple[object, object], _ResizableProgram] = {}
        self._programs: dict[Op, tuple[StageProgram, _ResizableProgram]] = {}
        for one, other in zip(_ops(first.pipeline), _ops(second.pipeline), strict=True):
            key = one.program, other.program
            if key not in known:
                known[key] = _ResizableProgram(one, other)
            self._programs[one] = one, known[key]

    def pipeline_for(self, examples: int, count: int) -> Pipeline:
        """The pipeline of `count` microbatches of so many examples a device.  Raises NotResizable."""
        # `or 1`: of two equal sizes nothing grows, and `Between` divides by what they differ by.
        place = Between(examples - self.first.examples, self.second.examples - self.first.examples or 1, self.shared)
        found = self.first.pipeline
        ops = {op: PricedProgram(*program, place) for op, program in self._programs.items()}

        def resized(steps: Sequence[Step]) -> list[Step]:
            return [replace(step, op=ops[step.op]) for step in steps]

        return replace(
            found,
            inputs={name: self._input(name, place, count) for name in found.inputs},
            pieces=resized(found.pieces),
            openings=resized(found.openings),
            closings=resized(found.closings),
        )

    def _input(self, name: str, place: Between, count: int) -> ValueType:
        """Of a batch what the microbatches have together."""
        kind, dim = self.first.pipeline.inputs[name], self.first.pipeline.batch.get(name)
        if dim is None:
            return kind
        sizes = [s.pipeline.inputs[name].shape.dims[dim] // s.count for s in (self.first, self.second)]
        return replace(kind, shape=kind.shape.with_dim(dim, count * place.number(*sizes)))


class PricedProgram(ProgramOp):
    """A stage program of which no more is known than its types and its price."""

    def __init__(self, like: StageProgram, program: _ResizableProgram, place: Between) -> None:
        arrays, count = program.arrays(place), len(like.inputs)
        super().__init__(like.word, like.num_devices, arrays[:count], arrays[count:], like.sums, like.donates)
        self._program, self._place = program, place

    @property
    def has_meaning(self) -> bool:
        return False

    def meaning(self, arrays: Sequence[np.ndarray], types: Types) -> NoReturn:
        raise ScheduleError(f"{self.name} is known by its price alone", remedy="build the plan's schedule")

    def work(self, operands: Types, results: Types, machine: Machine) -> Work:
        return self._program.work(self._place, machine.among(operands[0].devices))


class _ResizableProgram:
    """The program of one pass of some stages."""

    def __init__(self, first: StageProgram, second: StageProgram) -> None:
        if first.sums != second.sums or [a.sharding for a in first.arrays] != [a.sharding for a in second.arrays]:
            raise NotResizable(f"{first.name} and {second.name} take or give arrays that lie otherwise")
        self.module = ResizableModule(first.program.module, second.program.module)
        self.ends = list(zip(first.arrays, second.arrays, strict=True))
        self.arrays, self.work = cache(self._arrays), cache(self._work)

    def _arrays(self, place: Between) -> list[BoundaryArray]:
        """All that enter and leave it.  Raises NotResizable, too, where a size inside would be no integer."""
        self.module.at(place)
        return [replace(a, shape=place.shape(a.shape, b.shape)) for a, b in self.ends]

    def _work(self, place: Between, machine: Machine) -> Work:
        module = self.module.at(place)
        return program_work(module, self.arrays(place), cost(module, machine))


def _ops(pipeline: Pipeline) -> Iterator[StageProgram]:
    for step in pipeline.all_steps:
        if not isinstance(step.op, StageProgram):
            raise NotResizable(f"{step.op.name} is no stage program")
        yield step.op
