"""How every trial of annotations is propagated, partitioned and priced; each set once.

Floor: search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hlosharding.compiler import Partitioned, partition, prices_of
from hlosharding.cost import Machine, step_seconds
from hlosharding.ir import Module
from hlosharding.partitioner import PartitionOptions
from hlosharding.propagation import Propagation, propagate
from hlosharding.search.candidates import Annotation


@dataclass(frozen=True, slots=True)
class Price:
    """What a program costs: one device, one run."""

    bytes_received: float
    flops: float
    time_s: float


@dataclass(frozen=True, slots=True)
class Pipeline:
    """From annotations to prices."""

    to_outputs: bool | Sequence[bool] | None
    to_parameters: bool | Sequence[bool] | None
    num_partitions: int | None
    machine: Machine | None
    options: PartitionOptions | None
    _known: dict[frozenset[Annotation], Price] = field(init=False, default_factory=dict)

    def propagate(self, module: Module) -> Propagation:
        return propagate(module, to_outputs=self.to_outputs, to_parameters=self.to_parameters)

    def machine_for(self, module: Module) -> Machine:
        """Who runs it, on as many devices as were said."""
        count = self.num_partitions
        if count is None:
            count = self.machine.num_devices if self.machine is not None else module.num_partitions
        return prices_of(self.machine, count, module)

    def partition(self, propagation: Propagation, annotations: Sequence[Annotation] = ()) -> Partitioned:
        """The program with these annotations beside its own; its price is known then."""
        made = partition(propagation, num_partitions=self.num_partitions, machine=self.machine, options=self.options)
        seconds = step_seconds(made.module, made.cost)
        self._known[frozenset(annotations)] = Price(made.comm_bytes_per_device, made.flops_per_device, seconds)
        return made

    def price(self, propagation: Propagation, annotations: Sequence[Annotation] = ()) -> Price:
        """Likewise; partitioned once."""
        key = frozenset(annotations)
        if key not in self._known:
            self.partition(propagation, annotations)
        return self._known[key]
