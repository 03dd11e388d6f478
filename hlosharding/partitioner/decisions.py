"""Choices already made: repeated layers are decided once, and so are equal ops of other programs.

Floor: partitioner.  Every key is what its answer depends on, beside the prices and the mesh.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from hlosharding.cost import Machine
from hlosharding.ir import ElementReaders, Instruction, Shape
from hlosharding.partitioner.choice import Lowering, MovementPlan, ReshapePlan
from hlosharding.partitioner.prices import Prices
from hlosharding.partitioner.value import Form
from hlosharding.sharding import TileAssignment
from hlosharding.spmd import ManualGroups


@dataclass(slots=True)
class Decisions:
    """What a run decides by, and what it has decided so far."""

    prices: Prices
    overlap: str = "off"
    """When matrix products become loops (`options.OVERLAPS`)."""
    mesh: TileAssignment | None = None
    """The devices of the program's mesh, a dim for each axis."""
    only_propagated: bool = False
    """Is an op split only as its operands and result lie?"""
    has_manual_groups: bool = False
    """Does the program have manual regions over some of the mesh axes?"""
    annotated: frozenset[str] = frozenset()
    """Names of the values that the user annotated."""
    ops: dict[Instruction, Any] = field(default_factory=dict)
    """All of an instruction that its lowering depends on, and `equal_ops`: equal ones as one object."""
    equal_ops: dict[Any, Any] = field(default_factory=dict)
    lowerings: dict[Any, Lowering] = field(default_factory=dict)
    option_prices: dict[Any, Any] = field(default_factory=dict)
    """Of ops by how some of their values may lie (`prices_of_options`)."""
    least_sent: dict[Any, float] = field(default_factory=dict)
    """Of ops that might be movements: what their lowering by factors sends at least."""
    reshapes: dict[Any, ReshapePlan] = field(default_factory=dict)
    moves: dict[Any, MovementPlan | None] = field(default_factory=dict)
    loop_forms: dict[Instruction, tuple[Form, ...]] = field(default_factory=dict)
    """The forms of a loop's carry, where they were found once already (the loop around it is tried more than once)."""
    faster_collective_matmuls: dict[Any, bool] = field(default_factory=dict)
    """Of products that could be loops: are they faster so?"""
    faster_rings: dict[Any, bool] = field(default_factory=dict)
    """Of calls to flash attention that keys could go round for: are they faster so?"""
    local_shapes: dict[int, dict[Shape, Shape]] = field(default_factory=dict)
    """By a sharding's spelling (`uid`): the shape of a tile of an array of some shape."""
    readers: ElementReaders = field(default_factory=ElementReaders)
    """Who reads the elements of the program's tuples."""
    by_group_size: dict[int, Decisions] = field(default_factory=dict)
    """Choices made inside manual regions, by the number of devices in a group."""

    def remembered(self) -> Decisions:
        """The same, of a program without manual regions, with what was chosen of equal ops of others by the same prices
        and on the same mesh."""
        known = _known(self.prices.machine, self.prices.objective, self.mesh, self.only_propagated)
        # All prices start anew, not these alone: the program at hand still goes by the tables that it was given.
        if len(known.lowerings) > _MOST_REMEMBERED:
            _known.cache_clear()
        return replace(self, **{name: getattr(known, name) for name in _REMEMBERED})

    def inside(self, groups: ManualGroups) -> Decisions:
        """What is decided for the groups of a region."""
        if groups.size not in self.by_group_size:
            prices = Prices(self.prices.machine.with_devices(groups.size), self.prices.objective)
            self.by_group_size[groups.size] = Decisions(
                prices,
                overlap=self.overlap,
                only_propagated=self.only_propagated,
                by_group_size=self.by_group_size,
                local_shapes=self.local_shapes,
                readers=self.readers,
            )
        return self.by_group_size[groups.size]


@lru_cache(maxsize=8)
def _known(machine: Machine, objective: str, mesh: TileAssignment | None, only_propagated: bool) -> Decisions:
    """Whose tables all programs of these prices share."""
    return Decisions(Prices(machine, objective), mesh=mesh, only_propagated=only_propagated)


# Not what is kept by instruction, which would keep modules alive, nor which products are faster as loops: whether this
# program has any is read off that table.
_REMEMBERED = "prices", "equal_ops", "lowerings", "option_prices", "least_sent", "reshapes", "moves", "local_shapes"
_MOST_REMEMBERED = 1 << 15
"""Choices of ops: some 100 MB."""
