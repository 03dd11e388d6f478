"""Local ops by name: data movement, elementwise ops and constants of one device, without communication.

Floor: spmd.  A method returns its operand where there is nothing to do.  Tables have one number per device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hlosharding.ir import ComputationBuilder, Instruction, PaddingDim, Shape, SliceDim
from hlosharding.spmd.manual_groups import ManualGroups
from hlosharding.spmd.op_writer import OpWriter
from hlosharding.spmd.program import Program


class LocalOps(OpWriter):
    """Ops that every device runs on its own data.

    Inside manual groups a device's number is its position in its group, and a table has one number per position.
    """

    def __init__(
        self, program: Program, computation: ComputationBuilder, manual_groups: ManualGroups | None = None
    ) -> None:
        super().__init__(program, computation)
        self.manual_groups = manual_groups
        self._our_slices: set[Instruction] = set()
        """Dynamic slices of our own, which start in range."""

    @property
    def num_partitions(self) -> int:
        """Devices that share the work: all, or those of one group."""
        return self.manual_groups.size if self.manual_groups is not None else self.program.num_partitions

    def partition_id(self) -> Instruction:
        """This device's number, s32[]."""
        raw = self.op("partition-id", Shape.array("u32"), ())
        return self.op("convert", Shape.array("s32"), (raw,))

    def per_device(self, table: Sequence[int], reach: int = 0) -> Instruction:
        """The entry of this device in a table with one number per device, s32[]; s64[] where 32 bits are too few.

        `reach`: the largest number that it is added up to, or compared with.
        """
        dtype = np.int32 if max(reach, *map(abs, table)) <= np.iinfo(np.int32).max else np.int64
        if len(set(table)) == 1:
            return self.constant(dtype(table[0]))
        if self.manual_groups is not None:
            table = self.manual_groups.per_device(table)
        # By arithmetic where it can be: the generated source then says `lax.axis_index` and looks nothing up.
        if all(v == d * table[1] for d, v in enumerate(table)) and table[1]:
            step = self.partition_id()
            if dtype is np.int64:
                step = self.op("convert", Shape.array("s64"), (step,))
            return step if table[1] == 1 else self.binary("multiply", step, self.constant(dtype(table[1])))
        values = self.constant(np.asarray(table, dtype))
        row = self.op(
            "dynamic-slice", values.shape.with_dims((1,)), (values, self.partition_id()), dynamic_slice_sizes=(1,)
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

    def slice_along(self, x: Instruction, dim: int, start: int, limit: int) -> Instruction:
        """Elements `start` up to `limit` of one dim, and all of the others."""
        starts, limits = [0] * x.shape.rank, list(x.shape.dims)
        starts[dim], limits[dim] = start, limit
        return self.slice(x, starts, limits)

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
        shape = parts[0].shape.with_dim(dim, sum(p.shape.dims[dim] for p in parts))
        return self.op("concatenate", shape, tuple(parts), dimensions=(dim,))

    def dynamic_slice(self, x: Instruction, starts: Sequence[Instruction], sizes: Sequence[int]) -> Instruction:
        """`sizes` elements from `starts` (scalars, in range)."""
        shape = x.shape.with_dims(tuple(sizes))
        made = self.op("dynamic-slice", shape, (self._in_range(x), *starts), dynamic_slice_sizes=tuple(sizes))
        self._our_slices.add(made)
        return made

    def _in_range(self, x: Instruction) -> Instruction:
        """The program's own dynamic slice with its starts clamped: XLA merges a slice of it as if they could not be
        out of range (AlgebraicSimplifierVisitor::HandleDynamicSlice)."""
        if x in self._our_slices or not _is_dynamic_slice(x):
            return x
        if x.opcode != "dynamic-slice":
            return self.behind_barrier(x)
        array, *starts = x.operands
        last = (size - taken for size, taken in zip(array.shape.dims, x.shape.dims, strict=True))
        clamped = [self.clamp(s, 0, most) for s, most in zip(starts, last, strict=True)]
        return self.op("dynamic-slice", x.shape, (array, *clamped), dynamic_slice_sizes=x.dynamic_slice_sizes)

    def behind_barrier(self, x: Instruction) -> Instruction:
        """x, behind a barrier if it is a dynamic slice: XLA merges such a slice into what reads rows of it, without the
        clamp between them."""
        return self.op("opt-barrier", x.shape, (x,)) if _is_dynamic_slice(x) else x

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

    def own_buffer(self, value: Any, shape: Shape) -> Instruction:
        """As `full`, in a buffer of its own that updates may write over."""
        scalar = value if isinstance(value, Instruction) else self.constant(np.asarray(value, shape.dtype))
        return self.computation.add("broadcast", shape, (scalar,), metadata_of=self.cause.source, dimensions=())

    def iota(self, shape: Shape, dim: int) -> Instruction:
        """Numbers counting along `dim`."""
        return self.op("iota", shape, (), dimensions=(dim,))


def _is_dynamic_slice(x: Instruction) -> bool:
    """A dynamic slice, or what XLA makes one of: a gather at one place, an update by such a thing that covers all."""
    while x.opcode == "dynamic-update-slice" and x.operands[1].shape is x.shape:
        x = x.operands[1]
    if x.opcode != "gather":
        return x.opcode == "dynamic-slice"
    places, vector_dim = x.operands[1].shape.dims, x.gather_dims.index_vector_dim
    return math.prod(n for d, n in enumerate(places) if d != vector_dim) == 1
