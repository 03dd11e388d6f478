"""HLO `scan`: a loop over slices of its operands, which collects slices of its results and carries the rest.

Floor: partitioner.  It becomes the `while` loop that it stands for, so that only its step is partitioned: slices keep
the splits of their other dims; carries have those of the result, else those in which the step leaves them when it
takes them so, else those of the initial value.  The dim that is scanned is whole on every device, since each step needs
its slice at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlosharding.ir import Computation, Instruction
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.control_flow.call_boundary import close_computation, forms_of, open_computation
from hlosharding.partitioner.resharding import arrays_of, compute_whole, local_shape, reshard, to_wanted, value_of
from hlosharding.partitioner.value import AnyValue, Value, from_leaves, leaves_of
from hlosharding.sharding import HloSharding, add_shape_dims, remove_shape_dims, replicate_on_dims
from hlosharding.spmd import Emitter, LoopNames, counted_loop


def scan(context: Context, inst: Instruction) -> AnyValue:
    """The loop, its step over local slices; inside a manual group it is computed whole."""
    if context.manual_groups is not None:
        return compute_whole(context, inst, "a scan is not split inside a manual group")
    dim, carries, step = inst.dimensions[0], int(inst.proto.num_carries), inst.called[0]
    values = arrays_of(context, inst.operands)
    wanted = context.wanted_leaves(inst)
    sliced, stacked = len(values) - carries, len(wanted) - carries
    given = [replicate_on_dims(v.whole_sharding, (dim,)).meaning for v in values[:sliced]]
    slices = [remove_shape_dims(s, (dim,)).meaning for s in given]
    begun = [w if w is not None else v.whole_sharding for v, w in zip(values[sliced:], wanted[stacked:], strict=True)]
    opened, carried = _opened(context, step, slices, begun, [w is None for w in wanted[stacked:]])
    made = _left(opened, step)[:stacked]
    local_step = close_computation(opened, step, forms_of([*made, *carried]))
    targets = zip(values, [*given, *carried], strict=True)
    taken = [reshard(context, v, t, f"operand {n}") for n, (v, t) in enumerate(targets)]
    context.emitter.lowering(inst)
    stacks = [add_shape_dims(m, dim, 1).meaning for m in made]
    results = _loop(context, inst, local_step, stacks, [t.local for t in taken])
    shardings = [*stacks, *carried]
    leaves = zip(results, inst.shape.leaves, shardings, wanted, strict=True)
    return from_leaves(inst.shape, [to_wanted(context, Value(i, s, h), w) for i, s, h, w in leaves])


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
    # A step that leaves its carries otherwise again, now that it takes them so, would move them in every trip.
    if _left(tried, step)[-len(begun) :] == left:
        return tried, better
    program.back_to(before)
    return _open(context, step, slices, begun), begun


def _open(context: Context, step: Computation, slices: Shardings, carried: Shardings) -> Context:
    return open_computation(context, step, [forms_of((s,)) for s in (*slices, *carried)])


def _left(opened: Context, step: Computation) -> Shardings:
    return [v.whole_sharding for v in leaves_of(value_of(opened, step.root))]


def _loop(
    context: Context,
    inst: Instruction,
    step: Computation,
    stacks: Sequence[HloSharding],
    operands: Sequence[Instruction],
) -> list[Instruction]:
    """Local stacked results, then carries, of local operands."""
    emitter, dim, stacked = context.emitter, inst.dimensions[0], len(stacks)
    sliced = len(operands) - int(inst.proto.num_carries)
    length = (inst.operands[0].shape if sliced else inst.shape.leaves[0]).dims[dim]
    shapes = [local_shape(context, s, h) for s, h in zip(inst.shape.leaves, stacks, strict=False)]
    buffers = [emitter.own_buffer(np.zeros((), s.dtype), s) for s in shapes]

    def one_step(at: Emitter, number: Instruction, carried: Sequence[Instruction]) -> list[Instruction]:
        whole, parts, rest = carried[:sliced], carried[sliced : sliced + stacked], carried[sliced + stacked :]
        place = at.binary("subtract", at.constant(np.int32(length - 1)), number) if inst.proto.is_reverse else number
        arguments = [*(_slice(at, o, dim, place) for o in whole), *rest]
        made = at.elements(at.op("call", step.root.shape, arguments, called=(step,)))
        new = [_store(at, s, m, dim, place) for s, m in zip(parts, made, strict=False)]
        return [*whole, *new, *made[stacked:]]

    names = LoopNames(f"{inst.name}_body", f"{inst.name}_condition", "one step of a scan")
    return counted_loop(emitter, names, [*operands[:sliced], *buffers, *operands[sliced:]], length, one_step)[sliced:]


def _starts(emitter: Emitter, rank: int, dim: int, place: Instruction) -> list[Instruction]:
    zero = emitter.constant(np.int32(0))
    return [place if d == dim else zero for d in range(rank)]


def _slice(emitter: Emitter, whole: Instruction, dim: int, place: Instruction) -> Instruction:
    dims = whole.shape.dims
    sizes = [1 if d == dim else size for d, size in enumerate(dims)]
    row = emitter.dynamic_slice(whole, _starts(emitter, len(dims), dim, place), sizes)
    return emitter.reshape(row, [*dims[:dim], *dims[dim + 1 :]])


def _store(emitter: Emitter, stack: Instruction, made: Instruction, dim: int, place: Instruction) -> Instruction:
    dims = [1 if d == dim else size for d, size in enumerate(stack.shape.dims)]
    row = emitter.reshape(made, dims)
    return emitter.dynamic_update_slice(stack, row, _starts(emitter, len(dims), dim, place))
