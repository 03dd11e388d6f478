"""What a strategy works with while one computation is partitioned: operand values, resharding, plain emission.

Floor: partitioner.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hlosharding.errors import PartitionError
from hlosharding.ir import Instruction, Shape
from hlosharding.partitioner.choice import Lowering
from hlosharding.partitioner.emitter import Emitter
from hlosharding.partitioner.pricing import Prices
from hlosharding.partitioner.projection import REPLICATED, leaf, local_shape_dims
from hlosharding.partitioner.reshard import plan_steps
from hlosharding.partitioner.value import AnyValue, Pending, TupleValue, Value, from_leaves, leaves_of
from hlosharding.sharding import HloSharding


@dataclass(slots=True)
class Decisions:
    """Choices already made, shared by all computations of a module: repeated layers are decided once."""

    prices: Prices
    lowerings: dict[Any, Lowering] = field(default_factory=dict)
    reshapes: dict[Any, tuple[HloSharding, HloSharding]] = field(default_factory=dict)


@dataclass(slots=True)
class Context:
    """One computation being partitioned."""

    emitter: Emitter
    shardings: dict[int, HloSharding]
    decisions: Decisions
    values: dict[Instruction, AnyValue | Pending] = field(default_factory=dict)

    @property
    def prices(self) -> Prices:
        return self.decisions.prices

    @property
    def num_partitions(self) -> int:
        return self.emitter.num_partitions

    def wanted(self, inst: Instruction) -> HloSharding | None:
        """The sharding an instruction was given (a tuple's as a tuple sharding), or None."""
        return self.shardings.get(inst.id)

    def wanted_leaves(self, inst: Instruction) -> tuple[HloSharding | None, ...]:
        """The sharding of each result leaf, or None where propagation found nothing."""
        given, count = self.shardings.get(inst.id), len(inst.shape.leaves)
        if given is None or given.is_unknown():
            return (None,) * count
        return tuple(leaf(s) for s in given.normalize_tuple(count).leaves) if inst.shape.is_tuple else (leaf(given),)

    def value(self, inst: Instruction) -> AnyValue:
        """What an instruction became; partial results are combined now, on behalf of the op that made them."""
        value = self.values[inst]
        if not isinstance(value, Pending):
            return value
        if value.settled is None:
            source, reason = self.emitter.source, self.emitter.reason
            self.emitter.lowering(inst)
            value.settled = self.settle(value.partial, value.wanted, f"{value.partial.reduce_kind} of partial results")
            self.emitter.source, self.emitter.reason = source, reason
        return value.settled

    def array(self, inst: Instruction) -> Value:
        """What an array instruction became."""
        value = self.value(inst)
        if isinstance(value, TupleValue):
            raise PartitionError(f"%{inst.name} is a tuple where an array is needed", where=inst.location or None)
        return value

    def local_shape(self, shape: Shape, sharding: HloSharding) -> Shape:
        """The shape of one tile."""
        return shape.with_dims(local_shape_dims(sharding, shape.dims)) if shape.is_array else shape

    def reshard(self, value: Value, target: HloSharding, reason: str = "reshard") -> Value:
        """The value in another sharding; made once per value and target."""
        if value.sharding is target or not value.shape.is_array:
            return value
        found = value.reshards.get(target)
        if found is None:
            found = self._reshard(value, target, reason)
            value.reshards[target] = found
        return found

    def _reshard(self, value: Value, target: HloSharding, reason: str) -> Value:
        if value.remake is not None:
            return value.remake(target)
        self.emitter.reason = reason
        steps = plan_steps(
            value.shape,
            value.sharding,
            target,
            reduce_kind=value.reduce_kind,
            objective=self.prices.objective,
            machine=self.prices.machine,
            num_devices=self.num_partitions,
        )
        local = value.local
        for step in steps:
            local = step.emit(self.emitter, local)
        made = Value(local, value.shape, target)
        made.reshards[value.sharding] = value
        return made

    def price(self, value: Value, target: HloSharding) -> float:
        """Seconds to have the value in another sharding; nothing where it is made anew."""
        if value.remake is not None:
            return 0.0
        return self.prices.move(value.shape, value.sharding, target, value.reduce_kind)

    def whole(self, value: Value, reason: str = "replicate") -> Value:
        """The value replicated."""
        return self.reshard(value, REPLICATED, reason)

    def settle(self, value: Value, wanted: HloSharding | None, reason: str = "reshard result") -> Value:
        """The value as its instruction shall have it: in the wanted sharding, or whole pieces in its own."""
        return self.reshard(value, wanted if wanted is not None else value.whole_sharding, reason)

    def pack(self, value: AnyValue) -> Instruction:
        """One local instruction for a value: tuples are built here, where something needs one."""
        if isinstance(value, Value):
            return value.local
        parts = tuple(self.pack(e) for e in value.elements)
        return self.emitter.op("tuple", Shape.tuple(tuple(p.shape for p in parts)), parts)

    def unpack(self, local: Instruction, shape: Shape, shardings: list[HloSharding]) -> AnyValue:
        """Values of the leaves of a local tuple (or of one array); consumes the list of leaf shardings."""
        if not shape.is_tuple:
            return Value(local, shape, shardings.pop(0))
        parts: list[AnyValue] = []
        for index, part in enumerate(shape.tuple_shapes):
            element = self.emitter.op("get-tuple-element", local.shape.tuple_shapes[index], (local,), tuple_index=index)
            parts.append(self.unpack(element, part, shardings))
        return TupleValue(tuple(parts))

    def reshard_leaves(self, value: AnyValue, targets: list[HloSharding], reason: str) -> AnyValue:
        """Every array of a value in its target sharding."""
        moved = [self.reshard(v, t, reason) for v, t in zip(leaves_of(value), targets, strict=True)]
        return from_leaves(value.shape, moved)

    def map_leaves(self, value: AnyValue, change: Callable[[Value], Value]) -> AnyValue:
        """Apply `change` to every array of a value."""
        return from_leaves(value.shape, [change(v) for v in leaves_of(value)])
