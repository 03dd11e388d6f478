"""A program for which plans are made: what they have in common is done once.

Floor: search.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlosharding.cost import Machine
from hlosharding.errors import ScheduleError
from hlosharding.ir import Instruction, Module
from hlosharding.partitioner import PartitionOptions
from hlosharding.schedule import Cutter, Pipeline, Schedule, argument_numbers
from hlosharding.search.plans import Plan
from hlosharding.search.tensor_parallel import tensor_splits
from hlosharding.sharding import HloSharding, TileAssignment


class Planner:
    """Makes pipelines of one program, whose `batch` arguments have the batch as their first dim.

    `donate`: arguments that the update may overwrite.  Raises ScheduleError for arguments that are not there.
    """

    def __init__(self, module: Module, batch: Sequence[str | int], donate: Sequence[str | int] = ()) -> None:
        self.module = module
        self.numbers = frozenset(argument_numbers(module, batch))
        self._cutter = Cutter(module, batch, donate)
        self._annotated: dict[tuple[int, int], Module] = {}
        self._splits: dict[int, dict[int, int]] = {}

    def pipeline(self, plan: Plan, machine: Machine | None = None, options: PartitionOptions | None = None) -> Pipeline:
        """The program cut so.  Raises ScheduleError where it cannot be."""
        for parameter in self.module.entry.parameters:
            if parameter.parameter_number in self.numbers:
                _check_divides(parameter, plan)
        annotated = self.annotated(plan.data, plan.tensor)
        return self._cutter.pipeline(annotated, plan.layout, plan.submeshes, plan.microbatches, machine, options)

    def schedule(self, plan: Plan, machine: Machine | None = None) -> Schedule:
        """The plan's schedule, ready to be verified, simulated and run.  Raises ScheduleError."""
        cut = self.pipeline(plan, machine)
        return cut.schedule(plan.schedule or cut.usual_order, plan.microbatches)

    def annotated(self, data: int, tensor: int) -> Module:
        """The program with the shardings of a stage: the batch over `data` ways, weights over `tensor`."""
        if (data, tensor) not in self._annotated:
            made = self.module.clone()
            made.shardings, made.num_partitions = {}, data * tensor
            for parameter in made.entry.parameters if made.num_partitions > 1 else ():
                dims, split = parameter.shape.dims, self._tensor_splits(tensor).get(parameter.parameter_number)
                if parameter.parameter_number in self.numbers:
                    made.shardings[parameter.id] = _over_data(len(dims), data, tensor)
                elif split is not None:
                    made.shardings[parameter.id] = _over_tensor(len(dims), split, data, tensor)
            self._annotated[data, tensor] = made
        return self._annotated[data, tensor]

    def _tensor_splits(self, ways: int) -> dict[int, int]:
        if ways not in self._splits:
            self._splits[ways] = tensor_splits(self.module, ways, batch=self.numbers) if ways > 1 else {}
        return self._splits[ways]


def _check_divides(parameter: Instruction, plan: Plan) -> None:
    """Raises ScheduleError unless all microbatches, and all their tiles, have as many examples."""
    dims = parameter.shape.dims
    if not dims or not plan.divides(dims[0]):
        pieces = f"{plan.microbatches} microbatches, each {plan.data} ways"
        raise ScheduleError(
            f"the batch of %{parameter.name} {parameter.shape} is not cut into {pieces}",
            remedy="take another batch size, fewer microbatches or fewer ways",
        )


def _over_data(rank: int, data: int, tensor: int) -> HloSharding:
    """The first dim over `data`, copies over `tensor`, on devices that form a mesh [data, tensor]."""
    return HloSharding.partial_tile(TileAssignment.from_iota((data, *[1] * (rank - 1), tensor)))


def _over_tensor(rank: int, split: int, data: int, tensor: int) -> HloSharding:
    """The dim `split` over `tensor`, copies over `data`."""
    dims = [tensor if dim == split else 1 for dim in range(rank)]
    return HloSharding.partial_tile(TileAssignment.from_iota((*dims, data), (data, tensor), (1, 0)))
