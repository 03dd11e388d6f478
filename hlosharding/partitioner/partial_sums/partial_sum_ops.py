"""Ops on partial sums: which ops may be done before the reduction instead of after it, and how.

Floor: partitioner.  Never through a narrowing convert: a narrow sum of partial sums overflows where the narrowed sum
does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial, wraps
from typing import NamedTuple

import numpy as np

from hlosharding.ir import Instruction, SliceDim, is_neutral, reducer_kind
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.resharding import array_of, arrays_of, deferred_operand, local_shape, replicate, reshard
from hlosharding.partitioner.value import Value
from hlosharding.rules import Reduce, Signature, signature_of
from hlosharding.sharding import (
    REPLICATED,
    HloSharding,
    is_local_reshape,
    partial_sum_groups,
    propagate_through_reshape,
    uneven_dims,
    without_partials,
)

# Sums of partial sums overflow in narrower floats long before the sum of the sums does; not in bf16, whose exponents
# are those of f32.
WIDE = frozenset({"f32", "f64", "bf16", "c64", "c128"})


def _partial_sums(context: Context, inst: Instruction, operand: Instruction) -> Value | None:
    """The unreduced value of an operand that nobody but `inst` uses."""
    deferred = deferred_operand(context, operand, inst)
    return None if deferred is None else deferred.partial


OnPartialSums = Callable[[Context, Instruction], Value | None]


def _on_first(act: Callable[[Context, Instruction, Value], Value | None]) -> OnPartialSums:
    """An op on the partial sums that its first operand is; None where that is whole."""

    @wraps(act)
    def on_partial_sums(context: Context, inst: Instruction) -> Value | None:
        found = _partial_sums(context, inst, inst.operands[0])
        return None if found is None else act(context, inst, found)

    return on_partial_sums


def _made_of(partial_sums: Value, inst: Instruction, local: Instruction, sharding: HloSharding | None = None) -> Value:
    """An op's result, partial sums as what it was done on is; `sharding`: where it lies otherwise."""
    return Value(local, inst.shape, sharding or partial_sums.sharding, partial_sums.reduce_kind)


def _sum(context: Context, inst: Instruction, kind: str) -> Value | None:
    """partial sums + partial sums, in the same groups by then, of the reduction `kind`, which the op itself is."""
    both = _of_same_devices(context, _terms(context, inst, kind))
    # The largest of two sums is no sum of the larger terms.
    if both is None or both[0].reduce_kind != kind:
        return None
    left, right = both
    return _made_of(left, inst, context.emitter.local(inst, left.local.shape, (left.local, right.local)))


def _terms(context: Context, inst: Instruction, kind: str) -> list[Value | None]:
    """The operands as partial sums; what is neutral is so on each device."""
    found = [_partial_sums(context, inst, operand) for operand in inst.operands]
    for place, other in enumerate(reversed(found)):
        if other is not None and is_neutral(inst.operands[place], kind):
            whole = reshard(context, array_of(context, inst.operands[place]), without_partials(other.sharding))
            found[place] = Value(whole.local, whole.shape, other.sharding, other.reduce_kind)
    return found


def _of_same_devices(context: Context, found: Iterable[Value | None]) -> tuple[Value, Value] | None:
    """Two partial sums in one sharding: one of more devices is summed over some of these first, each of which gets its
    part (a reduce-scatter).  None where there are not two, or neither's devices are among the other's.
    """
    left, right = found
    if left is None or right is None or left.reduce_kind != right.reduce_kind:
        return None
    if left.sharding is right.sharding:
        return left, right
    if sums_over_some(context, left.sharding, right.sharding):
        return reshard(context, left, right.sharding, _SUMMED), right
    if sums_over_some(context, right.sharding, left.sharding):
        return left, reshard(context, right, left.sharding, _SUMMED)
    return None


_SUMMED = "partial results of fewer devices"


def sums_over_some(context: Context, before: HloSharding, after: HloSharding) -> bool:
    """Are partial sums that lie as `after` those of `before`, each summed over some devices that then share it?"""
    if not after.is_unreduced_subgroup():
        return False
    large, small = (partial_sum_groups(sharding, context.num_partitions) for sharding in (before, after))
    group_of = {device: set(group) for group in large for device in group}
    return all(group_of.get(group[0], set()) > set(group) for group in small)


def _scaled(context: Context, inst: Instruction, positions: tuple[int, ...]) -> Value | None:
    """partial sums * value (or / value), where the value need not be resharded; `positions`: where partial sums may be.

    Not narrow floats: they overflow early.
    """
    if inst.shape.element_type not in WIDE:
        return None
    for position in positions:
        partial_sums = _partial_sums(context, inst, inst.operands[position])
        # A product of partial sums with themselves is not linear in them.
        if partial_sums is None or partial_sums.reduce_kind != "add" or inst.operands[0] is inst.operands[1]:
            continue
        factor, target = array_of(context, inst.operands[1 - position]), without_partials(partial_sums.sharding)
        if context.prices.move_seconds(factor.place, target) > 0:
            continue
        whole = reshard(context, factor, target)
        operands = (partial_sums.local, whole.local) if position == 0 else (whole.local, partial_sums.local)
        return _made_of(partial_sums, inst, context.emitter.local(inst, partial_sums.local.shape, operands))
    return None


@_on_first
def _negated(context: Context, inst: Instruction, partial_sums: Value) -> Value | None:
    """- partial sums."""
    # The largest, negated, is the least of what was negated: that would be another reduction.
    if partial_sums.reduce_kind != "add":
        return None
    return _made_of(partial_sums, inst, context.emitter.local(inst, partial_sums.local.shape, (partial_sums.local,)))


@_on_first
def _widened(context: Context, inst: Instruction, partial_sums: Value) -> Value | None:
    """Partial sums of a wider float: their sum is only more exact.  (Integers wrap around in their own width.)"""
    if not (partial_sums.shape.is_floating and inst.shape.is_floating):
        return None
    if inst.shape.element_type not in _WIDER.get(partial_sums.shape.element_type, ()):
        return None
    shape = partial_sums.local.shape.with_type(inst.shape.element_type)
    return _made_of(partial_sums, inst, context.emitter.local(inst, shape, (partial_sums.local,)))


_WIDER = {"f16": ("f32", "f64"), "bf16": ("f32", "f64"), "f32": ("f64",)}


@_on_first
def _transposed(context: Context, inst: Instruction, partial_sums: Value) -> Value:
    """The partial sums' dims, and their tiles, in another order."""
    sharding, order = partial_sums.sharding, inst.dimensions
    if sharding.kind == "tiled":
        tiles = sharding.tiles.array
        sharding = _unreduced_like(tiles.transpose(*order, *range(len(order), tiles.ndim)), sharding)
    return _made_of(partial_sums, inst, context.emitter.transpose(partial_sums.local, order), sharding)


@_on_first
def _reshaped(context: Context, inst: Instruction, partial_sums: Value) -> Value | None:
    """The partial sums reshaped, where their tiles line up with the result's dims."""
    sharding = _sharding_after_reshape(partial_sums.sharding, partial_sums.shape.dims, inst.shape.dims)
    if sharding is None:
        return None
    local = context.emitter.reshape(partial_sums.local, sharding.tile_shape(inst.shape.dims))
    return _made_of(partial_sums, inst, local, sharding)


def _sharding_after_reshape(
    sharding: HloSharding, before: tuple[int, ...], after: tuple[int, ...]
) -> HloSharding | None:
    """The partial sums' sharding behind a reshape; None where tiles do not line up."""
    if sharding.kind != "tiled":
        return sharding
    tiles, whole = sharding.tiles.array, without_partials(sharding)
    carried = propagate_through_reshape(before, after, whole).meaning
    if not is_local_reshape(whole, before, carried, after):
        return None
    splits = carried.data_dims if carried.kind == "tiled" else (1,) * len(after)
    # The subgroups behind the dims stay as they are, so the devices before them must stand in the order that they had.
    if carried.kind == "tiled" and (carried.tiles.array.reshape(-1) != whole.tiles.array.reshape(-1)).any():
        return None
    return _unreduced_like(tiles.reshape(*splits, *tiles.shape[len(before) :]), sharding)


def _unreduced_like(tiles: np.ndarray, like: HloSharding) -> HloSharding:
    """A sharding of other tiles with the subgroups of `like`."""
    return HloSharding.subgroup(tiles, like.subgroup_types).meaning


@_on_first
def _reduced(context: Context, inst: Instruction, partial_sums: Value) -> Value | None:
    """A sum of partial sums over dims that no device has a part of; the largest of partial maxima, and so on."""
    signature = signature_of(inst)
    if len(inst.operands) != 2 or not isinstance(signature, Signature):
        return None
    kinds = {f.owes.kind for f in signature.factors if isinstance(f.owes, Reduce)}
    sharding = _without_dims(partial_sums.sharding, inst.dimensions)
    if kinds != {partial_sums.reduce_kind} or sharding is None:
        return None
    init = replicate(context, array_of(context, inst.operands[1]))
    # Any other one would enter on each device.
    if not is_neutral(init.local, next(iter(kinds))):
        return None
    shape = local_shape(context, inst.shape, sharding)
    return _made_of(partial_sums, inst, context.emitter.local(inst, shape, (partial_sums.local, init.local)), sharding)


def _without_dims(sharding: HloSharding, dims: tuple[int, ...]) -> HloSharding | None:
    """The sharding without dims that are whole; None where one of them is split."""
    if sharding.kind != "tiled":
        return sharding
    if any(sharding.data_dims[d] > 1 for d in dims):
        return None
    return _unreduced_like(np.squeeze(sharding.tiles.array, dims), sharding)


@_on_first
def _cut(context: Context, inst: Instruction, partial_sums: Value) -> Value | None:
    """A part of the partial sums, along dims that are whole on every device."""
    sharding, dims = partial_sums.sharding, zip(inst.slice_dims, inst.operands[0].shape.dims, strict=True)
    cut = tuple(number for number, (part, size) in enumerate(dims) if part != SliceDim(0, size, 1))
    if _without_dims(sharding, cut) is None:
        return None
    local = partial_sums.local.shape.dims
    parts = tuple(d if n in cut else SliceDim(0, local[n], 1) for n, d in enumerate(inst.slice_dims))
    shape = local_shape(context, inst.shape, sharding)
    return _made_of(partial_sums, inst, context.emitter.op("slice", shape, (partial_sums.local,), slice_dims=parts))


def _put(context: Context, inst: Instruction) -> Value | None:
    """Partial sums written into partial sums, in the same groups by then, along dims that are whole on every device:
    what a scan over layers does with each layer's gradient."""
    both = _of_same_devices(context, (_partial_sums(context, inst, operand) for operand in inst.operands[:2]))
    if both is None:
        return None
    whole, part = both
    sizes = zip(inst.shape.dims, inst.operands[1].shape.dims, strict=True)
    cut = tuple(number for number, (size, written) in enumerate(sizes) if size != written)
    if _without_dims(whole.sharding, cut) is None:
        return None
    places = [replicate(context, place).local for place in arrays_of(context, inst.operands[2:])]
    return _made_of(whole, inst, context.emitter.local(inst, whole.local.shape, (whole.local, part.local, *places)))


def _scattered(context: Context, inst: Instruction) -> Value | None:
    """Partial sums added into zeros, row by row as indices say: what experts on several devices make of tokens goes
    back to these.  Rows may be split over further devices; then the result is partial sums over those, too."""
    if len(inst.operands) != 3 or reducer_kind(inst.called[0]) != "add" or not is_neutral(inst.operands[0], "add"):
        return None
    updates = _partial_sums(context, inst, inst.operands[2])
    if updates is None or updates.reduce_kind != "add" or inst.shape.element_type not in WIDE:
        return None
    indices = array_of(context, inst.operands[1])
    shardings = _shardings_of_rows(inst, updates, indices.shape.rank)
    seconds, lies = context.prices.move_seconds, indices.place
    if shardings is None or seconds(lies, shardings[0]) > seconds(lies, REPLICATED):
        return None
    zeros = reshard(context, array_of(context, inst.operands[0]), without_partials(shardings[1]))
    places = reshard(context, indices, shardings[0])
    local = context.emitter.local(inst, zeros.local.shape, (zeros.local, places.local, updates.local))
    return Value(local, inst.shape, shardings[1], "add")


def _shardings_of_rows(inst: Instruction, updates: Value, rank: int) -> tuple[HloSharding, HloSharding] | None:
    """Of a scatter's indices, and of its result, where updates are split by rows at most, an index for each.

    Evenly: rows of padding would be added, too.
    """
    sharding, dims = updates.sharding, inst.scatter_dims
    if sharding.kind != "tiled":
        return REPLICATED, sharding
    tiles, types, ways = sharding.tiles.array, sharding.subgroup_types, sharding.data_dims
    is_by_rows = 0 not in dims.update_window_dims and dims.index_vector_dim == rank - 1 > 0
    is_by_rows &= not uneven_dims(sharding, updates.shape.dims)
    if any(n > 1 for n in ways[1:]) or types.count("unreduced") != 1 or (ways[0] > 1 and not is_by_rows):
        return None
    groups, found = tiles.shape[len(ways) :], HloSharding.partial_tile(tiles.reshape(ways[0], *(1,) * (rank - 1), -1))
    own = dict(zip(dims.scatter_indices_batching_dims, dims.input_batching_dims, strict=True)).get(0)
    if own is not None:  # each row has a part of the result to itself
        data = [ways[0] if dim == own else 1 for dim in range(inst.shape.rank)]
        return found, _unreduced_like(tiles.reshape(*data, *groups), sharding)
    at = types.index("unreduced")
    summed = np.moveaxis(tiles.reshape(ways[0], *groups), 0, at)
    sizes = (*groups[:at], ways[0] * groups[at], *groups[at + 1 :])
    made = _unreduced_like(summed.reshape((1,) * inst.shape.rank + sizes), sharding)
    return found, made


@_on_first
def _copied(_context: Context, _inst: Instruction, partial_sums: Value) -> Value:
    """A copy is often a former annotation: see `waiting_pays` for how that binds."""
    return partial_sums


Together = tuple[frozenset[int], ...]
"""Sets of operands; an op is linear in those of one set together, whatever the others are."""


def _in_all(inst: Instruction) -> Together:
    return (frozenset(range(len(inst.operands))),)


_FIRST, _FIRST_TWO = (frozenset({0}),), (frozenset({0, 1}),)


def _in_dividend(inst: Instruction) -> Together:
    return _FIRST if inst.shape.element_type in WIDE else ()


def _in_either_factor(inst: Instruction) -> Together:
    return (frozenset({0}), frozenset({1})) if inst.shape.element_type in WIDE else ()


def _if_widened(inst: Instruction) -> Together:
    before, after = inst.operands[0].shape.element_type, inst.shape.element_type
    return _FIRST if before == after or after in _WIDER.get(before, ()) else ()


def _if_it_adds(inst: Instruction) -> Together:
    return _FIRST_TWO if len(inst.operands) == 2 and reducer_kind(inst.called[0]) == "add" else ()


class DeferralRule(NamedTuple):
    """What an op means to reductions that wait."""

    on_partial_sums: OnPartialSums | None = None
    """The op on partial sums; None where these do not allow it.  No function: never."""
    is_sum: bool = False
    """Does it add up (or take the largest of, ...) its terms, so that two deferred reductions become one?"""
    makes_partial_sums: bool = False
    """May its own result be partial sums?"""
    linear_in: Together | Callable[[Instruction], Together] = ()
    """In which operands is it linear?"""


# A tuple's element may be the partial sums that a loop gives back.
_MAKES = DeferralRule(makes_partial_sums=True)
# Linear, which cutting stages asks (`linear_operands`); in the partitioner no partial sums pass.
_MOVES = DeferralRule(linear_in=_FIRST)

DEFERRAL_RULES: dict[str, DeferralRule] = {
    "add": DeferralRule(partial(_sum, kind="add"), is_sum=True, linear_in=_in_all),
    "and": DeferralRule(partial(_sum, kind="and"), is_sum=True),
    "broadcast": _MOVES,
    "concatenate": DeferralRule(linear_in=_in_all),
    "convert": DeferralRule(_widened, linear_in=_if_widened),
    "convolution": _MAKES,
    "copy": DeferralRule(_copied, linear_in=_FIRST),
    "divide": DeferralRule(partial(_scaled, positions=(0,)), linear_in=_in_dividend),
    "dot": _MAKES,
    "dynamic-slice": _MOVES,
    "dynamic-update-slice": DeferralRule(_put, is_sum=True, linear_in=_FIRST_TWO),
    "gather": _MAKES,
    "get-tuple-element": _MAKES,
    "maximum": DeferralRule(partial(_sum, kind="maximum"), is_sum=True),
    "minimum": DeferralRule(partial(_sum, kind="minimum"), is_sum=True),
    "multiply": DeferralRule(partial(_scaled, positions=(0, 1)), linear_in=_in_either_factor),
    "negate": DeferralRule(_negated, linear_in=_FIRST),
    "or": DeferralRule(partial(_sum, kind="or"), is_sum=True),
    "pad": DeferralRule(linear_in=_FIRST_TWO),
    "reduce": DeferralRule(_reduced, makes_partial_sums=True, linear_in=_if_it_adds),
    "reduce-window": _MAKES,
    "reshape": DeferralRule(_reshaped, linear_in=_FIRST),
    "reverse": _MOVES,
    "scatter": DeferralRule(_scattered, makes_partial_sums=True),
    "slice": DeferralRule(_cut, linear_in=_FIRST),
    "subtract": DeferralRule(partial(_sum, kind="add"), is_sum=True, linear_in=_in_all),
    "transpose": DeferralRule(_transposed, linear_in=_FIRST),
}
_NONE = DeferralRule()


def deferral_rule(inst: Instruction) -> DeferralRule:
    """What an instruction means to reductions that wait."""
    return DEFERRAL_RULES.get(inst.opcode, _NONE)


def is_linear(inst: Instruction) -> bool:
    """May it be done on partial sums?"""
    return deferral_rule(inst).on_partial_sums is not None


def terms_of(inst: Instruction) -> tuple[Instruction, ...]:
    """Of a sum, what it adds up; a row that is written into an array counts as added to its zeros."""
    return inst.operands[:2] if inst.opcode in STACKING else inst.operands


STACKING = frozenset({"dynamic-update-slice"})
"""Sums of which no two terms meet: a reduction that waits for them saves nothing by itself."""


def linear_operands(inst: Instruction) -> Together:
    """Sets of operands' numbers: done on terms in the place of those, and on the same others each time, the op gives
    terms of its result.

    >>> import hlosharding as hs
    >>> module = hs.load('''HloModule m
    ... ENTRY e { x = f32[4] parameter(0)  y = f32[4] add(x, x)  ROOT z = f32[4] multiply(x, y) }''')
    >>> [sorted(map(sorted, linear_operands(module.by_name(name)))) for name in "xyz"]
    [[], [[0, 1]], [[0], [1]]]
    """
    found = deferral_rule(inst).linear_in
    return found(inst) if callable(found) else found
