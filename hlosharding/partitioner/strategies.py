"""How each op is partitioned: one table from the kind of an op, mostly its opcode, to a strategy.

Floor: partitioner.  What is not in the table is lowered by its factors; what has no signature is computed whole on
every device, with a warning that names it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from hlosharding.ir import COLLECTIVES, Instruction, fused_attention, is_custom_partitioning
from hlosharding.partitioner import whole_operands
from hlosharding.partitioner.context import Context, Strategy
from hlosharding.partitioner.control_flow import calls, loops, scan
from hlosharding.partitioner.factors import (
    FAST_ELEMENTWISE,
    lower_aligned_elementwise,
    lower_by_signature,
    ring_attention,
)
from hlosharding.partitioner.movement import data_movement, generators, reshapes, special_ops, tuples
from hlosharding.partitioner.partial_sums import pass_through
from hlosharding.partitioner.regions import (
    custom_partitioning,
    host_offload,
    infeed_outfeed,
    manual,
    one_device,
    send_recv,
)
from hlosharding.partitioner.value import AnyValue, DeferredReduction, Value, parts_of


class Kind(NamedTuple):
    """A kind of op that is more than its opcode."""

    name: str
    opcodes: frozenset[str] | None
    """None: all."""
    holds: Callable[[Context, Instruction], bool]


_CALLS = frozenset({"custom-call"})

KINDS = (
    Kind("boundary of a manual region", _CALLS, lambda _, inst: manual.is_boundary_call(inst)),
    Kind("start of a transfer", frozenset({"send", "recv"}), lambda _context, _inst: True),
    Kind("end of a transfer", frozenset({"send-done", "recv-done"}), lambda _context, _inst: True),
    Kind("op of a manual region", None, manual.is_per_device),
    Kind("collective between manual groups", COLLECTIVES, lambda context, _: context.manual_groups is not None),
    Kind("move to or from the host", _CALLS, lambda _, inst: host_offload.is_move(inst)),
    Kind("custom call on one device", _CALLS, one_device.is_on_one_device),
    Kind("flash attention", _CALLS, lambda _, inst: fused_attention(inst) is not None),
    Kind("array of dynamic size", None, whole_operands.is_dynamic),
    Kind("call under custom_partitioning", frozenset({"call"}), lambda _, inst: is_custom_partitioning(inst)),
)
"""Asked in this order, before the opcode."""

STRATEGIES: dict[str, Strategy] = {
    "boundary of a manual region": manual.cross_boundary,
    "start of a transfer": send_recv.start,
    "end of a transfer": send_recv.finish,
    "op of a manual region": manual.take_over,
    "collective between manual groups": manual.communicate,
    "move to or from the host": host_offload.move,
    "custom call on one device": one_device.act_once,
    "flash attention": ring_attention.lower,
    "array of dynamic size": whole_operands.lower_dynamic,
    "call under custom_partitioning": custom_partitioning.lower_marked,
    "tuple": tuples.pack_elements,
    "get-tuple-element": tuples.take_element,
    "copy": tuples.copy,
    "convert": special_ops.convert,
    "all-reduce": special_ops.all_reduce,
    "constant": generators.constant,
    "iota": generators.iota,
    "broadcast": generators.broadcast,
    "rng": generators.random,
    "reshape": reshapes.reshape,
    "slice": data_movement.move,
    "pad": data_movement.move,
    "concatenate": data_movement.move,
    "reverse": data_movement.move,
    "dynamic-slice": data_movement.move,
    "dynamic-update-slice": data_movement.move,
    "while": loops.while_loop,
    "scan": scan.scan,
    "conditional": calls.conditional,
    "call": calls.call,
    "opt-barrier": calls.barrier,
    "infeed": infeed_outfeed.infeed,
    "outfeed": infeed_outfeed.outfeed,
    "after-all": calls.token,
    "add-dependency": calls.token,
    "partition-id": calls.per_device,
    "replica-id": calls.per_device,
}
"""By a kind's name or an opcode."""


def kind_of(context: Context, inst: Instruction) -> str:
    """What the table knows an instruction as."""
    opcode = inst.opcode
    for kind in _possible_kinds(opcode):
        if kind.holds(context, inst):
            return kind.name
    return opcode


@cache
def _possible_kinds(opcode: str) -> tuple[Kind, ...]:
    """Most opcodes have two: asked of every instruction."""
    return tuple(kind for kind in KINDS if kind.opcodes is None or opcode in kind.opcodes)


def lower(context: Context, inst: Instruction) -> AnyValue | DeferredReduction:
    """Partition one instruction whose operands are partitioned."""
    if inst.opcode in FAST_ELEMENTWISE and (value := lower_aligned_elementwise(context, inst)) is not None:
        return value
    groups = manual.region_of(context, inst) if context.decisions.has_manual_groups else None
    written = context.emitter.written
    made = _lower(context if groups is None else context.inside(groups), inst)
    for part in () if type(made) is Value else parts_of(made):
        if isinstance(part, DeferredReduction):
            context.emitter.note_partial_sums(part.partial.local, written)
    if type(made) is DeferredReduction or inst.id not in context.shardings:
        context.emitter.program.undecided[inst] = made
    return made if groups is None else manual.stamped(made, groups)


def _lower(context: Context, inst: Instruction) -> AnyValue | DeferredReduction:
    """By the table, unless partial sums pass through the op and are reduced later."""
    context.emitter.lowering(inst)
    deferred = pass_through(context, inst)
    if deferred is not None:
        return deferred
    return STRATEGIES.get(kind_of(context, inst), lower_by_signature)(context, inst)
