"""Partial results that wait: a reduction is paid when somebody needs the sum, not when the addends are made.

Floor: partitioner.  A pending value whose only user is linear passes through it as addends: two gradients that are
added cost one all-reduce, and a reduction meets the sharding its user wants, so that it can be a reduce-scatter.  Never
through a convert (a narrow sum of addends overflows where the narrowed sum does not; a widened one travels at twice the
bytes), and never where the later value is larger.
"""

from __future__ import annotations

from collections.abc import Callable

from hlosharding.ir import Instruction
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.projection import without_partials
from hlosharding.partitioner.value import Pending, Value
from hlosharding.sharding import transpose_sharding


def pass_through(context: Context, inst: Instruction) -> Pending | None:
    """The instruction on addends, if it is linear in pending operands and nothing needs their sums; else None."""
    rule = _LINEAR.get(inst.opcode)
    if rule is None or not any(isinstance(context.values.get(o), Pending) for o in inst.operands):
        return None
    if not _waiting_pays(context, inst):
        return None
    made = rule(context, inst)
    return None if made is None else Pending(made, context.wanted_leaves(inst)[0])


def _waiting_pays(context: Context, inst: Instruction) -> bool:
    """Does a later op on the way add up several pending values, or want less than the sum for all?

    If not, the reduction is made at once: then what follows it can be fused into its readers.
    """
    tiles = max(_tiles(context, o) for o in inst.operands if isinstance(context.values.get(o), Pending))
    while True:
        if inst.opcode in _SUMS or _tiles(context, inst) > tiles:
            return True
        if len(inst.users) != 1 or inst.users[0].opcode not in _LINEAR or inst.is_root:
            return False
        inst = inst.users[0]


def _tiles(context: Context, inst: Instruction) -> int:
    wanted = context.wanted(inst)
    return wanted.num_tiles if wanted is not None else 1


def _addends(context: Context, inst: Instruction, operand: Instruction) -> Value | None:
    """The unreduced value of an operand that nobody but `inst` uses."""
    value = context.values.get(operand)
    if not isinstance(value, Pending) or value.settled is not None or operand.users != [inst] or operand.is_root:
        return None
    return value.partial


def _sum(context: Context, inst: Instruction) -> Value | None:
    """addends + addends: of the same groups, and of the reduction that the op itself is."""
    left, right = (_addends(context, inst, o) for o in inst.operands)
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
    """addends * whole (or / whole), where the whole value need not move.  Not narrow floats: they overflow early."""
    if inst.shape.element_type not in ("f32", "f64", "bf16", "c64", "c128"):
        return None
    for position in (0, 1) if inst.opcode == "multiply" else (0,):
        addends = _addends(context, inst, inst.operands[position])
        if addends is None or addends.reduce_kind != "add" or inst.operands[0] is inst.operands[1]:
            continue
        factor, target = context.array(inst.operands[1 - position]), without_partials(addends.sharding)
        if context.price(factor, target) > 0:
            continue
        whole = context.reshard(factor, target)
        operands = (addends.local, whole.local) if position == 0 else (whole.local, addends.local)
        return Value(context.emitter.local(inst, addends.local.shape, operands), inst.shape, addends.sharding, "add")
    return None


def _negated(context: Context, inst: Instruction) -> Value | None:
    addends = _addends(context, inst, inst.operands[0])
    if addends is None or addends.reduce_kind != "add":
        return None
    return Value(
        context.emitter.local(inst, addends.local.shape, (addends.local,)), inst.shape, addends.sharding, "add"
    )


def _transposed(context: Context, inst: Instruction) -> Value | None:
    addends = _addends(context, inst, inst.operands[0])
    if addends is None or addends.sharding.kind != "tiled":
        return None
    sharding = transpose_sharding(addends.sharding, inst.dimensions).meaning
    local = context.emitter.transpose(addends.local, inst.dimensions)
    return Value(local, inst.shape, sharding, addends.reduce_kind)


_SUMS = frozenset({"add", "subtract", "maximum", "minimum", "and", "or"})
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
    "transpose": _transposed,
}
