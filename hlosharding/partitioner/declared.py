"""Lowering an op with a signature: pick a split, bring the operands there, compute the piece, settle what is owed.

Floor: partitioner.
"""

from __future__ import annotations

from hlosharding.ir import Instruction
from hlosharding.partitioner.choice import Choice, Lowering
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.generic import Problem, choose, splittable
from hlosharding.partitioner.masking import identity, mask_padding, only_first
from hlosharding.partitioner.pieces import Piece, compute_piece
from hlosharding.partitioner.projection import REPLICATED, addend_groups, member_numbers, uneven_dims, without_partials
from hlosharding.partitioner.value import AnyValue, Pending, Value, from_leaves, leaves_of
from hlosharding.partitioner.windowed import HALO_OPCODES, taps_signature, windows_of
from hlosharding.rules import Reduce, Signature
from hlosharding.sharding import HloSharding

# Opcodes whose piece can shift row indices (partitioner/indexing.py).
INDEXED_OPCODES = frozenset({"gather", "scatter", "dynamic-slice", "dynamic-update-slice"})


def lower_declared(context: Context, inst: Instruction, signature: Signature) -> AnyValue | Pending:
    """The generic strategy.  A partial array is left pending: its user may want less than the sum for all."""
    values = [context.array(o) for o in inst.operands]
    wanted = context.wanted_leaves(inst)
    lowering = _lowering(context, inst, signature, values, wanted)
    results = _compute(context, inst, lowering, values)
    if results[0].reduce_kind is not None and not inst.shape.is_tuple:
        return Pending(results[0], wanted[0])
    reason = _reason(lowering.choice)
    made = [context.settle(v, w, reason) for v, w in zip(results, wanted, strict=True)]
    return from_leaves(inst.shape, made)


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
    known = context.decisions.lowerings
    given = ((v.shape, v.sharding, v.reduce_kind, v.remake is None) for v in values)
    key = (id(signature), inst.opcode, wanted, *given)
    lowering = known.get(key)
    if lowering is None:
        choice = choose(_problems(inst, signature, values, wanted), context.prices)
        shapes = tuple(context.local_shape(s, r) for s, r in zip(inst.shape.leaves, choice.results, strict=True))
        lowering = known[key] = Lowering(choice, shapes, _masked_dims(choice, values), signature)
    return lowering


def _problems(
    inst: Instruction, signature: Signature, values: list[Value], wanted: tuple[HloSharding | None, ...]
) -> list[Problem]:
    shapes, shardings = tuple(v.shape for v in values), tuple(v.sharding for v in values)
    kinds, remade = tuple(v.reduce_kind for v in values), tuple(v.remake is not None for v in values)
    return [
        Problem(s, shapes, shardings, kinds, remade, inst.shape.leaves, wanted, _allowed(inst, s), windows_of(inst, s))
        for s in (signature, taps_signature(inst, signature))
        if s is not None
    ]


def _masked_dims(choice: Choice, values: list[Value]) -> tuple[tuple[int, ...], ...]:
    """Per operand the uneven dims whose padding the op would mix in."""
    factors = choice.signature.factors
    return tuple(
        tuple(
            d
            for d in uneven_dims(sharding, value.shape.dims)
            if any(isinstance(factors[f].owes, Reduce) for f in choice.signature.operands[index][d])
        )
        for index, (value, sharding) in enumerate(zip(values, choice.operands, strict=True))
    )


def _allowed(inst: Instruction, signature: Signature) -> frozenset[int]:
    return splittable(
        signature,
        halo=inst.opcode in HALO_OPCODES,
        indexed=inst.opcode in INDEXED_OPCODES,
        any_reducer=inst.opcode == "reduce",
    )


def _compute(context: Context, inst: Instruction, lowering: Lowering, values: list[Value]) -> list[Value]:
    choice = lowering.choice
    moved = [
        value if value.sharding is target else context.reshard(value, target, f"operand {number}")
        for number, (value, target) in enumerate(zip(values, choice.operands, strict=True))
    ]
    if lowering.is_plain:
        operands = tuple(v.local for v in moved)
    else:
        operands = tuple(_prepared(context, inst, i, v, lowering) for i, v in enumerate(moved))
    local = compute_piece(context.emitter, Piece(inst, choice, operands, lowering.shapes))
    if choice.reduce_kind == "other":
        return _combined(context, inst, choice, local, operands)
    if not inst.shape.is_tuple:
        return [Value(local, inst.shape, choice.results[0], choice.reduce_kind)]
    made = leaves_of(context.unpack(local, inst.shape, list(choice.results)))
    for value in made:
        value.reduce_kind = choice.reduce_kind
    return list(made)


def _combined(
    context: Context, inst: Instruction, choice: Choice, local: Instruction, operands: tuple[Instruction, ...]
) -> list[Value]:
    """Partial results of a reduction that only the op's own reducer can combine: gathered and reduced once more."""
    emitter, groups = context.emitter, addend_groups(choice.results[0], context.num_partitions)
    emitter.reason = "combine partial results"
    parts = leaves_of(context.unpack(local, inst.shape, list(choice.results)))
    stacked = [emitter.all_gather(emitter.reshape(p.local, (1, *p.local.shape.dims)), 0, groups) for p in parts]
    inits = operands[len(operands) // 2 :]
    total = emitter.local(inst, local.shape, (*stacked, *inits), dimensions=(0,))
    return list(leaves_of(context.unpack(total, inst.shape, [without_partials(r) for r in choice.results])))


def _prepared(context: Context, inst: Instruction, index: int, value: Value, lowering: Lowering) -> Instruction:
    """An operand as the piece may use it: padding masked where it would be mixed in, `once` operands on one member."""
    choice, local = lowering.choice, value.local
    factors = choice.signature.factors
    for factor in choice.owed:
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
        init = context.whole(context.array(inst.operands[len(inst.operands) // 2 + index])).local
        return mask_padding(context.emitter, local, value.shape, value.sharding, dims, init)
    return mask_padding(context.emitter, local, value.shape, value.sharding, dims, identity(kind, value.shape))


def compute_whole(context: Context, inst: Instruction, why: str) -> AnyValue:
    """The last resort: every device computes the op on whole operands.  Said aloud when it costs anything."""
    moved = [context.map_leaves(context.value(o), context.whole) for o in inst.operands]
    cost = sum(
        leaf.shape.byte_size
        for o in inst.operands
        for leaf in leaves_of(context.value(o))
        if leaf.sharding is not REPLICATED
    )
    if cost:
        name = f"{inst.opcode} {inst.custom_call_target}".strip()
        context.emitter.program.warnings.append(
            f"{name} at {inst.location or '%' + inst.name} is not partitioned: {why}; replicated, gathers {cost} bytes"
        )
    local = context.emitter.local(inst, inst.shape, [context.pack(m) for m in moved])
    whole = context.unpack(local, inst.shape, [REPLICATED] * len(inst.shape.leaves))
    wanted = context.wanted_leaves(inst)
    return from_leaves(inst.shape, [context.settle(v, w) for v, w in zip(leaves_of(whole), wanted, strict=True)])
