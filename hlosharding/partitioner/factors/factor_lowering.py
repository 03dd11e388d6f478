"""Lowering an op with a signature: pick a split, bring the operands there, compute the piece, settle what is owed.

Floor: partitioner.
"""

from __future__ import annotations

from hlosharding.ir import Instruction, Shape
from hlosharding.partitioner.broadcast_dims import broadcast_dims_of_results
from hlosharding.partitioner.choice import Choice, Lowering
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.factors.collective_matmul import collective_matmul_for, multiply_in_steps
from hlosharding.partitioner.factors.custom_reduction import candidates_signature, combined, combining_of
from hlosharding.partitioner.factors.factor_choice import Problem, choose, splittable
from hlosharding.partitioner.factors.pieces import Piece, compute_piece, is_computed_as_is
from hlosharding.partitioner.factors.windows import HALO_OPCODES, mirrored_dims, taps_signature, windows_of
from hlosharding.partitioner.region_values import arrays_of, pack, unpack, value_of
from hlosharding.partitioner.resharding import local_shape, replicate, reshard, to_wanted
from hlosharding.partitioner.value import AnyValue, DeferredReduction, Value, from_leaves, leaves_of, map_leaves
from hlosharding.rules import Reduce, Signature, iota_signature, signature_of
from hlosharding.sharding import REPLICATED, HloSharding, member_numbers, uneven_dims, without_partials
from hlosharding.spmd import identity, mask_padding, only_first

# Opcodes whose piece can shift row indices (partitioner/indexing.py).
INDEXED_OPCODES = frozenset({"gather", "scatter", "dynamic-slice", "dynamic-update-slice"})


def lower_by_signature(context: Context, inst: Instruction) -> AnyValue | DeferredReduction:
    """By the factors of its signature; whole on every device, with a warning, where it has none."""
    signature = signature_of(inst)
    if isinstance(signature, Signature):
        return lower_by_factors(context, inst, signature)
    return compute_whole(context, inst, getattr(signature, "reason", "no rule is known for it"))


def lower_by_factors(context: Context, inst: Instruction, signature: Signature) -> AnyValue | DeferredReduction:
    """The generic strategy.  A partial array is left deferred: its user may want less than the sum for all."""
    values = arrays_of(context, inst.operands)
    wanted = _wanted(context, inst)
    lowering = _lowering(context, inst, signature, values, wanted)
    if lowering.is_op_itself:
        return _op_itself(context, inst, lowering, values, wanted[0])
    results = _compute(context, inst, lowering, values)
    if results[0].reduce_kind is not None and not inst.shape.is_tuple:
        return DeferredReduction(results[0], wanted[0])
    reason = _reason(lowering.choice)
    made = [to_wanted(context, v, w, reason) for v, w in zip(results, wanted, strict=True)]
    return from_leaves(inst.shape, made)


def _op_itself(
    context: Context, inst: Instruction, lowering: Lowering, values: list[Value], wanted: HloSharding | None
) -> Value:
    """The op on local operands is the piece, and nothing is owed.  Most ops are such: the shortest way."""
    choice = lowering.choice
    operands = [
        v.local if v.sharding is target else reshard(context, v, target, f"operand {number}").local
        for number, (v, target) in enumerate(zip(values, choice.operands, strict=True))
    ]
    local = context.emitter.local(inst, lowering.shapes[0], operands)
    made = Value(local, inst.shape, choice.results[0], broadcast_dims=lowering.broadcast_dims[0])
    return made if made.sharding is wanted else to_wanted(context, made, wanted)


def choice_of(context: Context, inst: Instruction, signature: Signature, values: list[Value]) -> Choice:
    """How the generic strategy would split an instruction with these operands."""
    return _lowering(context, inst, signature, values, context.wanted_leaves(inst)).choice


def _wanted(context: Context, inst: Instruction) -> tuple[HloSharding | None, ...]:
    """The sharding of each result leaf; where a tuple has none, that of the element taken from it."""
    wanted = context.wanted_leaves(inst)
    if not inst.shape.is_tuple or None not in wanted:
        return wanted
    taken = {u.tuple_index: context.wanted_leaves(u)[0] for u in inst.users if u.opcode == "get-tuple-element"}
    return tuple(taken.get(n) if w is None else w for n, w in enumerate(wanted))


def _reason(choice: Choice) -> str:
    return f"{choice.reduce_kind} of partial results" if choice.reduce_kind else "reshard result"


def _lowering(
    context: Context,
    inst: Instruction,
    signature: Signature,
    values: list[Value],
    wanted: tuple[HloSharding | None, ...],
) -> Lowering:
    """The cheapest split over all readings of the op; made once for equal ops on equally sharded operands."""
    known, counted = context.decisions.lowerings, iota_signature(inst, signature)
    # Identities and spellings: no call of a sharding's own hash.
    asked = [None if w is None else w.uid for w in wanted]
    given = [(v.shape, v.sharding.uid, v.reduce_kind, v.is_at_hand, v.broadcast_dims) for v in values]
    key = (id(signature), id(counted), inst.opcode, *asked, *given)
    lowering = known.get(key)
    if lowering is None:
        candidates = candidates_signature(inst, signature, values[0].sharding) if values else None
        others = counted, candidates, taps_signature(inst, signature)
        readings = [signature, *(s for s in others if s is not None)]
        broadcast_dims = broadcast_dims_of_results(inst, signature, [v.broadcast_dims for v in values])
        choice = choose(_problems(inst, readings, values, wanted, broadcast_dims), context.prices)
        shapes = tuple(local_shape(context, s, r) for s, r in zip(inst.shape.leaves, choice.results, strict=True))
        lowering = known[key] = _follow_up(
            inst, choice, shapes, broadcast_dims, _masked_dims(inst, choice, values), readings
        )
    return lowering


def _follow_up(
    inst: Instruction,
    choice: Choice,
    shapes: tuple[Shape, ...],
    broadcast_dims: tuple[tuple[int, ...], ...],
    masked: tuple[tuple[int, ...], ...],
    readings: list[Signature],
) -> Lowering:
    is_plain = not choice.deferred and not any(masked)
    itself = is_plain and choice.reduce_kind is None and is_computed_as_is(inst.opcode) and not inst.shape.is_tuple
    return Lowering(choice, shapes, masked, readings, is_plain, broadcast_dims, itself)


def _problems(
    inst: Instruction,
    readings: list[Signature],
    values: list[Value],
    wanted: tuple[HloSharding | None, ...],
    broadcast_dims: tuple[tuple[int, ...], ...],
) -> list[Problem]:
    shapes, shardings = tuple(v.shape for v in values), tuple(v.sharding for v in values)
    kinds, rematerialized = tuple(v.reduce_kind for v in values), tuple(v.is_at_hand for v in values)
    return [
        Problem(
            s,
            shapes,
            shardings,
            kinds,
            rematerialized,
            inst.shape.leaves,
            wanted,
            _allowed(inst, s),
            windows_of(inst, s),
            mirrored_dims(inst, s),
            tuple(v.broadcast_dims for v in values),
            broadcast_dims,
        )
        for s in readings
    ]


def _masked_dims(inst: Instruction, choice: Choice, values: list[Value]) -> tuple[tuple[int, ...], ...]:
    """Per operand the uneven dims whose padding the op would mix in.  Windows see to their own."""
    windows = windows_of(inst, choice.signature)
    mixed = [isinstance(f.owes, Reduce) and w is None for f, w in zip(choice.signature.factors, windows, strict=True)]
    return tuple(
        tuple(
            d
            for d in uneven_dims(sharding, value.shape.dims)
            if any(mixed[f] for f in choice.signature.operands[index][d])
        )
        for index, (value, sharding) in enumerate(zip(values, choice.operands, strict=True))
    )


def _allowed(inst: Instruction, signature: Signature) -> frozenset[int]:
    allowed = splittable(
        signature,
        halo=inst.opcode in HALO_OPCODES,
        indexed=inst.opcode in INDEXED_OPCODES,
        any_reducer=combining_of(inst) is not None,
    )
    if any(leaf.element_type in _NO_ADDENDS for leaf in inst.shape.leaves):
        return frozenset(n for n in allowed if not isinstance(signature.factors[n].owes, Reduce))
    return allowed


# Sums in these depend on their order in the first digit already, and XLA's CPU all-reduce drops the NaN of f8e8m0fnu.
_NO_ADDENDS = frozenset({"f4e2m1fn", "f8e8m0fnu"})


def _compute(context: Context, inst: Instruction, lowering: Lowering, values: list[Value]) -> list[Value]:
    choice, ring = lowering.choice, collective_matmul_for(context, inst, lowering, values)
    travels = None if ring is None else ring.operand
    moved = [
        value if value.sharding is target or number == travels else reshard(context, value, target, f"operand {number}")
        for number, (value, target) in enumerate(zip(values, choice.operands, strict=True))
    ]
    if lowering.is_plain:
        operands = tuple(v.local for v in moved)
    else:
        operands = tuple(_prepared(context, inst, i, v, lowering) for i, v in enumerate(moved))
    if ring is not None:
        return [multiply_in_steps(context, inst, lowering, ring, operands)]
    piece = Piece(inst, choice, operands, lowering.shapes)
    local = compute_piece(context.emitter, piece)
    if choice.reduce_kind == "other":
        leaves = zip(combined(context.emitter, piece, local), inst.shape.leaves, choice.results, strict=True)
        return [Value(leaf, shape, without_partials(partial)) for leaf, shape, partial in leaves]
    if not inst.shape.is_tuple:
        return [
            Value(local, inst.shape, choice.results[0], choice.reduce_kind, broadcast_dims=lowering.broadcast_dims[0])
        ]
    made = leaves_of(unpack(context, local, inst.shape, list(choice.results)))
    for value, broadcast_dims in zip(made, lowering.broadcast_dims, strict=True):
        value.reduce_kind, value.broadcast_dims = choice.reduce_kind, broadcast_dims
    return list(made)


def _prepared(context: Context, inst: Instruction, index: int, value: Value, lowering: Lowering) -> Instruction:
    """An operand as the piece may use it: padding masked where it would be mixed in, `once` operands on one member."""
    choice, local = lowering.choice, value.local
    factors = choice.signature.factors
    for factor in choice.deferred:
        owes = factors[factor].owes
        # An initial value of an unknown reducer is its identity, as XLA demands: it may enter every piece.
        if isinstance(owes, Reduce) and index in owes.once and owes.kind != "other":
            return only_first(
                context.emitter, local, member_numbers(choice.results[0], context.num_partitions), owes.kind
            )
    dims = lowering.masked[index]
    if not dims:
        return local
    kind = next(o.kind for f in factors if isinstance(o := f.owes, Reduce))
    if kind == "other":
        how = combining_of(inst)
        assert how is not None, "only such ops are split where partial results are of an unknown kind"
        fill = how.fill(context, inst, index)
        return mask_padding(context.emitter, local, value.shape, value.sharding, dims, fill)
    return mask_padding(context.emitter, local, value.shape, value.sharding, dims, identity(kind, value.shape))


def compute_whole(context: Context, inst: Instruction, why: str) -> AnyValue:
    """The last resort: every device computes the op on whole operands.  Said aloud when it costs anything."""
    warn_of_gathers(context, inst, why)
    moved = [map_leaves(value_of(context, o), lambda v: replicate(context, v)) for o in inst.operands]
    local = context.emitter.local(inst, inst.shape, [pack(context, m) for m in moved])
    whole = unpack(context, local, inst.shape, [REPLICATED] * len(inst.shape.leaves))
    wanted = context.wanted_leaves(inst)
    return from_leaves(inst.shape, [to_wanted(context, v, w) for v, w in zip(leaves_of(whole), wanted, strict=True)])


def warn_of_gathers(context: Context, inst: Instruction, why: str) -> None:
    """Say that an op takes whole operands, and what that gathers; nothing where it gathers nothing."""
    cost = sum(
        leaf.shape.byte_size
        for o in inst.operands
        for leaf in leaves_of(value_of(context, o))
        if leaf.sharding is not REPLICATED
    )
    if cost:
        name = f"{inst.opcode} {inst.custom_call_target}".strip()
        context.emitter.program.warnings.append(
            f"{name} at {inst.location or '%' + inst.name} is not partitioned: {why}; replicated, gathers {cost} bytes"
        )
