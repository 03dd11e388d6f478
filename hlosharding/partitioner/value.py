"""Partitioned values: a local instruction, the global shape, and the sharding that relates the two.

Floor: partitioner.  A value keeps its reshards, so one reshard serves many users.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hlosharding.ir import Instruction, Shape
from hlosharding.partitioner.projection import without_partials
from hlosharding.sharding import HloSharding


@dataclass(slots=True, eq=False)
class Value:
    """An array (or token) of the partitioned program.

    `sharding` with an unreduced subgroup means partial results, to be combined by `reduce_kind`.
    """

    local: Instruction
    shape: Shape
    sharding: HloSharding
    reduce_kind: str | None = None
    remake: Callable[[HloSharding], Value] | None = None
    """Makes the value anew in another sharding without communication (constants, iota, broadcast scalars)."""
    reshards: dict[HloSharding, Value] = field(default_factory=dict)

    @property
    def whole_sharding(self) -> HloSharding:
        """The sharding after partial results are combined for all."""
        return without_partials(self.sharding)


@dataclass(slots=True, eq=False)
class TupleValue:
    """A tuple: its parts stay separate values, no local tuple exists until something needs one."""

    elements: tuple[AnyValue, ...]

    @property
    def shape(self) -> Shape:
        """The global shape."""
        return Shape.tuple(tuple(e.shape for e in self.elements))

    @property
    def leaves(self) -> tuple[Value, ...]:
        """All arrays inside, in order."""
        return tuple(leaf for e in self.elements for leaf in leaves_of(e))


AnyValue = Value | TupleValue


@dataclass(slots=True, eq=False)
class Pending:
    """A partial result that nobody has needed yet."""

    partial: Value
    wanted: HloSharding | None
    settled: Value | None = None
    """The combined value, once somebody needed it."""


def leaves_of(value: AnyValue) -> tuple[Value, ...]:
    """The arrays of a value, in order."""
    return value.leaves if isinstance(value, TupleValue) else (value,)


def from_leaves(shape: Shape, leaves: list[Value]) -> AnyValue:
    """Put arrays back into the structure of `shape` (consumes the list)."""
    if not shape.is_tuple:
        return leaves.pop(0)
    return TupleValue(tuple(from_leaves(s, leaves) for s in shape.tuple_shapes))
