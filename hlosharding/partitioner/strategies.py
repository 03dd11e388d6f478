"""How each op is partitioned: a table from its opcode to a strategy, and before it the kinds of ops that need more.

Floor: partitioner.  What is not in the table is lowered by its factors; what has no signature is computed whole on
every device, with a warning that names it.

A *factor* is an extent that dims of operands and results share; a *signature* lists those of an op (`rules`).  *Wanted*
is the sharding that propagation gave a result; None: any will do.  A value is an array of the program as each device
has it (`value.py`), its place how it lies, without the array; a `DeferredReduction` is a sum whose terms devices still
hold, reduced when it is needed.  A value that each device could as well make itself has `rematerialize`: it is made in
the sharding that is wanted, and never moved.  `context.emitter` writes local ops.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from hlosharding.ir import COLLECTIVES, Instruction, fused_attention, is_custom_partitioning
from hlosharding.partitioner.choice import OpPlan
from hlosharding.partitioner.context import Context, Lower, PlanContext
from hlosharding.partitioner.control_flow import calls, loops, scan
from hlosharding.partitioner.factors import (
    FAST_ELEMENTWISE,
    Places,
    lower_aligned_elementwise,
    lower_by_signature,
    plan_by_signature,
    ring_attention,
)
from hlosharding.partitioner.movement import data_movement, generators, reshapes, special_ops
from hlosharding.partitioner.partial_sums import pass_through
from hlosharding.partitioner.regions import custom_partitioning, host_offload, infeed_outfeed, manual, one_device
from hlosharding.partitioner.resharding import is_dynamic, let_be_remade, lower_dynamic
from hlosharding.partitioner.value import AnyValue, DeferredReduction, Value, parts_of
from hlosharding.sharding import HloSharding

Planner = Callable[[PlanContext, Instruction, Places, HloSharding | None], OpPlan | None]
"""From an op, how its operands lie and what is wanted to how it is done, and its price; None: nothing is decided."""


class OpKind(NamedTuple):
    """Ops that are told by more than their opcode, and what writes them."""

    opcodes: frozenset[str] | None
    """None: all."""
    holds: Callable[[Context, Instruction], bool]
    lower: Lower


class Strategy(NamedTuple):
    """How ops of an opcode are partitioned."""

    lower: Lower
    """Writes an op; its operands are partitioned by then."""
    plan: Planner = plan_by_signature
    """What is decided of one with an array as result, before anything is written: `lower` asks for it where operands
    lie, and `global_choice` where they might."""


def _always(_context: Context, _inst: Instruction) -> bool:
    return True


_CALLS = frozenset({"custom-call"})

OP_KINDS = (
    OpKind(_CALLS, lambda _, inst: manual.is_boundary_call(inst), manual.cross_boundary),
    # Transfers name devices of the whole program, in manual regions, too.
    OpKind(frozenset({"send", "recv"}), _always, one_device.start_transfer),
    OpKind(frozenset({"send-done", "recv-done"}), _always, one_device.finish_transfer),
    OpKind(None, manual.is_per_device, manual.take_over),
    # Of a region that is manual along some axes: within its groups, beside what is not manual there.
    OpKind(COLLECTIVES, lambda context, _: context.manual_groups is not None, manual.communicate),
    OpKind(_CALLS, lambda _, inst: host_offload.is_move(inst), host_offload.move),
    OpKind(_CALLS, lambda context, inst: one_device.acting_device(context, inst) is not None, one_device.act_once),
    OpKind(_CALLS, lambda _, inst: fused_attention(inst) is not None, ring_attention.lower),
    OpKind(None, is_dynamic, lower_dynamic),
    OpKind(frozenset({"call"}), lambda _, inst: is_custom_partitioning(inst), custom_partitioning.lower_marked),
)
"""Of these the first that holds, before `STRATEGIES` is asked."""

STRATEGIES: dict[str, Strategy] = {
    "tuple": Strategy(special_ops.pack_elements),
    "get-tuple-element": Strategy(special_ops.take_element),
    "copy": Strategy(special_ops.copy),
    "convert": Strategy(special_ops.convert),
    "all-reduce": Strategy(special_ops.all_reduce),
    "constant": Strategy(generators.constant, generators.plan_nothing),
    "iota": Strategy(generators.iota, generators.plan_nothing),
    "broadcast": Strategy(generators.broadcast, generators.plan_broadcast),
    "rng": Strategy(generators.random),
    "reshape": Strategy(reshapes.reshape, reshapes.plan_reshape),
    "slice": Strategy(data_movement.move, data_movement.plan_movement),
    "pad": Strategy(data_movement.move, data_movement.plan_movement),
    "concatenate": Strategy(data_movement.move, data_movement.plan_movement),
    "reverse": Strategy(data_movement.move, data_movement.plan_movement),
    "dynamic-slice": Strategy(data_movement.move, data_movement.plan_movement),
    "dynamic-update-slice": Strategy(data_movement.move, data_movement.plan_movement),
    "while": Strategy(loops.while_loop),
    "scan": Strategy(scan.scan),
    "conditional": Strategy(calls.conditional),
    "call": Strategy(calls.call),
    "opt-barrier": Strategy(calls.barrier),
    "infeed": Strategy(infeed_outfeed.infeed),
    "outfeed": Strategy(infeed_outfeed.outfeed),
    "after-all": Strategy(calls.token),
    "add-dependency": Strategy(calls.token),
    "partition-id": Strategy(calls.per_device),
    "replica-id": Strategy(calls.per_device),
}
"""By opcode."""
_BY_FACTORS = Strategy(lower_by_signature)


def plan_of(context: PlanContext, inst: Instruction, operands: Places, wanted: HloSharding | None) -> OpPlan | None:
    """How an op with an array as result would be partitioned, were its operands to lie so; None: nothing is decided.

    By opcode alone: whether an op is of one of the `OP_KINDS` is known on the walk.
    """
    return STRATEGIES.get(inst.opcode, _BY_FACTORS).plan(context, inst, operands, wanted)


@cache
def _possible_kinds(opcode: str) -> tuple[OpKind, ...]:
    """Of most opcodes the two without opcodes; remembered, for every instruction asks."""
    return tuple(kind for kind in OP_KINDS if kind.opcodes is None or opcode in kind.opcodes)


def lower(context: Context, inst: Instruction) -> AnyValue | DeferredReduction:
    """Partition one instruction whose operands are partitioned.

    First what needs no decision (elementwise, all in one sharding, outside of manual regions), then what partial sums
    pass, then the tables.
    """
    # Asked first, for nothing is decided of these: that saved a fifth of partitioning.
    if inst.opcode in FAST_ELEMENTWISE and (value := lower_aligned_elementwise(context, inst)) is not None:
        return let_be_remade(context, inst, value)
    groups = manual.region_of(context, inst) if context.decisions.has_manual_groups else None
    written = context.emitter.written
    made = _pass_or_lower(context if groups is None else context.inside(groups), inst)
    for part in () if type(made) is Value else parts_of(made):
        if isinstance(part, DeferredReduction):
            context.emitter.note_partial_sums(part.partial.local, written)
    _note_for_overrides(context, inst, made)
    if groups is not None:
        return manual.stamped(made, groups)
    return let_be_remade(context, inst, made) if type(made) is Value else made


def _pass_or_lower(context: Context, inst: Instruction) -> AnyValue | DeferredReduction:
    """By the tables, unless partial sums pass through the op and are reduced later."""
    context.emitter.lowering(inst)
    deferred = pass_through(context, inst)
    if deferred is not None:
        return deferred
    for kind in _possible_kinds(inst.opcode):
        if kind.holds(context, inst):
            return kind.lower(context, inst)
    return STRATEGIES.get(inst.opcode, _BY_FACTORS).lower(context, inst)


def _note_for_overrides(context: Context, inst: Instruction, made: AnyValue | DeferredReduction) -> None:
    """For the list of values that are sharded otherwise than propagated (`Partitioned.overrides`): how what has no
    sharding of its own came to lie, and what was annotated, for its readers may bypass it."""
    if type(made) is DeferredReduction or inst.id not in context.shardings:
        context.emitter.program.undecided[inst] = made
    elif type(made) is Value and inst.name in context.decisions.annotated and made.rematerialize is None:
        context.emitter.program.annotated[inst] = made
