"""What a strategy works with while one computation is partitioned: operand values, resharding, plain emission.

Floor: partitioner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hlosharding.errors import PartitionError
from hlosharding.ir import Instruction, Shape
from hlosharding.partitioner.broadcast_dims import dims_of_one_slice, one_slice_of
from hlosharding.partitioner.choice import Lowering, MovementPlan
from hlosharding.partitioner.iteration_space import leaf
from hlosharding.partitioner.prices import Cost, Prices
from hlosharding.partitioner.value import (
    AnyValue,
    DeferredReduction,
    Form,
    TupleValue,
    Value,
    from_leaves,
    leaves_of,
    parts_of,
)
from hlosharding.reshard import plan_steps
from hlosharding.sharding import REPLICATED, HloSharding, local_shape_dims
from hlosharding.spmd import Emitter, ManualGroups, manual_groups_of, sharding_in_groups, sharding_of_all

# Most shardings, which `leaf` takes as they are.
_OWN_SPELLING = frozenset({"tiled", "replicated"})


@dataclass(slots=True)
class Decisions:
    """Choices already made, shared by all computations of a module: repeated layers are decided once."""

    prices: Prices
    lowerings: dict[Any, Lowering] = field(default_factory=dict)
    reshapes: dict[Any, tuple[HloSharding, HloSharding]] = field(default_factory=dict)
    moves: dict[Any, MovementPlan | None] = field(default_factory=dict)
    loops: dict[Instruction, tuple[Form, ...]] = field(default_factory=dict)
    """The forms of a loop's carry, where they were found once already (the loop around it is tried more than once)."""
    overlap: str = "off"
    """When products become loops (`collective_matmul.OVERLAPS`)."""
    faster_collective_matmuls: dict[Any, bool] = field(default_factory=dict)
    """Of products that could be loops: are they faster so?"""
    has_manual_groups: bool = False
    """Does the program have manual regions over some of the mesh axes?"""
    bound: frozenset[str] = frozenset()
    """Names of the values that the user annotated."""
    by_size: dict[int, Decisions] = field(default_factory=dict)
    """Choices made inside manual regions, by the number of devices in a group."""

    def inside(self, manual_groups: ManualGroups) -> Decisions:
        """What is decided for the groups of a region."""
        if manual_groups.size not in self.by_size:
            prices = Prices(self.prices.machine.with_devices(manual_groups.size), self.prices.objective)
            self.by_size[manual_groups.size] = Decisions(prices, overlap=self.overlap, by_size=self.by_size)
        return self.by_size[manual_groups.size]


@dataclass(slots=True)
class Context:
    """One computation being partitioned; `inside(manual group)` sees the same values as the groups of a manual region
    do.
    """

    emitter: Emitter
    shardings: dict[int, HloSharding]
    decisions: Decisions
    values: dict[Instruction, AnyValue | DeferredReduction] = field(default_factory=dict)
    paid: dict[Instruction, Cost] = field(default_factory=dict)
    """What moves cost, by the instruction that moves."""
    manual_groups: ManualGroups | None = None
    outside: Context | None = None
    regions: dict[ManualGroups, Context] = field(default_factory=dict)
    may_defer: frozenset[Instruction] = frozenset()
    """What carries of a loop go through that may turn out to be deferred: what is added to it had better be, too."""

    def inside(self, manual_groups: ManualGroups | None) -> Context:
        """The context for ops of a manual region; of none: for all others."""
        root = self.outside or self
        if manual_groups is None:
            return root
        if manual_groups not in root.regions:
            inner = Context(
                root.emitter.inside(manual_groups), root.shardings, root.decisions.inside(manual_groups), root.values
            )
            inner.manual_groups, inner.outside = manual_groups, root
            root.regions[manual_groups] = inner
        return root.regions[manual_groups]

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
        given = self.shardings.get(inst.id)
        if given is not None and self.manual_groups is None and not inst.shape.is_tuple and given.kind in _OWN_SPELLING:
            return (given.meaning,)
        count = len(inst.shape.leaves) if inst.shape.is_tuple else 1
        if given is None or given.is_unknown():
            return (None,) * count
        if self.manual_groups is not None:
            return tuple(sharding_in_groups(leaf(s), self.manual_groups) for s in given.normalize_tuple(count).leaves)
        # An empty tuple has a sharding, though no array.
        leaves = given.normalize_tuple(count).leaves[:count] if inst.shape.is_tuple else (given,)
        return tuple(leaf(s) for s in leaves)

    def value(self, inst: Instruction) -> AnyValue:
        """What an instruction became; partial results are combined now, on behalf of the op that made them."""
        value = self.complete(self.values[inst], inst)
        return self.seen(value) if self.decisions.has_manual_groups or self.manual_groups is not None else value

    def complete(self, value: AnyValue | DeferredReduction, maker: Instruction) -> AnyValue:
        """A value with all its sums made; `maker` is what they are said to be for where the value does not know."""
        if isinstance(value, DeferredReduction):
            return self.inside(value.partial.manual_groups)._settled(maker, value)
        if isinstance(value, TupleValue) and any(isinstance(part, DeferredReduction) for part in parts_of(value)):
            return TupleValue(tuple(self.complete(e, maker) for e in value.elements))
        return value

    def _settled(self, inst: Instruction, deferred: DeferredReduction) -> Value:
        if deferred.settled is None:
            source, reason = self.emitter.source, self.emitter.reason
            self.emitter.lowering(deferred.maker or inst)
            partial = deferred.partial
            deferred.settled = self.settle(partial, deferred.wanted, f"{partial.reduce_kind} of partial results")
            self.emitter.source, self.emitter.reason = source, reason
        return deferred.settled

    def seen(self, value: AnyValue) -> AnyValue:
        """The same value as this context sees it: from inside its manual region, or from outside of all."""
        if isinstance(value, TupleValue):
            return from_leaves(value.shape, [v for part in value.leaves for v in leaves_of(self.seen(part))])
        if value.manual_groups is self.manual_groups or value.manual_groups == self.manual_groups:
            return value
        if self.manual_groups not in value.views:
            self._link(value, self._from_inside(value) if self.manual_groups is None else self._from_outside(value))
        return value.views[self.manual_groups]

    def _link(self, value: Value, view: Value) -> None:
        view.manual_groups = self.manual_groups
        view.views[value.manual_groups] = value
        value.views[self.manual_groups] = view

    def _from_inside(self, value: Value) -> Value:
        assert value.manual_groups is not None
        sharding = (
            sharding_of_all(value.sharding, value.manual_groups, value.shape.rank)
            if value.shape.is_array
            else REPLICATED
        )
        return Value(value.local, value.shape, sharding, value.reduce_kind)

    def _from_outside(self, value: Value) -> Value:
        assert self.manual_groups is not None
        outer = self.inside(None)
        if value.manual_groups is not None:
            value = outer._from_inside(value)
        if not value.sharding.is_manual_subgroup() and not value.sharding.is_manual():
            # What all devices compute alike is the same in every group.
            value = outer.whole(value, "used in a manual region")
        return Value(
            value.local, value.shape, sharding_in_groups(value.sharding, self.manual_groups), value.reduce_kind
        )

    def waiting(self, operand: Instruction, reader: Instruction) -> DeferredReduction | None:
        """The operand as partial sums, if nobody but `reader` has a use for them and nobody needed their sum."""
        value = self.values.get(operand)
        if not isinstance(value, DeferredReduction) or value.settled is not None or self.decisions.has_manual_groups:
            return None
        return value if operand.users == [reader] and not operand.is_root else None

    def array(self, inst: Instruction) -> Value:
        """What an array instruction became."""
        value = self.values[inst]
        if not isinstance(value, Value) or value.manual_groups is not self.manual_groups:
            value = self.value(inst)
        if isinstance(value, TupleValue):
            raise PartitionError(f"%{inst.name} is a tuple where an array is needed", where=inst.location or None)
        return value

    def arrays(self, operands: Sequence[Instruction]) -> list[Value]:
        """What array instructions became."""
        values, manual_groups = self.values, self.manual_groups
        return [
            v if type(v := values[o]) is Value and v.manual_groups is manual_groups else self.array(o) for o in operands
        ]

    def local_shape(self, shape: Shape, sharding: HloSharding) -> Shape:
        """The shape of one tile; asked for thousands of times, of few shapes."""
        found = sharding.memo.get(shape)
        if found is None:
            found = shape.with_dims(local_shape_dims(sharding, shape.dims)) if shape.is_array else shape
            sharding.memo[shape] = found
        return found

    def reshard(self, value: Value, target: HloSharding, reason: str = "reshard") -> Value:
        """The value in another sharding; made once per value and target."""
        if value.sharding is target or not value.shape.is_array:
            return value
        found = value.reshards.get(target)
        if found is None:
            found = self._reshard(value, target, reason)
            found.manual_groups = self.manual_groups
            value.reshards[target] = found
        return found

    def _reshard(self, value: Value, target: HloSharding, reason: str) -> Value:
        if value.rematerialize is not None:
            return value.rematerialize(target)
        if value.is_at_hand:
            value = value.reshards[REPLICATED]
        if self.manual_groups is None and (value.sharding.is_manual_subgroup() or target.is_manual_subgroup()):
            return self._reshard_inside(value, target, reason)
        if value.broadcast_dims and value.reduce_kind is None:
            slices = dims_of_one_slice(value.shape, value.sharding, target, value.broadcast_dims)
            if slices and self.prices.reshard_seconds(value.shape, value.sharding, target, None) > 0:
                return self._reshard_slice(value, target, slices, reason)
        if value.narrow is not None and self.price(value.narrow, target) < self.price(value, target):
            return self._reshard_narrow(value, value.narrow, target, reason)
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
        local, written = value.local, self.emitter.written
        for step in steps:
            local = step.emit(self.emitter, local)
        if value.reduce_kind is not None:
            self.emitter.owes(value.local, written)
        made = Value(local, value.shape, target, broadcast_dims=value.broadcast_dims)
        made.reshards[value.sharding] = value
        return made

    def _reshard_narrow(self, value: Value, narrow: Value, target: HloSharding, reason: str) -> Value:
        """Elements travel as what they were before a convert made them wider."""
        moved = self.reshard(narrow, target, reason)
        made = Value(
            self.emitter.op("convert", self.local_shape(value.shape, target), (moved.local,)), value.shape, target
        )
        made.narrow, made.broadcast_dims = moved, value.broadcast_dims
        made.reshards[value.sharding] = value
        return made

    def _reshard_slice(self, value: Value, target: HloSharding, dims: tuple[int, ...], reason: str) -> Value:
        """Of a value that is the same along `dims` one slice moves, and is repeated where it arrives."""
        emitter, tile = self.emitter, value.local.shape.dims
        limits = [1 if d in dims else size for d, size in enumerate(tile)]
        slim, source, wanted = one_slice_of(value.shape, value.sharding, target, dims)
        part = Value(
            emitter.slice(value.local, [0] * len(tile), limits), slim, source, manual_groups=self.manual_groups
        )
        moved = self.reshard(part, wanted, reason).local
        kept = [d for d in range(len(tile)) if d not in dims]
        line = emitter.reshape(moved, [moved.shape.dims[d] for d in kept])
        local = emitter.broadcast(line, local_shape_dims(target, value.shape.dims), kept)
        made = Value(local, value.shape, target, broadcast_dims=value.broadcast_dims)
        made.reshards[value.sharding] = value
        return made

    def _reshard_inside(self, value: Value, target: HloSharding, reason: str) -> Value:
        """Between shardings of a manual region: each group by itself."""
        inner = self.inside(manual_groups_of(target if target.is_manual_subgroup() else value.sharding))
        assert inner.manual_groups is not None
        inner.emitter.source = self.emitter.source
        source, wanted = inner.seen(value), sharding_in_groups(target, inner.manual_groups)
        assert isinstance(source, Value)
        if not target.is_manual_subgroup():
            raise PartitionError(f"{value.sharding} cannot become {target} without leaving its manual region")
        made = self.seen(inner.reshard(source, wanted, reason))
        assert isinstance(made, Value)
        return made

    def price(self, value: Value, target: HloSharding) -> float:
        """Seconds to have the value in another sharding; nothing where it is made anew."""
        if value.is_at_hand:
            return 0.0
        return self.prices.reshard_seconds(
            *one_slice_of(value.shape, value.sharding, target, value.broadcast_dims), value.reduce_kind
        )

    def whole(self, value: Value, reason: str = "replicate") -> Value:
        """The value replicated; of a manual region: over each of its groups."""
        sharding = value.sharding
        if sharding.is_manual_subgroup():
            return self.reshard(
                value, sharding_of_all(REPLICATED, manual_groups_of(sharding), value.shape.rank), reason
            )
        return self.reshard(value, REPLICATED, reason)

    def settle(self, value: Value, wanted: HloSharding | None, reason: str = "reshard result") -> Value:
        """The value as its instruction shall have it: in the wanted sharding, or whole pieces in its own."""
        return self.reshard(value, wanted if wanted is not None else value.whole_sharding, reason)

    def pack(self, value: AnyValue) -> Instruction:
        """One local instruction for a value: tuples are built here, where something needs one."""
        if isinstance(value, Value):
            return value.local
        parts = tuple(self.pack(e) for e in value.elements if not isinstance(e, DeferredReduction))
        assert len(parts) == len(value.elements), "sums are made before a tuple is"
        return self.emitter.op("tuple", Shape.tuple(tuple(p.shape for p in parts)), parts)

    def unpack(self, local: Instruction, shape: Shape, shardings: list[HloSharding]) -> AnyValue:
        """Values of the leaves of a local tuple (or of one array); consumes the list of leaf shardings."""
        if not shape.is_tuple:
            return Value(local, shape, shardings.pop(0), manual_groups=self.manual_groups)
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
