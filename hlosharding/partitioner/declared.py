"""Lowering an op with a signature: pick a split, bring the operands there, compute the piece, settle what is owed.

Floor: partitioner.
"""

from __future__ import annotations

from typing import Any

from hlosharding.ir import Instruction
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.generic import Choice, Problem, choose, splittable
from hlosharding.partitioner.masking import identity, mask_padding, only_first
from hlosharding.partitioner.pieces import Piece, compute_piece
from hlosharding.partitioner.projection import REPLICATED, member_numbers, uneven_dims
from hlosharding.partitioner.value import AnyValue, Value, from_leaves, leaves_of
from hlosharding.partitioner.windowed import HALO_OPCODES, windows_of
from hlosharding.rules import Reduce, Signature
from hlosharding.sharding import HloSharding

# Opcodes whose piece can shift row indices (partitioner/indexing.py).
INDEXED_OPCODES = frozenset({"gather", "scatter"})


def lower_declared(context: Context, inst: Instruction, signature: Signature) -> AnyValue:
    """The generic strategy."""
    values = [context.array(o) for o in inst.operands]
    wanted = context.wanted_leaves(inst)
    choice = _choice(context, inst, signature, values, wanted)
    results = _compute(context, inst, signature, choice, values)
    made = [context.settle(v, w, _reason(choice)) for v, w in zip(results, wanted, strict=True)]
    return from_leaves(inst.shape, made)


def _reason(choice: Choice) -> str:
    return f"{choice.reduce_kind} of partial results" if choice.reduce_kind else "reshard result"


def _choice(
    context: Context, inst: Instruction, signature: Signature, values: list[Value], wanted: tuple[HloSharding | None, ...]
) -> Choice:
    shapes = tuple(o.shape for o in inst.operands)
    shardings = tuple(v.sharding for v in values)
    halo, indexed = inst.opcode in HALO_OPCODES, inst.opcode in INDEXED_OPCODES
    key: Any = (id(signature), halo, indexed, shapes, shardings, tuple(v.reduce_kind for v in values), wanted)
    choice = context.decisions.choices.get(key)
    if choice is None:
        allowed = splittable(signature, halo=halo, indexed=indexed)
        problem = Problem(
            signature, shapes, shardings, tuple(v.reduce_kind for v in values), inst.shape.leaves, wanted, allowed,
            windows_of(inst, signature),
        )  # fmt: skip
        choice = choose(problem, context.prices)
        context.decisions.choices[key] = choice
        context.decisions.kept.append(signature)
    return choice


def _compute(
    context: Context, inst: Instruction, signature: Signature, choice: Choice, values: list[Value]
) -> list[Value]:
    moved = [
        context.reshard(v, target, f"operand {i}")
        for i, (v, target) in enumerate(zip(values, choice.operands, strict=True))
    ]
    operands = tuple(_prepared(context, i, v, signature, choice) for i, v in enumerate(moved))
    leaves = inst.shape.leaves
    shapes = tuple(context.local_shape(s, r) for s, r in zip(leaves, choice.results, strict=True))
    piece = Piece(inst, signature, choice, operands, shapes)
    local = compute_piece(context.emitter, piece)
    made = leaves_of(context.unpack(local, inst.shape, list(choice.results)))
    for value in made:
        value.reduce_kind = choice.reduce_kind
    return list(made)


def _prepared(context: Context, index: int, value: Value, signature: Signature, choice: Choice) -> Instruction:
    """An operand as the piece may use it: padding masked where it would be mixed in, `once` operands on one member."""
    local = value.local
    for factor in choice.owed:
        owes = signature.factors[factor].owes
        if isinstance(owes, Reduce) and index in owes.once:
            return only_first(context.emitter, local, _members(context, choice), owes.kind)
    dims = tuple(
        d
        for d in uneven_dims(value.sharding, value.shape.dims)
        for f in signature.operands[index][d]
        if isinstance(signature.factors[f].owes, Reduce)
    )
    if not dims:
        return local
    kind = next(o.kind for f in signature.factors if isinstance(o := f.owes, Reduce))
    return mask_padding(context.emitter, local, value.shape, value.sharding, dims, identity(kind, value.shape))


def _members(context: Context, choice: Choice) -> tuple[int, ...]:
    return member_numbers(choice.results[0], context.num_partitions)


def compute_whole(context: Context, inst: Instruction, why: str) -> AnyValue:
    """The last resort: every device computes the op on whole operands.  Said aloud when it costs anything."""
    moved = [context.map_leaves(context.value(o), context.whole) for o in inst.operands]
    cost = sum(leaf.shape.byte_size for o in inst.operands for leaf in leaves_of(context.value(o)) if leaf.sharding is not REPLICATED)
    if cost:
        name = f"{inst.opcode} {inst.custom_call_target}".strip()
        context.emitter.program.warnings.append(
            f"{name} at {inst.location or '%' + inst.name} is not partitioned: {why}; replicated, gathers {cost} bytes"
        )
    attributes: dict[str, Any] = {"constrain_layout": False} if inst.opcode == "custom-call" else {}
    local = context.emitter.local(inst, inst.shape, [context.pack(m) for m in moved], **attributes)
    whole = context.unpack(local, inst.shape, [REPLICATED] * len(inst.shape.leaves))
    wanted = context.wanted_leaves(inst)
    return from_leaves(inst.shape, [context.settle(v, w) for v, w in zip(leaves_of(whole), wanted, strict=True)])


