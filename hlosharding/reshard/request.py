"""What the planner is asked, and one reshard as its parts see it.

Floor: reshard.  `ReshardRequest` is what callers say; `Reshard` is the same with the machine and the number of devices
settled.  It carries the planner as a function, so that plans via an intermediate sharding can ask for their halves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace

from hlosharding.cost import Machine, machines
from hlosharding.ir import Shape
from hlosharding.reshard.layout import Layout, layout_of, least_mean_elements
from hlosharding.reshard.planned_steps import PlannedSteps, Steps, priced
from hlosharding.reshard.steps import AllGather, Permute
from hlosharding.sharding import HloSharding


@dataclass(frozen=True, slots=True)
class ReshardRequest:
    """One question to the planner, and the key under which its answer is remembered.

    >>> rows, whole = HloSharding.parse("{devices=[4]<=[4]}"), HloSharding.replicate()
    >>> request = ReshardRequest(Shape.parse("f32[8]"), rows, whole)
    >>> request.devices, request.target_machine.name
    (4, 'h100(4)')
    """

    shape: Shape
    """Global."""
    source: HloSharding
    target: HloSharding
    _: KW_ONLY
    reduce_kind: str | None = None
    """How the partial sums of a partial source (or target) combine."""
    objective: str = "time"
    machine: Machine | None = None
    """Default: H100s."""
    memory_limit: int | None = None
    """Bytes per device that may be alive at once."""
    num_devices: int | None = None

    @property
    def devices(self) -> int:
        """How many devices: as said, as a sharding lists them, as the machine has."""
        known = self.num_devices or self.source.num_devices or self.target.num_devices
        known = known or (self.machine and self.machine.num_devices)
        return known or 1 + max((sharding.device or 0) for sharding in (self.source, self.target))

    @property
    def target_machine(self) -> Machine:
        """The machine with so many devices."""
        return (self.machine or machines.h100(self.devices)).with_devices(self.devices)


@dataclass(frozen=True, slots=True)
class Reshard:
    """One reshard to plan.  Equal and hashed by meaning, without the planner."""

    shape: Shape
    """Global."""
    source: HloSharding
    target: HloSharding
    _: KW_ONLY
    reduce_kind: str | None
    objective: str
    machine: Machine
    memory_limit: int | None
    num_devices: int
    planner: Callable[[Reshard], PlannedSteps] = field(compare=False, repr=False)
    """Plans a part of this reshard."""
    is_part: bool = False
    """Of a longer plan: then no more intermediate shardings."""

    @property
    def layouts(self) -> tuple[Layout, Layout]:
        """Where source and target tiles lie."""
        dims, n = self.shape.dims, self.num_devices
        return layout_of(self.source, dims, n), layout_of(self.target, dims, n)

    @property
    def local(self) -> Shape:
        """A device's shape before the first step."""
        return self.shape.with_dims(self.layouts[0].tile)

    def priced(self, steps: Steps) -> PlannedSteps:
        """Steps with their price."""
        return priced(steps, self.local, self.num_devices, self.machine)

    def least_bytes(self, source: HloSharding | None = None) -> float:
        """Mean bytes that no plan can do without; from another sharding than `self.source` where one is given."""
        first, last = self.layouts
        if source is not None:
            first = layout_of(source, self.shape.dims, self.num_devices)
        return least_mean_elements(first, last) * self.shape.byte_size / self.shape.size

    def is_good_enough(self, plan: PlannedSteps, least_bytes: float) -> bool:
        """At the bound, in few steps: then no other plan is looked for.

        Where time alone decides, small arrays may still travel faster in more bytes than by two steps.
        """
        is_short = len(plan.steps) <= 2
        if self.objective == "time":
            is_short = not plan.steps or (len(plan.steps) == 1 and isinstance(plan.steps[0], (Permute, AllGather)))
        return plan.mean_bytes <= least_bytes * 1.0001 and is_short

    def part(self, source: HloSharding, target: HloSharding) -> Steps:
        """The plan of a part, from one sharding to another; memory is looked at once the plan is whole."""
        kind = self.reduce_kind if is_partial(source) or is_partial(target) else None
        part = replace(self, source=source, target=target, reduce_kind=kind, memory_limit=None)
        return self.planner(replace(part, is_part=not is_partial(self.source))).steps

    def via(self, sharding: HloSharding) -> Steps:
        """The plan by an intermediate sharding."""
        return (*self.part(self.source, sharding), *self.part(sharding, self.target))


def is_partial(sharding: HloSharding) -> bool:
    """Do devices hold partial sums?"""
    return sharding.is_unreduced() or sharding.is_unreduced_subgroup()
