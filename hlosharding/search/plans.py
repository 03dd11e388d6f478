"""A plan: how many ways a step is split by data, by tensors and into stages, and into how many microbatches.

Floor: search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlosharding.cost import Machine
from hlosharding.errors import ScheduleError
from hlosharding.ir import Module
from hlosharding.schedule import Cutter, Estimate, Pipeline, Schedule, argument_numbers, estimated
from hlosharding.search.tensor_parallel import tensor_splits
from hlosharding.sharding import HloSharding


@dataclass(frozen=True, slots=True, order=True)
class Plan:
    """Data, tensor and pipeline parallelism together: each stage's devices form a mesh [data, tensor].

    >>> print(Plan(4, 2, 2, 8), Plan(1, 8).num_devices)
    4/2/2/8 8
    """

    data: int = 1
    tensor: int = 1
    stages: int = 1
    microbatches: int = 1
    schedule: str | None = None
    """As of `pipelined`; None: 1F1B of a training step."""

    def __str__(self) -> str:
        """D/T/P/K, as the DistIR paper writes it."""
        return f"{self.data}/{self.tensor}/{self.stages}/{self.microbatches}"

    @property
    def num_devices(self) -> int:
        return self.data * self.tensor * self.stages

    def annotated(self, module: Module, batch: Sequence[str | int]) -> Module:
        """The program with the shardings of a stage: the batch over `data`, weights over `tensor`.

        Raises ScheduleError where the batch does not divide.
        """
        numbers = frozenset(argument_numbers(module, batch))
        made = module.clone()
        made.shardings, made.num_partitions = {}, self.data * self.tensor
        if made.num_partitions == 1:
            return made
        weights = tensor_splits(module, self.tensor, batch=numbers) if self.tensor > 1 else {}
        for parameter in made.entry.parameters:
            number, dims = parameter.parameter_number, parameter.shape.dims
            if number in numbers:
                if not dims or dims[0] % self.data:
                    raise ScheduleError(
                        f"{self.data} ways do not divide the batch of %{parameter.name} {parameter.shape}"
                    )
                made.shardings[parameter.id] = self._over_data(len(dims))
            elif number in weights:
                made.shardings[parameter.id] = self._over_tensor(len(dims), weights[number])
        return made

    def _over_data(self, rank: int) -> HloSharding:
        ways = ",".join(str(self.data if dim == 0 else 1) for dim in range(rank))
        if self.tensor == 1:
            return HloSharding.parse(f"{{devices=[{ways}]<=[{self.data}]}}")
        count = self.data * self.tensor
        return HloSharding.parse(f"{{devices=[{ways},{self.tensor}]<=[{count}] last_tile_dim_replicate}}")

    def _over_tensor(self, rank: int, split: int) -> HloSharding:
        ways = ",".join(str(self.tensor if dim == split else 1) for dim in range(rank))
        if self.data == 1:
            return HloSharding.parse(f"{{devices=[{ways}]<=[{self.tensor}]}}")
        mesh = f"[{self.data},{self.tensor}]T(1,0)"
        return HloSharding.parse(f"{{devices=[{ways},{self.data}]<={mesh} last_tile_dim_replicate}}")

    def pipeline(self, cutter: Cutter, batch: Sequence[str | int], machine: Machine | None = None) -> Pipeline:
        """The program cut so.  Raises ScheduleError where it cannot be."""
        annotated = self.annotated(cutter.module, batch)
        return cutter.pipeline(annotated, self.stages, self.microbatches, self.data * self.tensor, machine)

    def estimated(self, cutter: Cutter, batch: Sequence[str | int], machine: Machine) -> Estimate:
        """What a step takes."""
        cut = self.pipeline(cutter, batch, machine)
        return estimated(cut, self.schedule or cut.usual_order, self.microbatches, machine)

    def built(self, module: Module, batch: Sequence[str | int], machine: Machine | None = None) -> Schedule:
        """The schedule, ready to be verified, simulated and run."""
        cut = self.pipeline(Cutter(module, batch), batch, machine)
        return cut.schedule(self.schedule or cut.usual_order, self.microbatches)
