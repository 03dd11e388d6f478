"""Partitioned values: a local instruction, the global shape, and the sharding that relates the two.

Floor: partitioner.  A value keeps its reshards, so one reshard serves many users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hlosharding.ir import Instruction, Shape
from hlosharding.sharding import REPLICATED, HloSharding, without_partials
from hlosharding.spmd import ManualGroups


@dataclass(frozen=True, slots=True, eq=False)
class ValuePlace:
    """How a value lies before anything is written: all that plans of who reads it depend on.

    Compared by identity: operands with one place are one value, which moves to each sharding but once.
    """

    shape: Shape
    sharding: HloSharding
    reduce_kind: str | None = None
    is_free: bool = False
    """Can it be had in any sharding for nothing?"""
    is_remade: bool = False
    """Is it so because each device makes it anew, whoever else reads it?"""
    copies: tuple[HloSharding, ...] = ()
    """Other shardings that it lies in, too."""
    broadcast_dims: tuple[int, ...] = ()
    trips: int = 1

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal where the places are.  Of shardings their spelling: no call of a sharding's own hash."""
        copies = tuple([copy.uid for copy in self.copies]) if self.copies else ()
        kind, dims = self.reduce_kind, self.broadcast_dims
        return self.shape, self.sharding.uid, kind, self.is_free, self.is_remade, dims, self.trips, copies

    @property
    def whole_sharding(self) -> HloSharding:
        """The sharding after partial results are combined for all."""
        return without_partials(self.sharding)


@dataclass(slots=True, eq=False)
class Value:
    """An array (or token) of the partitioned program.

    `sharding` with an unreduced subgroup means partial results, to be combined by `reduce_kind`.
    """

    local: Instruction
    shape: Shape
    sharding: HloSharding
    reduce_kind: str | None = None
    rematerialize: Callable[[HloSharding], Value] | None = None
    """Makes the value anew in another sharding without communication (constants, iota, broadcast scalars)."""
    reshards: dict[HloSharding, Value] = field(default_factory=dict)
    copy: HloSharding | None = None
    """Where several readers had better find it: the first that does brings a copy there."""
    manual_groups: ManualGroups | None = None
    """The manual region whose groups `sharding` speaks of; None: of all devices."""
    views: dict[ManualGroups | None, Value] = field(default_factory=dict)
    """The same array, seen from inside a region or from outside."""
    broadcast_dims: tuple[int, ...] = ()
    """Dims along which all elements (or, of partial results, their sums) are the same."""
    trips: int = 1
    """Trips of a loop in which it is the same: what moves of it moves before the loop, once for all of them."""
    before_widening: Value | None = None
    """The same elements in fewer bytes, where a convert made this value of them: so it had better travel."""
    before_handing_out: tuple[int | None, Instruction] | None = None
    """The one device that made it, and what is there, where it was handed to all: that device need not be sent it."""

    @property
    def place(self) -> ValuePlace:
        """How it lies now: a reshard of it is a copy from then on."""
        is_remade, kind, dims = self.rematerialize is not None, self.reduce_kind, self.broadcast_dims
        # Most values lie nowhere else, and the properties below need not be asked of them.
        if not self.reshards and self.copy is None:
            return ValuePlace(self.shape, self.sharding, kind, is_remade, is_remade, (), dims, self.trips)
        return ValuePlace(self.shape, self.sharding, kind, self.is_free, is_remade, self.copies, dims, self.trips)

    @property
    def is_free(self) -> bool:
        """Can it be had in any sharding for nothing: made anew, or cut from the whole that somebody needed?"""
        return self.rematerialize is not None or (bool(self.reshards) and REPLICATED in self.reshards)

    @property
    def copies(self) -> tuple[HloSharding, ...]:
        """The other shardings that the whole value lies in, or will for several readers: each may be moved on."""
        # What can be had anywhere for nothing (`is_free`) is never moved on from a copy.
        if self.manual_groups is not None or (self.copy is None and (not self.reshards or self.is_free)):
            return ()
        found = [s for s, v in self.reshards.items() if v.reduce_kind is None and is_array_in(s)]
        return tuple(found if self.copy is None or self.copy in self.reshards else [*found, self.copy])

    @property
    def whole_sharding(self) -> HloSharding:
        """The sharding after partial results are combined for all."""
        return without_partials(self.sharding)


def is_array_in(sharding: HloSharding) -> bool:
    """Has each device elements of the array, rather than terms of them?"""
    return sharding.kind == "tiled" and not sharding.is_manual_subgroup() and not sharding.is_unreduced_subgroup()


@dataclass(slots=True, eq=False)
class TupleValue:
    """A tuple: its parts stay separate values, no local tuple exists until something needs one."""

    elements: tuple[AnyValue | DeferredReduction, ...]

    @property
    def shape(self) -> Shape:
        """The global shape."""
        return Shape.tuple(tuple(e.shape for e in self.elements))


AnyValue = Value | TupleValue


@dataclass(slots=True, eq=False)
class DeferredReduction:
    """A partial result that nobody has needed yet."""

    partial: Value
    wanted: HloSharding | None
    maker: Instruction | None = None
    """On whose behalf the sum is made: the op that made the partial sums, where the value came from elsewhere (a loop).
    """
    reduced: Value | None = None
    """The combined value, once somebody needed it."""

    @property
    def shape(self) -> Shape:
        """The global shape."""
        return self.partial.shape


@dataclass(frozen=True, slots=True)
class Form:
    """How an array crosses a boundary of control flow: a sharding, and the reduction that is deferred."""

    sharding: HloSharding
    deferred: str | None = None
    wanted: HloSharding | None = None
    """The sharding of the reduced value, where a reduction is deferred."""
    # Forms are compared until a loop's agree: whose sum it is does not change what crosses.
    maker: Instruction | None = field(default=None, compare=False)
    """The op whose sum it is."""


def places_of(values: Iterable[Value]) -> list[ValuePlace]:
    """How values lie; of one that is there twice one place."""
    found = {value: value.place for value in dict.fromkeys(values)}
    return [found[value] for value in values]


def leaves_of(value: AnyValue | DeferredReduction) -> tuple[Value, ...]:
    """The arrays of a value, in order; of a deferred one its partial sums."""
    if type(value) is Value:  # asked of thousands: mostly this is all
        return (value,)
    return tuple(part.partial if isinstance(part, DeferredReduction) else part for part in parts_of(value))


def parts_of(value: AnyValue | DeferredReduction) -> tuple[Value | DeferredReduction, ...]:
    """The arrays of a value, in order, sums that nobody has needed yet among them."""
    if isinstance(value, TupleValue):
        return tuple(part for e in value.elements for part in parts_of(e))
    return (value,)


def from_leaves(shape: Shape, leaves: Iterable[Value]) -> AnyValue:
    """Put arrays back into the structure of `shape`."""
    made = from_parts(shape, leaves)
    assert not isinstance(made, DeferredReduction)
    return made


def from_parts(shape: Shape, parts: Iterable[Value | DeferredReduction]) -> AnyValue | DeferredReduction:
    """As `from_leaves`, of arrays and deferred ones."""
    left: Iterator[Any] = iter(parts)

    def made(shape: Shape) -> Any:
        return TupleValue(tuple(map(made, shape.tuple_shapes))) if shape.is_tuple else next(left)

    return made(shape)


def shape_of_leaves(shape: Shape, leaves: Iterator[Shape]) -> Shape:
    """Shapes put into the structure of `shape`."""
    if shape.is_tuple:
        return Shape.tuple(tuple(shape_of_leaves(part, leaves) for part in shape.tuple_shapes))
    return next(leaves)


def map_leaves(value: AnyValue, change: Callable[[Value], Value]) -> AnyValue:
    """Apply `change` to every array of a value."""
    return from_leaves(value.shape, [change(v) for v in leaves_of(value)])
