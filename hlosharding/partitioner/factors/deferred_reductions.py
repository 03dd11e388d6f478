"""Partial results that wait: a reduction is paid when somebody needs the sum, not when the partial sums are made.

Floor: partitioner.  A deferred value whose only user is linear passes through it as partial sums where that saves
something: two gradients that are added cost one all-reduce, and a reduction meets a sharding of fewer elements, so that
it can be a reduce-scatter.  Where nothing is saved the sum is made at once.  Never through a narrowing convert (a
narrow sum of partial sums overflows where the narrowed sum does not), and never where the later value is larger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from hlosharding.ir import Instruction, Shape, is_neutral
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.region_values import array_of, deferred_operand
from hlosharding.partitioner.resharding import local_shape, replicate, reshard, reshard_price
from hlosharding.partitioner.value import DeferredReduction, Value
from hlosharding.rules import Reduce, Signature, signature_of
from hlosharding.sharding import (
    HloSharding,
    is_local_reshape,
    propagate_through_reshape,
    without_partials,
)

# Sums of partial sums overflow in narrower floats long before the sum of the sums does.
_WIDE = frozenset({"f32", "f64", "bf16", "c64", "c128"})


def pass_through(context: Context, inst: Instruction) -> DeferredReduction | None:
    """The instruction on partial sums, if it is linear in deferred operands and waiting saves something; else None."""
    rule = _LINEAR.get(inst.opcode)
    if rule is None:
        return None
    values = context.values
    for came in inst.operands:
        if isinstance(values.get(came), DeferredReduction):
            break
    else:
        return None
    if not waiting_pays(context, came, inst):
        return None
    made = rule(context, inst)
    return None if made is None else DeferredReduction(made, context.wanted_leaves(inst)[0])


def waiting_pays(context: Context, came: Instruction, inst: Instruction) -> bool:
    """Does a later op on the way of the partial sums `came` add up several of them, or want less than the sum for all?

    If not, the reduction is made at once: then what follows it can be fused into its readers.  Past what the user
    annotated partial sums go only on the way to a sum in the same sharding.
    """
    size, tiles, held = came.shape.byte_size, _tiles(context, came), _annotated(context, came)
    while inst.opcode in _LINEAR:
        if held is not None and context.wanted(inst) != held:
            return False
        if inst in context.may_defer and inst.opcode not in SUMS:
            return True
        # A reduction for all costs twice what one costs that leaves each device its part.
        if inst.shape.byte_size * (1 if _tiles(context, inst) > tiles else 2) < 2 * size or _adds(context, came, inst):
            return True
        if len(inst.users) != 1 or inst.is_root:
            return False
        held = _annotated(context, inst) or held
        came, inst = inst, inst.users[0]
    return False


def _annotated(context: Context, inst: Instruction) -> HloSharding | None:
    """The sharding that the user gave a value."""
    return context.wanted(inst) if inst.name in context.decisions.annotated else None


def _adds(context: Context, came: Instruction, inst: Instruction) -> bool:
    """Are all operands of the sum `inst` partial sums, or may they be?"""
    if inst.opcode not in SUMS:
        return False
    return all(o is came or o in context.may_defer or _may_wait(context, o) for o in inst.operands)


def _may_wait(context: Context, operand: Instruction) -> bool:
    if operand in context.values:
        return isinstance(context.values[operand], DeferredReduction)
    return operand.opcode in _MAKERS or operand.opcode in _LINEAR


def _tiles(context: Context, inst: Instruction) -> int:
    wanted = context.wanted(inst)
    return wanted.num_tiles if wanted is not None else 1


def is_only_reader(element: Instruction) -> bool:
    """Is a tuple's element read by this one instruction, and the tuple not as a whole?"""
    [source] = element.operands
    if source.is_root:
        return False
    return all(
        u.opcode == "get-tuple-element" and (u is element or u.tuple_index != element.tuple_index) for u in source.users
    )


# What a loop accumulates


Paths = dict[int, tuple[Instruction, ...]]
"""By its leaf's number in the carry, all that an accumulator goes through, from its element to what is given back."""


def accumulators(carry: Instruction, result: Instruction, hidden: frozenset[int]) -> Paths:
    """Arrays of a loop's carry that its body does nothing with but pass them on, linear ops on the way.

    `carry` is the body's parameter, `result` its root; `hidden` are leaves that others read.
    """
    if result.opcode != "tuple":
        return {}
    found = ((number, _passed_on(array, result, number)) for number, array in _arrays(carry) if number not in hidden)
    return {number: path for number, path in found if path is not None}


def _arrays(packed: Instruction, first: int = 0) -> Iterator[tuple[int, Instruction]]:
    """What is taken out of a tuple by one reader each, with the number of its leaf."""
    if any(u.opcode != "get-tuple-element" for u in packed.users):
        return
    for element in filter(is_only_reader, packed.users):
        number = first + first_leaf(packed.shape, element.tuple_index)
        if element.shape.is_array:
            yield number, element
        elif element.shape.is_tuple:
            yield from _arrays(element, number)


def first_leaf(shape: Shape, index: int) -> int:
    """The number of the first leaf of a tuple's element."""
    return sum(len(s.leaves) for s in shape.tuple_shapes[:index])


def _passed_on(element: Instruction, result: Instruction, number: int) -> tuple[Instruction, ...] | None:
    """How the element goes through linear ops, at least one of them a sum, to its own place in the result."""
    path, sums = [element], 0
    while len(element.users) == 1:
        user = element.users[0]
        place = _leaf_of(result, element)
        if place is not None:
            return tuple(path) if sums and place == number else None
        if user.opcode == "tuple":
            following, loops = _through_tuple(element, user)
            if following is None:
                return None
            element, sums = following, sums + loops
        elif user.opcode not in _LINEAR or user.operands.count(element) > 1:
            return None
        else:
            element, sums = user, sums + (user.opcode in SUMS)
        path.append(element)
    return None


def _leaf_of(result: Instruction, element: Instruction) -> int | None:
    """Which leaf of `result` the element is, if tuples are all that is between them."""
    number = 0
    while element is not result:
        user = element.users[0] if len(element.users) == 1 else None
        if user is None or user.opcode != "tuple" or user.operands.count(element) > 1:
            return None
        number += first_leaf(user.shape, user.operands.index(element))
        element = user
    return number


def _through_tuple(element: Instruction, packed: Instruction) -> tuple[Instruction | None, int]:
    """Where an element of a tuple is read again, past the loop that the tuple enters; and how many loops those are."""
    if packed.operands.count(element) > 1 or packed.is_root:
        return None, 0
    place, loops = packed.operands.index(element), 0
    while len(packed.users) == 1 and packed.users[0].opcode == "while":
        packed, loops = packed.users[0], loops + 1
    read = [u for u in packed.users if u.opcode == "get-tuple-element" and u.tuple_index == place]
    return (read[0] if len(read) == 1 and is_only_reader(read[0]) else None), loops


def deferred_sums(context: Context, path: tuple[Instruction, ...]) -> Iterator[tuple[Instruction, Value]]:
    """The partial sums that are added to an accumulator on its way, or that it is in the end; each with the op it is
    of.
    """
    sums = [i for i in path if i.opcode in SUMS]
    for inst in (*(o for i in sums for o in i.operands if o not in path), path[-1]):
        made = context.values[inst]
        if isinstance(made, DeferredReduction):
            yield made.maker or inst, made.partial


def may_accumulate(value: Value) -> bool:
    """May partial sums of many trips be added up before they are reduced?"""
    return value.reduce_kind != "add" or value.shape.is_integral or value.shape.element_type in _WIDE


# The linear ops


def _partial_sums(context: Context, inst: Instruction, operand: Instruction) -> Value | None:
    """The unreduced value of an operand that nobody but `inst` uses."""
    deferred = deferred_operand(context, operand, inst)
    return None if deferred is None else deferred.partial


def _sum(context: Context, inst: Instruction) -> Value | None:
    """partial sums + partial sums: of the same groups, and of the reduction that the op itself is."""
    left, right = (_partial_sums(context, inst, o) for o in inst.operands)
    kind = "add" if inst.opcode == "subtract" else inst.opcode
    if (
        left is None
        or right is None
        or left.sharding is not right.sharding
        or {left.reduce_kind, right.reduce_kind} != {kind}
    ):
        return None
    return Value(
        context.emitter.local(inst, left.local.shape, (left.local, right.local)), inst.shape, left.sharding, kind
    )


def _scaled(context: Context, inst: Instruction) -> Value | None:
    """partial sums * whole (or / whole), where the whole value need not move.  Narrow floats overflow early."""
    if inst.shape.element_type not in _WIDE:
        return None
    for position in (0, 1) if inst.opcode == "multiply" else (0,):
        partial_sums = _partial_sums(context, inst, inst.operands[position])
        if partial_sums is None or partial_sums.reduce_kind != "add" or inst.operands[0] is inst.operands[1]:
            continue
        factor, target = array_of(context, inst.operands[1 - position]), without_partials(partial_sums.sharding)
        if reshard_price(context, factor, target) > 0:
            continue
        whole = reshard(context, factor, target)
        operands = (partial_sums.local, whole.local) if position == 0 else (whole.local, partial_sums.local)
        return Value(
            context.emitter.local(inst, partial_sums.local.shape, operands), inst.shape, partial_sums.sharding, "add"
        )
    return None


def _negated(context: Context, inst: Instruction) -> Value | None:
    partial_sums = _partial_sums(context, inst, inst.operands[0])
    if partial_sums is None or partial_sums.reduce_kind != "add":
        return None
    return Value(
        context.emitter.local(inst, partial_sums.local.shape, (partial_sums.local,)),
        inst.shape,
        partial_sums.sharding,
        "add",
    )


def _widened(context: Context, inst: Instruction) -> Value | None:
    """Partial sums of a wider float: their sum is only more exact.  (Integers wrap around in their own width.)"""
    partial_sums = _partial_sums(context, inst, inst.operands[0])
    if partial_sums is None or not (partial_sums.shape.is_floating and inst.shape.is_floating):
        return None
    if inst.shape.element_type not in _WIDER.get(partial_sums.shape.element_type, ()):
        return None
    shape = partial_sums.local.shape.with_type(inst.shape.element_type)
    return Value(
        context.emitter.local(inst, shape, (partial_sums.local,)),
        inst.shape,
        partial_sums.sharding,
        partial_sums.reduce_kind,
    )


_WIDER = {"f16": ("f32", "f64"), "bf16": ("f32", "f64"), "f32": ("f64",)}


def _transposed(context: Context, inst: Instruction) -> Value | None:
    partial_sums = _partial_sums(context, inst, inst.operands[0])
    if partial_sums is None:
        return None
    sharding, order = partial_sums.sharding, inst.dimensions
    if sharding.kind == "tiled":
        tiles = sharding.tiles.array
        sharding = _marked(tiles.transpose(*order, *range(len(order), tiles.ndim)), sharding)
    return Value(context.emitter.transpose(partial_sums.local, order), inst.shape, sharding, partial_sums.reduce_kind)


def _reshaped(context: Context, inst: Instruction) -> Value | None:
    partial_sums = _partial_sums(context, inst, inst.operands[0])
    sharding = (
        None if partial_sums is None else _carried(partial_sums.sharding, partial_sums.shape.dims, inst.shape.dims)
    )
    if partial_sums is None or sharding is None:
        return None
    local = context.emitter.reshape(partial_sums.local, sharding.tile_shape(inst.shape.dims))
    return Value(local, inst.shape, sharding, partial_sums.reduce_kind)


def _carried(sharding: HloSharding, before: tuple[int, ...], after: tuple[int, ...]) -> HloSharding | None:
    """The partial sums' sharding behind a reshape; None where tiles do not line up."""
    if sharding.kind != "tiled":
        return sharding
    tiles, whole = sharding.tiles.array, without_partials(sharding)
    carried = propagate_through_reshape(before, after, whole).meaning
    if not is_local_reshape(whole, before, carried, after):
        return None
    ways = carried.data_dims if carried.kind == "tiled" else (1,) * len(after)
    if carried.kind == "tiled" and (carried.tiles.array.reshape(-1) != whole.tiles.array.reshape(-1)).any():
        return None
    return _marked(tiles.reshape(*ways, *tiles.shape[len(before) :]), sharding)


def _marked(tiles: np.ndarray, like: HloSharding) -> HloSharding:
    return HloSharding.subgroup(tiles, like.subgroup_types).meaning


def _reduced(context: Context, inst: Instruction) -> Value | None:
    """A sum of partial sums over dims that no device has a part of; the largest of partial maxima, and so on."""
    partial_sums = _partial_sums(context, inst, inst.operands[0])
    signature = signature_of(inst)
    if partial_sums is None or len(inst.operands) != 2 or not isinstance(signature, Signature):
        return None
    kinds = {f.owes.kind for f in signature.factors if isinstance(f.owes, Reduce)}
    sharding = _without_dims(partial_sums.sharding, inst.dimensions)
    if kinds != {partial_sums.reduce_kind} or sharding is None:
        return None
    init = replicate(context, array_of(context, inst.operands[1]))
    if not is_neutral(init.local, next(iter(kinds))):
        return None
    shape = local_shape(context, inst.shape, sharding)
    local = context.emitter.local(inst, shape, (partial_sums.local, init.local))
    return Value(local, inst.shape, sharding, partial_sums.reduce_kind)


def _without_dims(sharding: HloSharding, dims: tuple[int, ...]) -> HloSharding | None:
    """The sharding without dims that are whole; None where one of them is split."""
    if sharding.kind != "tiled":
        return sharding
    if any(sharding.data_dims[d] > 1 for d in dims):
        return None
    return _marked(np.squeeze(sharding.tiles.array, dims), sharding)


def _kept(context: Context, inst: Instruction) -> Value | None:
    """A copy, often a former annotation: see `waiting_pays` for how that binds."""
    return _partial_sums(context, inst, inst.operands[0])


SUMS = frozenset({"add", "subtract", "maximum", "minimum", "and", "or"})
# Ops that may make partial sums.
_MAKERS = frozenset({"dot", "reduce", "convolution", "scatter", "gather", "get-tuple-element", "reduce-window"})
_LINEAR: dict[str, Callable[[Context, Instruction], Value | None]] = {
    "add": _sum,
    "subtract": _sum,
    "maximum": _sum,
    "minimum": _sum,
    "and": _sum,
    "or": _sum,
    "multiply": _scaled,
    "divide": _scaled,
    "negate": _negated,
    "convert": _widened,
    "transpose": _transposed,
    "reshape": _reshaped,
    "reduce": _reduced,
    "copy": _kept,
}
