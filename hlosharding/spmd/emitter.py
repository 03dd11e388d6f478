"""Writes local HLO: the only place of the partitioner that makes instructions.

Floor: spmd.  Equal helper ops are made once (hash-consing), so equal collectives merge by themselves.
Knows no shardings: it takes device groups, tables and shapes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hlosharding import wire
from hlosharding.ir import (
    REDUCER_KINDS,
    Builder,
    Computation,
    ComputationBuilder,
    Instruction,
    PaddingDim,
    Shape,
    SliceDim,
)
from hlosharding.spmd.collective import CAUSE_ATTRIBUTE
from hlosharding.spmd.manual_groups import ManualGroups
from hlosharding.spmd.participants import Groups


@dataclass(slots=True)
class PartialSums:
    """Who holds partial sums that are still to be added up, and what was written to add them up or to pass them on."""

    partial_sums: set[Instruction] = field(default_factory=set)
    paying: set[Instruction] = field(default_factory=set)


@dataclass(slots=True)
class Program:
    """What all emitters of one module share."""

    builder: Builder
    num_partitions: int
    warnings: list[str] = field(default_factory=list)
    channel: int = 0
    reducers: dict[tuple[str, str], Computation] = field(default_factory=dict)
    copies: dict[Computation, Computation] = field(default_factory=dict)
    equal: dict[Any, Computation] = field(default_factory=dict)
    deferred: PartialSums = field(default_factory=PartialSums)
    bodies: list[Computation] = field(default_factory=list)
    synced_conditions: dict[Instruction, Groups] = field(default_factory=dict)
    """Loops and branches whose condition is one on all devices of each group, if not shown then by a sync."""
    undecided: dict[Instruction, Any] = field(default_factory=dict)
    """What became of values that had no sharding to take, or were partial sums at first."""

    def body(self, name: str) -> ComputationBuilder:
        """A computation that `back_to` can take back."""
        made = self.builder.computation(name)
        self.bodies.append(made.computation)
        return made

    def mark(self) -> tuple[int, int, int]:
        """Where we are."""
        return len(self.bodies), len(self.warnings), len(self.undecided)

    def back_to(self, mark: tuple[int, int, int]) -> None:
        """Forget the bodies begun since `mark`, and the warnings and values that came with them."""
        bodies, warnings, undecided = mark
        for computation in self.bodies[bodies:]:
            self.builder.drop(computation)
        del self.bodies[bodies:], self.warnings[warnings:]
        for inst in list(self.undecided)[undecided:]:
            del self.undecided[inst]

    def next_channel(self) -> int:
        """A channel id no other collective has."""
        self.channel += 1
        return self.channel

    def reducer(self, kind: str, element_type: str) -> Computation:
        """The scalar computation `kind(a, b)`, made once per element type."""
        key = (kind, element_type)
        if key not in self.reducers:
            body = self.builder.computation(f"{kind}_{element_type}")
            shape = Shape.array(element_type)
            a, b = body.parameter(0, shape, name="a"), body.parameter(1, shape, name="b")
            body.root(body.add(kind, shape, (a, b)))
            self.reducers[key] = body.computation
        return self.reducers[key]

    def copy_computation(self, source: Computation) -> Computation:
        """A computation of scalars (a reducer, a comparator), taken over as it is; equal ones become one."""
        if source not in self.copies:
            called = {c: self.copy_computation(c) for i in source.instructions for c in i.called}
            key = tuple(_token(i, source, called) for i in source.instructions)
            if key not in self.equal:
                self.equal[key] = self._copy(source, called)
            self.copies[source] = self.equal[key]
        return self.copies[source]

    def _copy(self, source: Computation, called: dict[Computation, Computation]) -> Computation:
        body = self.builder.computation(source.name)
        made: dict[Instruction, Instruction] = {}
        for i in source.instructions:
            operands = [made[o] for o in i.operands]
            if i.opcode == "copy":  # what is left of an annotation, which means nothing here
                made[i] = operands[0]
                continue
            made[i] = body.add(i.opcode, i.shape, operands, like=i, called=[called[c] for c in i.called])
        body.root(made[source.root])
        return body.computation


# A barrier is there to keep what is behind it apart.
_EACH_FOR_ITSELF = frozenset({"opt-barrier"})
# Nearly all that reducers consist of: opcode, shape and number say what they compute.
_BARE = frozenset({"parameter", *REDUCER_KINDS})


def _token(inst: Instruction, source: Computation, called: dict[Computation, Computation]) -> Any:
    """All that an instruction computes: names, ids and metadata left out."""
    if inst.opcode in _BARE:
        reads = tuple([source.instructions.index(o) for o in inst.operands])
        return inst.opcode, inst.shape, inst.parameter_number, reads, inst.is_root
    places = tuple(source.instructions.index(o) for o in inst.operands)
    callees = tuple(id(called[c]) for c in inst.called)
    return _attributes(inst), inst.opcode, places, callees, inst.is_root


def _attributes(inst: Instruction) -> bytes:
    """What an instruction's proto says of the result but for its operands and callees."""
    proto = wire.HloInstructionProto()
    proto.CopyFrom(inst.proto)
    for field_name in ("name", "id", "metadata", "operand_ids", "called_computation_ids", "sharding"):
        proto.ClearField(field_name)
    return proto.SerializeToString(deterministic=True)


class Emitter:
    """Appends ops to one local computation on behalf of one global instruction at a time (`lowering`).

    Inside a `manual group` devices are positions in a group: tables and collectives are repeated for all groups.
    """

    def __init__(
        self, program: Program, computation: ComputationBuilder, manual_groups: ManualGroups | None = None
    ) -> None:
        self.program = program
        self.computation = computation
        self.manual_groups = manual_groups
        self.source: Instruction | None = None
        self.reason = "reshard"
        self._made: dict[Any, Instruction] = {}
        self._copied: dict[Any, tuple[Instruction, Instruction]] = {}
        self._cuts: set[Instruction] = set()

    @property
    def written(self) -> int:
        """How many instructions stand in the computation."""
        return len(self.computation.computation.instructions)

    def owes(self, partial_sums: Instruction, since: int) -> None:
        """Note partial sums, and that what was written `since` then adds them up or passes them on."""
        self.program.deferred.partial_sums.add(partial_sums)
        self.program.deferred.paying.update(self.computation.computation.instructions[since:])

    def inside(self, manual_groups: ManualGroups) -> Emitter:
        """Writes into the same computation on behalf of every group of a manual region."""
        inner = Emitter(self.program, self.computation, manual_groups)
        inner._made, inner._copied, inner._cuts = self._made, self._copied, self._cuts
        return inner

    @property
    def num_partitions(self) -> int:
        """Devices that share the work: all, or those of one group."""
        return self.manual_groups.size if self.manual_groups is not None else self.program.num_partitions

    def _everywhere(self, groups: Groups) -> Groups:
        """Device groups as the collectives name them."""
        if self.manual_groups is None:
            return groups
        return tuple(members for group in groups for members in self.manual_groups.everywhere(group))

    def lowering(self, source: Instruction, reason: str = "reshard") -> None:
        """From now on ops are made for `source`: they carry its metadata, and collectives name it as their cause."""
        self.source, self.reason = source, reason

    @contextmanager
    def on_behalf_of(self, source: Instruction, reason: str = "reshard") -> Iterator[None]:
        """As `lowering`, until the block ends."""
        before = self.source, self.reason
        self.lowering(source, reason)
        yield
        self.source, self.reason = before

    def op(
        self,
        opcode: str,
        shape: Shape,
        operands: Sequence[Instruction],
        *,
        called: Sequence[Computation] = (),
        **attrs: Any,
    ) -> Instruction:
        """A helper op; the same op on the same operands is returned again instead of made twice."""
        named = tuple(sorted(attrs.items())) if len(attrs) > 1 else tuple(attrs.items())
        key = (opcode, shape, tuple(operands), tuple(called), named)
        found = self._made.get(key)
        if found is None:
            found = self.computation.add(opcode, shape, operands, metadata_of=self.source, called=called, **attrs)
            self._made[key] = found
        return found

    def local(
        self,
        source: Instruction,
        shape: Shape,
        operands: Sequence[Instruction],
        *,
        opcode: str | None = None,
        **attrs: Any,
    ) -> Instruction:
        """The op of the global instruction `source`, on local operands; attributes given replace the global ones.

        Equal ops on equal operands are one, as after the HloCSE that ends XLA's partitioning.
        """
        called = tuple([self.program.copy_computation(c) for c in source.called]) if source.called else ()
        opcode, operands = opcode or source.opcode, tuple(operands)
        if opcode in _EACH_FOR_ITSELF or source.has_side_effect:
            return self.computation.add(opcode, shape, operands, like=source, called=called, **attrs)
        changed = tuple(sorted(attrs.items())) if attrs else ()
        key = (opcode, shape, operands or _attributes(source), called, changed)
        known = self._copied.get(key)
        # Most equal keys are equal ops: attributes are compared only then.
        if known is not None and known[0].proto is not source.proto and _attributes(known[0]) != _attributes(source):
            key = (*key, _attributes(source))
            known = self._copied.get(key)
        if known is None:
            made = self.computation.add(opcode, shape, operands, like=source, called=called, **attrs)
            known = self._copied[key] = source, made
        return known[1]

    # Data movement without communication.

    def constant(self, value: Any) -> Instruction:
        """A constant of a numpy scalar or array."""
        array = np.asarray(value)
        key = ("constant", array.dtype.str, array.dtype.name, array.shape, array.tobytes())
        if key not in self._made:
            self._made[key] = self.computation.constant(array, metadata_of=self.source)
        return self._made[key]

    def partition_id(self) -> Instruction:
        """This device's number, s32[]."""
        raw = self.op("partition-id", Shape.array("u32"), ())
        return self.op("convert", Shape.array("s32"), (raw,))

    def per_device(self, table: Sequence[int]) -> Instruction:
        """The entry of this device in a table with one number per device, s32[]."""
        if len(set(table)) == 1:
            return self.constant(np.int32(table[0]))
        if self.manual_groups is not None:
            table = self.manual_groups.spread(table)
        if all(v == d * table[1] for d, v in enumerate(table)) and table[1]:
            step = self.partition_id()
            return step if table[1] == 1 else self.binary("multiply", step, self.constant(np.int32(table[1])))
        values = self.constant(np.asarray(table, np.int32))
        row = self.op(
            "dynamic-slice", Shape.array("s32", (1,)), (values, self.partition_id()), dynamic_slice_sizes=(1,)
        )
        return self.reshape(row, ())

    def reshape(self, x: Instruction, dims: Sequence[int]) -> Instruction:
        """The same elements over other dims."""
        return x if x.shape.dims == tuple(dims) else self.op("reshape", x.shape.with_dims(tuple(dims)), (x,))

    def transpose(self, x: Instruction, permutation: Sequence[int]) -> Instruction:
        """Result dim i is dim permutation[i] of x."""
        if tuple(permutation) == tuple(range(x.shape.rank)):
            return x
        shape = x.shape.with_dims(tuple(x.shape.dims[p] for p in permutation))
        return self.op("transpose", shape, (x,), dimensions=tuple(permutation))

    def broadcast(self, x: Instruction, dims: Sequence[int], mapping: Sequence[int]) -> Instruction:
        """Dim i of x becomes dim mapping[i] of the result."""
        if x.shape.dims == tuple(dims) and tuple(mapping) == tuple(range(len(dims))):
            return x
        return self.op("broadcast", x.shape.with_dims(tuple(dims)), (x,), dimensions=tuple(mapping))

    def elements(self, packed: Instruction) -> list[Instruction]:
        """What a tuple holds."""
        shapes = enumerate(packed.shape.tuple_shapes)
        return [self.op("get-tuple-element", shape, (packed,), tuple_index=n) for n, shape in shapes]

    def slice(self, x: Instruction, starts: Sequence[int], limits: Sequence[int]) -> Instruction:
        """Elements starts[i] up to limits[i] of every dim."""
        if not any(starts) and tuple(limits) == x.shape.dims:
            return x
        dims = tuple(SliceDim(s, e, 1) for s, e in zip(starts, limits, strict=True))
        return self.op("slice", x.shape.with_dims(tuple(d.limit - d.start for d in dims)), (x,), slice_dims=dims)

    def pad(self, x: Instruction, low: Sequence[int], high: Sequence[int], fill: Any = 0) -> Instruction:
        """Edge padding (negative cuts); `fill` is a number or a scalar instruction."""
        if not any(low) and not any(high):
            return x
        value = fill if isinstance(fill, Instruction) else self.constant(np.asarray(fill, x.shape.dtype))
        padding = tuple(PaddingDim(a, b, 0) for a, b in zip(low, high, strict=True))
        dims = tuple(d + a + b for d, a, b in zip(x.shape.dims, low, high, strict=True))
        return self.op("pad", x.shape.with_dims(dims), (x, value), padding=padding)

    def concatenate(self, parts: Sequence[Instruction], dim: int) -> Instruction:
        """Join along `dim`."""
        if len(parts) == 1:
            return parts[0]
        dims = list(parts[0].shape.dims)
        dims[dim] = sum(p.shape.dims[dim] for p in parts)
        return self.op("concatenate", parts[0].shape.with_dims(tuple(dims)), tuple(parts), dimensions=(dim,))

    def dynamic_slice(self, x: Instruction, starts: Sequence[Instruction], sizes: Sequence[int]) -> Instruction:
        """`sizes` elements from `starts` (scalars, in range)."""
        shape = x.shape.with_dims(tuple(sizes))
        made = self.op("dynamic-slice", shape, (self._in_range(x), *starts), dynamic_slice_sizes=tuple(sizes))
        self._cuts.add(made)
        return made

    def _in_range(self, x: Instruction) -> Instruction:
        """The program's own dynamic slice with its starts clamped: XLA merges a slice of it as if they could not be
        out of range (AlgebraicSimplifierVisitor::HandleDynamicSlice)."""
        if x in self._cuts or not _is_cut(x):
            return x
        if x.opcode != "dynamic-slice":
            return self.held(x)
        array, *starts = x.operands
        last = (size - taken for size, taken in zip(array.shape.dims, x.shape.dims, strict=True))
        clamped = [self.clamp(s, 0, most) for s, most in zip(starts, last, strict=True)]
        return self.op("dynamic-slice", x.shape, (array, *clamped), dynamic_slice_sizes=x.dynamic_slice_sizes)

    def held(self, x: Instruction) -> Instruction:
        """x, behind a barrier if it is cut at run time: XLA merges such a cut into what reads rows of it, without the
        clamp between them."""
        return self.op("opt-barrier", x.shape, (x,)) if _is_cut(x) else x

    def clamp(self, x: Instruction, low: int, high: int) -> Instruction:
        """A scalar integer between two numbers, of which the upper one may be more than its type holds."""
        dtype = x.shape.dtype
        bounds = [self.constant(np.asarray(v, dtype)) for v in (low, min(high, np.iinfo(dtype).max))]
        return self.op("clamp", x.shape, (bounds[0], x, bounds[1]))

    def dynamic_update_slice(self, x: Instruction, update: Instruction, starts: Sequence[Instruction]) -> Instruction:
        """x with `update` written at `starts`, clamped so that it fits."""
        return self.op("dynamic-update-slice", x.shape, (x, update, *starts))

    def binary(self, opcode: str, a: Instruction, b: Instruction) -> Instruction:
        """An elementwise op of two equal shapes."""
        return self.op(opcode, a.shape, (a, b))

    def compare(self, a: Instruction, direction: str, b: Instruction) -> Instruction:
        """EQ, NE, LT, LE, GT or GE, elementwise."""
        return self.op("compare", a.shape.with_type("pred"), (a, b), comparison_direction=direction)

    def select(self, predicate: Instruction, on_true: Instruction, on_false: Instruction) -> Instruction:
        """Elementwise choice; a scalar predicate is broadcast."""
        if predicate.shape.dims != on_true.shape.dims:
            predicate = self.broadcast(predicate, on_true.shape.dims, ())
        return self.op("select", on_true.shape, (predicate, on_true, on_false))

    def full(self, value: Any, shape: Shape) -> Instruction:
        """An array of one repeated value (a number or a scalar instruction)."""
        scalar = value if isinstance(value, Instruction) else self.constant(np.asarray(value, shape.dtype))
        return self.broadcast(scalar, shape.dims, ())

    def room(self, value: Any, shape: Shape) -> Instruction:
        """As `full`, in a buffer of its own that updates may write over."""
        scalar = value if isinstance(value, Instruction) else self.constant(np.asarray(value, shape.dtype))
        return self.computation.add("broadcast", shape, (scalar,), metadata_of=self.source, dimensions=())

    def iota(self, shape: Shape, dim: int) -> Instruction:
        """Numbers counting along `dim`."""
        return self.op("iota", shape, (), dimensions=(dim,))

    # Collectives.  Groups cover all devices, all of one size; a group of one is no communication.

    def _collective(self, opcode: str, shape: Shape, x: Instruction, key: Any, **attrs: Any) -> Instruction:
        key = (opcode, shape, x, key)
        if key not in self._made:
            if self.source is not None:
                cause = f"{self.reason} for %{self.source.name} ({self.source.opcode})"
                attrs["frontend_attributes"] = {CAUSE_ATTRIBUTE: cause}
            self._made[key] = self.computation.add(
                opcode, shape, (x,), metadata_of=self.source, channel_id=self.program.next_channel(), **attrs
            )
        return self._made[key]

    def all_gather(self, x: Instruction, dim: int, groups: Groups) -> Instruction:
        """Tiles of a group joined along `dim`, in group order."""
        size = len(groups[0])
        if size == 1:
            return x
        groups = self._everywhere(groups)
        dims = tuple(d * size if i == dim else d for i, d in enumerate(x.shape.dims))
        return self._collective(
            "all-gather", x.shape.with_dims(dims), x, (dim, groups),
            dimensions=(dim,), replica_groups=groups, use_global_device_ids=True,
        )  # fmt: skip

    def all_reduce(self, x: Instruction, groups: Groups, kind: str) -> Instruction:
        """Elementwise reduction over each group; every member gets the result."""
        if len(groups[0]) == 1:
            return x
        if not x.shape.rank and kind in ("and", "or"):
            # The groups hold copies.  Asked together, nobody need show that they agree on where a loop ends.
            groups = (tuple(device for group in groups for device in group),)
        groups = self._everywhere(groups)
        reducer = self.program.reducer(kind, x.shape.element_type)
        return self._collective(
            "all-reduce", x.shape, x, (groups, kind),
            called=(reducer,), replica_groups=groups, use_global_device_ids=True,
        )  # fmt: skip

    def reduce_scatter(self, x: Instruction, dim: int, groups: Groups, kind: str) -> Instruction:
        """Elementwise reduction over each group; member i gets the i-th part along `dim`."""
        size = len(groups[0])
        if size == 1:
            return x
        groups = self._everywhere(groups)
        dims = tuple(d // size if i == dim else d for i, d in enumerate(x.shape.dims))
        reducer = self.program.reducer(kind, x.shape.element_type)
        return self._collective(
            "reduce-scatter", x.shape.with_dims(dims), x, (dim, groups, kind),
            called=(reducer,), dimensions=(dim,), replica_groups=groups, use_global_device_ids=True,
        )  # fmt: skip

    def all_to_all(self, x: Instruction, split_dim: int, concat_dim: int, groups: Groups) -> Instruction:
        """Part j along `split_dim` goes to member j; what arrives is joined along `concat_dim` in group order."""
        size, dims = len(groups[0]), x.shape.dims
        if size == 1:
            return x
        groups = self._everywhere(groups)
        if split_dim == concat_dim:
            return self._collective(
                "all-to-all", x.shape, x, (split_dim, groups), dimensions=(split_dim,), replica_groups=groups
            )
        # HLO's array form splits and joins the same dim: give the parts a dim of their own, then move it.
        parts = (*dims[:split_dim], size, dims[split_dim] // size, *dims[split_dim + 1 :])
        split = self.reshape(x, parts)
        moved = self._collective(
            "all-to-all", split.shape, split, (split_dim, groups), dimensions=(split_dim,), replica_groups=groups
        )
        target = concat_dim if concat_dim < split_dim else concat_dim + 1
        order = [d for d in range(len(parts)) if d != split_dim]
        order.insert(order.index(target), split_dim)
        out = [d // size if i == split_dim else d * size if i == concat_dim else d for i, d in enumerate(dims)]
        return self.reshape(self.transpose(moved, order), out)

    def collective_permute(self, x: Instruction, pairs: Sequence[tuple[int, int]]) -> Instruction:
        """Device t receives x of s for each pair (s, t); a device that is no target gets zeros."""
        if all(s == t for s, t in pairs) and len(pairs) == self.num_partitions:
            return x
        pairs = tuple(sorted((s, t) for s, t in self._everywhere(tuple(pairs))))
        return self._collective("collective-permute", x.shape, x, pairs, source_target_pairs=pairs)


def _is_cut(x: Instruction) -> bool:
    """A dynamic slice, or what XLA makes one of: a gather at one place, an update by such a thing that covers all."""
    while x.opcode == "dynamic-update-slice" and x.operands[1].shape is x.shape:
        x = x.operands[1]
    if x.opcode != "gather":
        return x.opcode == "dynamic-slice"
    places, vector_dim = x.operands[1].shape.dims, x.gather_dims.index_vector_dim
    return math.prod(n for d, n in enumerate(places) if d != vector_dim) == 1
