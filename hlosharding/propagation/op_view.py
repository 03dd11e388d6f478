"""One op as inference sees it: opcode, shapes, attributes and the flags of its place; equal ops share one object.

Floor: propagation.  An `OpView` sees no shardings, no neighbours and no levels; what depends on the neighbours (is the
index of a gather an iota?) was found out before and is a field.  Sharing makes memo tables common to all layers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hlosharding.errors import RuleError
from hlosharding.ir import Instruction, Shape
from hlosharding.once import remembered
from hlosharding.rules import Signature, signature_of
from hlosharding.sharding import HloSharding, along_dims

Links = tuple[tuple[int, ...], tuple[int, ...]]
"""Dims of one tensor, and for each the dim of another tensor that is the same extent."""


@dataclass(frozen=True, slots=True)
class ParallelDims:
    """Dims of a gather or scatter along which operand, indices and output (or update) move in step."""

    operand: tuple[int, ...]
    indices: tuple[int, ...]
    output: tuple[int, ...]


# Compared by identity: `OpTable` makes equal ops one object, and tables are keyed by it.
@dataclass(eq=False)
class OpView:
    """What inference may know of an instruction apart from shardings."""

    instruction: Instruction
    """One of the instructions that look like this."""
    opcode: str
    operand_shapes: tuple[Shape, ...]
    target: str = ""
    elementwise: bool = False
    spmd: bool = True
    receives: bool = True
    """False: it takes no sharding but manual, and perhaps replicated."""
    takes_replicated: bool = False
    is_foreign_async: bool = False
    """Its work is done on an execution thread that is not visited: a manual operand makes all of it manual."""
    can_receive: bool = True
    """`receives`, leaving aside whether it is the root of its computation."""
    through: int = 0
    """The first level at which shardings pass through it."""
    aggressive: bool = False
    """One user that is not the root: a finer tiling that does not lie within the old one is welcome."""
    level0_concatenate: bool = False
    """Every operand is a reshape of a parameter or tuple element (a stack of layers' weights)."""
    parallel: ParallelDims | None = None
    """Of gather and scatter: dims along which the indices are an iota."""
    memo: tuple[dict[Any, Any], dict[Any, Any]] = field(default_factory=lambda: ({}, {}))
    """Forward results at level 0, and at the levels above."""
    edges: tuple[Edge, ...] = ()
    """Per operand position the op as the user of what stands there; positions that read one value share theirs."""

    @property
    def shape(self) -> Shape:
        return self.instruction.shape

    @property
    def is_parameter(self) -> bool:
        return self.opcode == "parameter"

    @cached_property
    def rank(self) -> int:
        return self.shape.rank

    @cached_property
    def signature(self) -> Signature:
        """What the op's rule says: which dims of operands and result are the same extent."""
        relation = signature_of(self.instruction)
        if not isinstance(relation, Signature):
            raise RuleError(
                f"{self.opcode} has no signature that says where its dims go", where=f"%{self.instruction.name}"
            )
        return relation

    @remembered
    def links(self, source: int, target: int | None = None) -> Links:
        """Dims of operand `source`, and the dims of operand `target` (None: of the result) that are the same factor."""
        pairs = self.signature.pairs(source, target)
        return tuple(a for a, _ in pairs), tuple(b for _, b in pairs)

    def to_result(self, sharding: HloSharding, operand: int) -> HloSharding:
        """An operand's tiles, moved to the result dims they share; all others become copies."""
        rank = self.operand_shapes[operand].rank
        return carry(sharding, self.links(operand), rank, self.shape.leaves[0].rank)

    def to_operand(self, sharding: HloSharding, operand: int) -> HloSharding:
        """The result's tiles, moved to an operand's dims."""
        source, result = self.links(operand)
        rank = self.operand_shapes[operand].rank
        return carry(sharding, (result, source), self.shape.leaves[0].rank, rank)

    @cached_property
    def siblings_matter(self) -> bool:
        """Does what it would like one operand to have depend on other operands?"""
        return any(edge.others for edge in self.edges)

    def whole(self, leaf: HloSharding) -> HloSharding:
        """`leaf` for every leaf of the result."""
        return leaf.normalize_tuple(len(self.shape.leaves)) if self.shape.is_tuple else leaf


Memos = tuple[dict[Any, int] | None, ...]
"""Per level what is known of (own, user's, ...) -> own improved, 0 for no change; None: nothing passes."""


def memos_from(level: int) -> Memos:
    """Empty ones of an op through which shardings pass from that level on; level 0, which knows no merging, alone."""
    above: dict[Any, int] = {}
    return tuple(memo if n >= level else None for n, memo in enumerate(({}, above, above, above)))


class Edge:
    """One op as the user of one value."""

    __slots__ = ("leaf", "memos", "op", "others", "plain", "positions", "takes_element")

    def __init__(
        self,
        op: OpView,
        positions: tuple[int, ...],
        memos: Memos,
        *,
        others: tuple[int, ...] = (),
        leaf: int | None = None,
    ) -> None:
        self.op, self.positions, self.memos = op, positions, memos
        self.others = others
        """Positions of further operands whose shardings matter."""
        self.leaf = leaf
        """Of an array that goes into a tuple: the only leaf that matters of the tuple's sharding."""
        self.takes_element = op.opcode == "get-tuple-element"
        self.plain = not others and leaf is None
        """Do the value's own and the user's sharding say all?"""

    @property
    def position(self) -> int:
        """The first operand position of the value."""
        return self.positions[0]

    @property
    def shape(self) -> Shape:
        """The shape of the value."""
        return self.op.operand_shapes[self.positions[0]]


def carry(sharding: HloSharding, links: Links, source_rank: int, target_rank: int) -> HloSharding:
    """The tiles of linked dims, carried over; all others become copies.

    Without SPMD, XLA makes tilings with more dims than the array (see `concatenate`); it carries the surplus along.
    """
    surplus = range(max(0, sharding.tiled_data_rank - source_rank) if sharding.kind == "tiled" else 0)
    here = (*links[0], *(source_rank + n for n in surplus))
    there = (*links[1], *(target_rank + n for n in surplus))
    return along_dims(sharding, here, there, target_rank + len(surplus))


def is_partitioned(sharding: HloSharding | None) -> bool:
    """XLA's IsSpatiallyPartitioned: there is a sharding, and not a bare single device."""
    return sharding is not None and sharding.is_spatially_partitioned()


def leaf_range(shape: Shape, element: int) -> tuple[int, int]:
    """Where the leaves of tuple element `element` lie among all leaves; an empty tuple has none."""
    return shape.first_leaves[element], shape.first_leaves[element + 1]


def element_sharding(sharding: HloSharding, shape: Shape, element: int) -> HloSharding:
    """The part of a tuple's sharding that belongs to one element (XLA's GetSubSharding)."""
    if not sharding.is_tuple():
        return sharding
    start, end = leaf_range(shape, element)
    if not shape.tuple_shapes[element].is_tuple:
        return sharding.leaf(start)
    return HloSharding.tuple(sharding.tuple_elements[start:end])


def same_dims(left: Shape, right: Shape) -> bool:
    """Equal but for element types, tuples element by element (XLA's CompatibleIgnoringElementType)."""
    if left.is_tuple or right.is_tuple:
        same_length = left.is_tuple and right.is_tuple and len(left.tuple_shapes) == len(right.tuple_shapes)
        return same_length and all(map(same_dims, left.tuple_shapes, right.tuple_shapes))
    return left.is_array == right.is_array and left.dims == right.dims
