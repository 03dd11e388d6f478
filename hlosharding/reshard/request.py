"""What the planner is asked, and one reshard as its parts see it.

Floor: reshard.  `ReshardRequest` is what callers say; `Reshard` is the same with the machine and the number of devices
settled.  It carries the planner as a function, so that plans via an intermediate sharding can ask for their halves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property

from hlosharding.cost import Machine, machines
from hlosharding.ir import Shape
from hlosharding.once import remembered
from hlosharding.reshard.layout import Layout, layout_of, least_of
from hlosharding.reshard.objectives import Figures, least_seconds, weigh
from hlosharding.reshard.steps import AllGather, DynamicSlice, Permute, Step
from hlosharding.sharding import HloSharding

# ---- steps with their price: bytes received, seconds, memory


Steps = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class PlannedSteps:
    """Steps with their price."""

    steps: Steps
    mean_bytes: float
    """Received by a device, mean over devices."""
    seconds: float
    peak_bytes: int
    """Most bytes alive during a step."""

    @property
    def figures(self) -> Figures:
        """What it is compared by."""
        return Figures(self.seconds, self.mean_bytes, len(self.steps), self.peak_bytes)

    def cost(self, objective: str) -> float:
        """What the objective minimises."""
        return weigh(objective, self.mean_bytes, self.seconds)

    def fits(self, memory_limit: int | None) -> bool:
        """Does a device with so many bytes hold what is alive at once?"""
        return memory_limit is None or self.peak_bytes <= memory_limit


def price_steps(steps: Steps, local: Shape, num_devices: int, machine: Machine) -> PlannedSteps:
    """The price of steps that start from local arrays `local`.

    >>> from hlosharding.cost import machines
    >>> price_steps((), Shape.parse("f32[8]"), 4, machines.h100(4)).peak_bytes
    32
    """
    mean, seconds, peak, shape = 0.0, 0.0, local.byte_size, local
    for step in steps:
        mean += step.mean_bytes(shape, num_devices)
        seconds += step.seconds(shape, machine)
        peak = max(peak, step.buffer_bytes(shape))
        shape = step.result(shape)
    return PlannedSteps(steps, mean, seconds, math.ceil(peak))


_NEAR = 1 + 1e-9
"""What rounding makes of equal costs."""


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


# Without slots: what is found once lies in the dict of the instance.
@dataclass(frozen=True)
class Reshard:
    """One reshard to plan.  Equal and hashed by meaning, without the planner.  What is asked of it is found once."""

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

    @cached_property
    def layouts(self) -> tuple[Layout, Layout]:
        """Where source and target tiles lie."""
        dims, n = self.shape.dims, self.num_devices
        return layout_of(self.source, dims, n), layout_of(self.target, dims, n)

    @cached_property
    def local(self) -> Shape:
        """A device's shape before the first step."""
        return self.shape.with_dims(self.layouts[0].tile)

    @remembered
    def price(self, steps: Steps) -> PlannedSteps:
        """Steps with their price."""
        return price_steps(steps, self.local, self.num_devices, self.machine)

    def least(
        self, *, source: HloSharding | None = None, target: HloSharding | None = None, in_pieces: bool = False
    ) -> tuple[float, float]:
        """Mean bytes and seconds that no plan can do without; between other shardings where some are given.

        `in_pieces`: that no piecewise plan can do without.  In a round a device gets one piece, of one other tile.
        """
        found = least_of(source or self.source, target or self.target, self.shape.dims, self.num_devices)
        nbytes, an_element = found.mean_bytes(self.shape), self.shape.byte_size / self.shape.size
        if in_pieces:
            more_rounds = max(0, found.reach - 2) * least_seconds(1, self.machine, 2)
            return nbytes, least_seconds(found.busiest * an_element, self.machine, 2) + more_rounds
        if self.objective == "time":
            # Plans are priced as programs: those whose steps look a little dearer may be faster.
            return nbytes, least_seconds(nbytes, self.machine)
        return nbytes, least_seconds(found.busiest * an_element, self.machine, max(found.reach, 2))

    @cached_property
    def _least(self) -> tuple[float, float]:
        return self.least()

    def is_cheapest(self, plan: PlannedSteps) -> bool:
        """Can no other plan cost less?"""
        return self.objective != "time" and plan.cost(self.objective) <= weigh(self.objective, *self._least) * _NEAR

    def is_good_enough(self, plan: PlannedSteps) -> bool:
        """The cheapest, or at the bound on bytes in few steps?  Then no other plan is looked for.

        Where time alone decides, small arrays may still travel faster in more bytes than by two steps.
        """
        if self.is_cheapest(plan):
            return True
        is_short = len(plan.steps) <= 2
        if self.objective == "time":
            is_short = not plan.steps or (len(plan.steps) == 1 and isinstance(plan.steps[0], _AT_ONCE))
        return is_short and plan.mean_bytes <= self._least[0] * 1.0001

    def part(self, source: HloSharding, target: HloSharding) -> Steps:
        """The plan of a part, from one sharding to another; memory is looked at once the plan is whole."""
        kind = self.reduce_kind if is_partial(source) or is_partial(target) else None
        part = replace(self, source=source, target=target, reduce_kind=kind, memory_limit=None)
        # What partial sums become when they have met is a value like others: it may go by way of another sharding, too.
        return self.planner(replace(part, is_part=not is_partial(self.source))).steps


_AT_ONCE = (Permute, AllGather, DynamicSlice)
"""Steps of one kernel or collective each: with the least bytes, no other plan is faster."""


def is_partial(sharding: HloSharding) -> bool:
    """Do devices hold partial sums?"""
    return sharding.is_unreduced() or sharding.is_unreduced_subgroup()
