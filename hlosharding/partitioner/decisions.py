"""Choices already made, shared by all computations of a module: repeated layers are decided once.

Floor: partitioner.  Plain state of one run; every key is what its answer depends on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hlosharding.ir import ElementReaders, Instruction, Shape
from hlosharding.partitioner.choice import Lowering, MovementPlan
from hlosharding.partitioner.prices import Prices
from hlosharding.partitioner.value import Form
from hlosharding.sharding import HloSharding, TileAssignment
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
    reshapes: dict[Any, tuple[HloSharding, HloSharding]] = field(default_factory=dict)
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
    watched: dict[str, Any] = field(default_factory=dict)
    """By name, ops of which somebody asks how else they could be split; `lowering_of` says what was to be chosen."""
    by_group_size: dict[int, Decisions] = field(default_factory=dict)
    """Choices made inside manual regions, by the number of devices in a group."""

    def inside(self, groups: ManualGroups) -> Decisions:
        """What is decided for the groups of a region."""
        if groups.size not in self.by_group_size:
            prices = Prices(self.prices.machine.with_devices(groups.size), self.prices.objective)
            self.by_group_size[groups.size] = Decisions(
                prices,
                overlap=self.overlap,
                by_group_size=self.by_group_size,
                local_shapes=self.local_shapes,
                readers=self.readers,
                watched=self.watched,
            )
        return self.by_group_size[groups.size]
