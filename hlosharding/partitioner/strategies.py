"""How each op is partitioned: one table from the kind of an op, mostly its opcode, to a strategy.

Floor: partitioner.  What is not in the table is lowered by its factors; what has no signature is computed whole on
every device, with a warning that names it.

A *factor* is an extent that dims of operands and results share; a *signature* lists those of an op (`rules`).  *Wanted*
is the sharding that propagation gave a result; None: any will do.  A value is an array of the program as each device
has it (`value.py`); `context.emitter` writes local ops.
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
"""Of an op, how its operands lie and what is wanted: how it is done, and at what price; None: nothing is decided."""


class OpKind(NamedTuple):
    """A kind of op that is more than its opcode."""

    name: str
    opcodes: frozenset[str] | None
    """None: all."""
    holds: Callable[[Context, Instruction], bool]


_CALLS = frozenset({"custom-call"})


class Strategy(NamedTuple):
    """How ops of a kind are partitioned."""

    lower: Lower
    """Writes an op; its operands are partitioned by then."""
    plan: Planner = plan_by_signature
    """What is decided of one with an array as result, before anything is written: `global_choice` asks, by opcode."""


OP_KINDS = (
    OpKind("boundary of a manual region", _CALLS, lambda _, inst: manual.is_boundary_call(inst)),
    OpKind("start of a transfer", frozenset({"send", "recv"}), lambda _context, _inst: True),
    OpKind("end of a transfer", frozenset({"send-done", "recv-done"}), lambda _context, _inst: True),
    OpKind("op of a manual region", None, manual.is_per_device),
    OpKind("collective between manual groups", COLLECTIVES, lambda context, _: context.manual_groups is not None),
    OpKind("move to or from the host", _CALLS, lambda _, inst: host_offload.is_move(inst)),
    OpKind(
        "custom call on one device", _CALLS, lambda context, inst: one_device.acting_device(context, inst) is not None
    ),
    OpKind("flash attention", _CALLS, lambda _, inst: fused_attention(inst) is not None),
    OpKind("array of dynamic size", None, is_dynamic),
    OpKind("call under custom_partitioning", frozenset({"call"}), lambda _, inst: is_custom_partitioning(inst)),
)
"""Asked in this order, before the opcode."""

STRATEGIES: dict[str, Strategy] = {
    "boundary of a manual region": Strategy(manual.cross_boundary),
    "start of a transfer": Strategy(one_device.start_transfer),
    "end of a transfer": Strategy(one_device.finish_transfer),
    "op of a manual region": Strategy(manual.take_over),
    "collective between manual groups": Strategy(manual.communicate),
    "move to or from the host": Strategy(host_offload.move),
    "custom call on one device": Strategy(one_device.act_once),
    "flash attention": Strategy(ring_attention.lower),
    "array of dynamic size": Strategy(lower_dynamic),
    "call under custom_partitioning": Strategy(custom_partitioning.lower_marked),
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
"""By a kind's name or an opcode."""
_BY_FACTORS = Strategy(lower_by_signature)


def plan_of(context: PlanContext, inst: Instruction, operands: Places, wanted: HloSharding | None) -> OpPlan | None:
    """How an op with an array as result is partitioned whose operands lie so; None of one that decides nothing.

    By opcode alone: kinds of `OP_KINDS` are told on the walk.
    """
    return STRATEGIES.get(inst.opcode, _BY_FACTORS).plan(context, inst, operands, wanted)


def kind_of(context: Context, inst: Instruction) -> str:
    """What the table knows an instruction as."""
    opcode = inst.opcode
    for kind in _possible_kinds(opcode):
        if kind.holds(context, inst):
            return kind.name
    return opcode


@cache
def _possible_kinds(opcode: str) -> tuple[OpKind, ...]:
    """Most opcodes have two: asked of every instruction."""
    return tuple(kind for kind in OP_KINDS if kind.opcodes is None or opcode in kind.opcodes)


def lower(context: Context, inst: Instruction) -> AnyValue | DeferredReduction:
    """Partition one instruction whose operands are partitioned.

    First what needs no decision (elementwise, all in one sharding), then what partial sums pass, then the table.
    What comes out otherwise than propagated, or may be bypassed though annotated, is noted for the list of overrides.
    """
    if inst.opcode in FAST_ELEMENTWISE and (value := lower_aligned_elementwise(context, inst)) is not None:
        return let_be_remade(context, inst, value)
    groups = manual.region_of(context, inst) if context.decisions.has_manual_groups else None
    written = context.emitter.written
    made = _lower(context if groups is None else context.inside(groups), inst)
    for part in () if type(made) is Value else parts_of(made):
        if isinstance(part, DeferredReduction):
            context.emitter.note_partial_sums(part.partial.local, written)
    if type(made) is DeferredReduction or inst.id not in context.shardings:
        context.emitter.program.undecided[inst] = made
    elif type(made) is Value and inst.name in context.decisions.annotated and made.rematerialize is None:
        context.emitter.program.annotated[inst] = made
    if groups is not None:
        return manual.stamped(made, groups)
    return let_be_remade(context, inst, made) if type(made) is Value else made


def _lower(context: Context, inst: Instruction) -> AnyValue | DeferredReduction:
    """By the table, unless partial sums pass through the op and are reduced later."""
    context.emitter.lowering(inst)
    deferred = pass_through(context, inst)
    if deferred is not None:
        return deferred
    return STRATEGIES.get(kind_of(context, inst), _BY_FACTORS).lower(context, inst)
