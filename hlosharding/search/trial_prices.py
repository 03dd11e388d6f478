"""How every trial of annotations is propagated, partitioned and priced; each set once.

Floor: search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hlosharding.compiler import Partitioned, partition, prices_of
from hlosharding.cost import Machine, step_seconds
from hlosharding.errors import HloShardingError
from hlosharding.ir import Instruction, Module
from hlosharding.partitioner import PartitionOptions
from hlosharding.propagation import Propagation, propagate
from hlosharding.reshard import MORE_WORK
from hlosharding.search.candidates import Annotation
from hlosharding.search.suggestion import Suggestion
from hlosharding.search.trials import Hit

_MOST_PRICED = 12
"""Of the smallest sets, the nearest first: each is a run of the partitioner, and five answers are given."""


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
        count = self.machine.num_devices if self.machine is not None else module.num_partitions
        return prices_of(self.machine, self.num_partitions or count, module)

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


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked of which program, and how it was before."""

    module: Module
    target: Instruction | None
    """None: no value was named."""
    before: Propagation
    run: Pipeline
    ends_conflict: bool = False

    @property
    def given(self) -> set[str]:
        """Names of what is annotated."""
        return {inst.name for inst in self.module.instructions if self.module.sharding(inst) is not None}

    def find_answers(self, hits: Sequence[Hit]) -> list[Suggestion]:
        """Those that cost about as much work first, and then by bytes."""
        if not hits:
            return []
        given = self.given
        found = [answer for hit in hits[:_MOST_PRICED] if (answer := self._answer(hit, given)) is not None]
        return sorted(found, key=lambda s: (s.flops > MORE_WORK * s.flops_before, s.bytes_received))

    def _answer(self, hit: Hit, given: set[str]) -> Suggestion | None:
        before = self.run.price(self.before)
        try:
            after = self.run.price(hit.propagation, hit.annotations)
        except HloShardingError:
            return None  # what cannot be partitioned helps nobody
        return Suggestion(
            hit.annotations,
            hit.propagation.shardings[self.target.name] if self.target is not None else None,
            after.bytes_received,
            before.bytes_received,
            after.flops,
            before.flops,
            after.time_s,
            before.time_s,
            len(hit.propagation.conflicts),
            len(self.before.conflicts),
            hit.is_smallest,
            self.ends_conflict,
            tuple(name for name, _ in hit.annotations if name in given),
            hit.propagation.module.mesh,
        )
