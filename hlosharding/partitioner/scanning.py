"""HLO `scan`: a loop over slices of its operands, which collects slices of its results and carries the rest.

Floor: partitioner.  It becomes the `while` loop that it stands for, so that only its step is partitioned: slices keep
the splits of their other dims; carries have those of the result, else those in which the step leaves them when it
takes them so, else those of the initial value.  The dim that is scanned is whole on every device, since each step needs
its slice at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlosharding.ir import Computation, Instruction, Shape
from hlosharding.partitioner.borders import close_computation, forms_of, open_computation
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.declared import compute_whole
from hlosharding.partitioner.emitter import Emitter
from hlosharding.partitioner.value import AnyValue, Value, from_leaves, leaves_of
from hlosharding.sharding import HloSharding, add_shape_dims, remove_shape_dims, replicate_on_dims

_COUNTER = Shape.array("s32")


def scan(context: Context, inst: Instruction) -> AnyValue:
    """The loop, its step over local slices; inside a manual group it is computed whole."""
    if context.world is not None:
        return compute_whole(context, inst, "a scan is not split inside a manual group")
    dim, carries, step = inst.dimensions[0], int(inst.proto.num_carries), inst.called[0]
    values = context.arrays(inst.operands)
    wanted = context.wanted_leaves(inst)
    sliced, stacked = len(values) - carries, len(wanted) - carries
    given = [_whole_along(v.whole_sharding, dim) for v in values[:sliced]]
    slices = [_without(s, dim) for s in given]
    begun = [w if w is not None else v.whole_sharding for v, w in zip(values[sliced:], wanted[stacked:], strict=True)]
    opened, carried = _opened(context, step, slices, begun, [w is None for w in wanted[stacked:]])
    made = _left(opened, step)[:stacked]
    local_step = close_computation(opened, step, forms_of([*made, *carried]))
    targets = zip(values, [*given, *carried], strict=True)
    taken = [context.reshard(v, t, f"operand {n}") for n, (v, t) in enumerate(targets)]
    context.emitter.lowering(inst)
    loop = _Loop(inst, local_step, dim, sliced, stacked)
    results = loop.emit(context, [t.local for t in taken], [add_shape_dims(m, dim, 1).meaning for m in made])
    shardings = [*(add_shape_dims(m, dim, 1).meaning for m in made), *carried]
    leaves = zip(results, inst.shape.leaves, shardings, wanted, strict=True)
    return from_leaves(inst.shape, [context.settle(Value(i, s, h), w) for i, s, h, w in leaves])


Shardings = list[HloSharding]


def _opened(
    context: Context, step: Computation, slices: Shardings, begun: Shardings, is_free: Sequence[bool]
) -> tuple[Context, Shardings]:
    """The step, and the shardings of its carries: those that it leaves, where they are free and a fixed point."""
    program, before = context.emitter.program, context.emitter.program.mark()
    opened = _open(context, step, slices, begun)
    left = _left(opened, step)[-len(begun) :] if begun else []
    better = [new if free else old for new, old, free in zip(left, begun, is_free, strict=True)]
    if better == begun:
        return opened, begun
    program.back_to(before)
    tried = _open(context, step, slices, better)
    if _left(tried, step)[-len(begun) :] == left:
        return tried, better
    program.back_to(before)
    return _open(context, step, slices, begun), begun


def _open(context: Context, step: Computation, slices: Shardings, carried: Shardings) -> Context:
    return open_computation(context, step, [forms_of((s,)) for s in (*slices, *carried)])


def _left(opened: Context, step: Computation) -> Shardings:
    return [v.whole_sharding for v in leaves_of(opened.value(step.root))]


def _whole_along(sharding: HloSharding, dim: int) -> HloSharding:
    return replicate_on_dims(sharding, (dim,)).meaning


def _without(sharding: HloSharding, dim: int) -> HloSharding:
    return remove_shape_dims(sharding, (dim,)).meaning


class _Loop:
    """The `while` of one scan: it carries a counter, the sliced operands, the stacked results, the scan's carries."""

    def __init__(self, inst: Instruction, step: Computation, dim: int, sliced: int, stacked: int) -> None:
        self.inst, self.step, self.dim, self.sliced, self.stacked = inst, step, dim, sliced, stacked
        whole = inst.operands[0].shape if sliced else inst.shape.leaves[0]
        self.length = whole.dims[dim]

    def emit(
        self, context: Context, operands: Sequence[Instruction], stacks: Sequence[HloSharding]
    ) -> list[Instruction]:
        """Local stacked results, then carries."""
        emitter = context.emitter
        shapes = [context.local_shape(s, h) for s, h in zip(self.inst.shape.leaves, stacks, strict=False)]
        rooms = [emitter.room(np.zeros((), s.dtype), s) for s in shapes]
        start = emitter.constant(np.int32(0))
        initial = [start, *operands[: self.sliced], *rooms, *operands[self.sliced :]]
        shape = Shape.tuple(tuple(i.shape for i in initial))
        called = [self._body(emitter, shape), self._condition(emitter, shape)]
        packed = emitter.op("tuple", shape, initial)
        loop = emitter.computation.add("while", shape, (packed,), metadata_of=self.inst, called=called)
        return _elements(emitter, loop)[1 + self.sliced :]

    def _body(self, around: Emitter, shape: Shape) -> Computation:
        builder = around.program.body(f"{self.inst.name}_body")
        emitter = Emitter(around.program, builder)
        emitter.lowering(self.inst)
        counter, *rest = _elements(emitter, builder.parameter(0, shape, name="state"))
        operands, stacks = rest[: self.sliced], rest[self.sliced : self.sliced + self.stacked]
        one = emitter.constant(np.int32(1))
        place = counter
        if self.inst.proto.is_reverse:
            place = emitter.binary("subtract", emitter.constant(np.int32(self.length - 1)), counter)
        slices = [self._slice(emitter, o, place) for o in operands]
        arguments = [*slices, *rest[self.sliced + self.stacked :]]
        made = _elements(
            emitter, emitter.op("call", self.step.root.shape, arguments, called=(self.step,))
        )  # the step's root is a tuple
        new = [self._store(emitter, s, m, place) for s, m in zip(stacks, made, strict=False)]
        then = [emitter.binary("add", counter, one), *operands, *new, *made[self.stacked :]]
        builder.root(emitter.op("tuple", shape, then))
        return builder.computation

    def _condition(self, around: Emitter, shape: Shape) -> Computation:
        builder = around.program.body(f"{self.inst.name}_condition")
        emitter = Emitter(around.program, builder)
        emitter.lowering(self.inst)
        state = builder.parameter(0, shape, name="state")
        counter = emitter.op("get-tuple-element", _COUNTER, (state,), tuple_index=0)
        builder.root(emitter.compare(counter, "LT", emitter.constant(np.int32(self.length))))
        return builder.computation

    def _starts(self, emitter: Emitter, rank: int, place: Instruction) -> list[Instruction]:
        zero = emitter.constant(np.int32(0))
        return [place if d == self.dim else zero for d in range(rank)]

    def _slice(self, emitter: Emitter, whole: Instruction, place: Instruction) -> Instruction:
        dims = whole.shape.dims
        sizes = [1 if d == self.dim else size for d, size in enumerate(dims)]
        row = emitter.dynamic_slice(whole, self._starts(emitter, len(dims), place), sizes)
        return emitter.reshape(row, [*dims[: self.dim], *dims[self.dim + 1 :]])

    def _store(self, emitter: Emitter, stack: Instruction, made: Instruction, place: Instruction) -> Instruction:
        dims = [1 if d == self.dim else size for d, size in enumerate(stack.shape.dims)]
        row = emitter.reshape(made, dims)
        return emitter.dynamic_update_slice(stack, row, self._starts(emitter, len(dims), place))


def _elements(emitter: Emitter, whole: Instruction) -> list[Instruction]:
    shapes = enumerate(whole.shape.tuple_shapes)
    return [emitter.op("get-tuple-element", shape, (whole,), tuple_index=n) for n, shape in shapes]
