"""Functions under `custom_partitioning`: each device computes what the user's `partition` says, on his tiles.

Floor: partitioner.  He is offered the split that his rule string allows (chosen as for any op with a signature), or
without one the operands' shardings and what his `infer_sharding_from_operands`, else propagation, says of the results.
Where he cannot be asked, what the function computes is partitioned in its place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hlosharding.ir import RULE_MARK, Instruction, Module, custom_partitioning_of, rewrite
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.factors import choice_of
from hlosharding.partitioner.regions.manual import MANUAL
from hlosharding.partitioner.resharding import arrays_of, reshard, to_wanted, value_of
from hlosharding.partitioner.value import AnyValue, DeferredReduction, Value, from_leaves, leaves_of, places_of
from hlosharding.propagation import propagate
from hlosharding.rules import parse_shardy_rule
from hlosharding.sharding import REPLICATED, HloSharding, without_partials

if TYPE_CHECKING:
    from hlosharding.frontends import CustomPartitioning, PerDevice


def lower_marked(context: Context, inst: Instruction) -> AnyValue | DeferredReduction:
    """The user's program for one device, or the callee's ops in the call's place."""
    found = custom_partitioning_of(inst) if context.manual_groups is None else None
    values = arrays_of(context, inst.operands)
    offered = None if found is None else _offered(context, inst, found, values)
    program = None if found is None or offered is None else found.per_device(inst, *offered)
    return _inlined(context, inst) if program is None else _followed(context, inst, values, program)


def _offered(
    context: Context, inst: Instruction, found: CustomPartitioning, values: list[Value]
) -> tuple[tuple[HloSharding, ...], tuple[HloSharding, ...]]:
    """Shardings of operands and results, as GSPMD and Shardy would hand them to `partition`."""
    text = inst.frontend_attributes.get(RULE_MARK)
    if text is not None:
        # Elsewhere a factor that the result lacks and the rule calls no reduction stays whole.  Here the user's program
        # may sum over devices itself, and is given the tiles that there are.
        rule = replace(parse_shardy_rule(text), is_minded=False)
        choice = choice_of(context, inst, rule.bind(inst), places_of(values))
        return choice.operands, tuple(without_partials(r) for r in choice.results)
    operands = tuple(v.whole_sharding for v in values)
    wanted = context.wanted_leaves(inst)
    return operands, found.infer_results(inst, operands) or tuple(w if w is not None else REPLICATED for w in wanted)


def _inlined(context: Context, inst: Instruction) -> AnyValue | DeferredReduction:
    callee = inst.called[0]
    for parameter, operand in zip(callee.parameters, inst.operands, strict=True):
        context.values[parameter] = value_of(context, operand)
    return _walk(context, callee.instructions, callee.root)


def _walk(context: Context, instructions: list[Instruction], root: Instruction) -> AnyValue | DeferredReduction:
    for inner in instructions:
        if inner.opcode != "parameter":
            context.values[inner] = context.lower(context, inner)
    return context.values[root]


def _followed(context: Context, inst: Instruction, values: list[Value], program: PerDevice) -> AnyValue:
    """The user's ops, taken over as those of a manual region are; they stand for the line of the call."""
    module = propagate(program.module).module.clone()
    _adopt(context, inst, module)
    shardings = {i.id: module.shardings.get(i.id, MANUAL) for i in module.instructions}
    inner = Context(shardings=shardings, decisions=context.decisions, emitter=context.emitter, lower=context.lower)
    for parameter, value, taken in zip(module.entry.parameters, values, program.operands, strict=True):
        inner.values[parameter] = reshard(context, value, taken, f"operand {parameter.parameter_number}")
    made = _walk(inner, module.entry.instructions, module.entry.root)
    assert not isinstance(made, DeferredReduction), "a manual region leaves no sums"
    parts = zip(leaves_of(made), program.results, context.wanted_leaves(inst), strict=True)
    context.emitter.lowering(inst)
    return from_leaves(inst.shape, [to_wanted(context, reshard(context, v, r), w) for v, r, w in parts])


def _adopt(context: Context, inst: Instruction, module: Module) -> None:
    """Channels and source lines of another module, made those of this one."""
    program = context.emitter.program
    # All by the same number, so that its collectives that share a channel still do.
    first = program.channel
    for inner in module.instructions:
        rewrite.take_metadata(inner, inst)
        if inner.channel_id:
            rewrite.set_attributes(inner, channel_id=inner.channel_id + first)
            program.channel = max(program.channel, inner.channel_id)
