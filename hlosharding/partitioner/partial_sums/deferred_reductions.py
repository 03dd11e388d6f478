"""Deferred reductions: one is made when somebody needs the sum, not when the partial sums are made.

Floor: partitioner.  A deferred value whose only user is linear passes through it as partial sums where that saves
something: two gradients that are added cost one all-reduce, and a reduction meets a sharding of fewer elements, so that
it can be a reduce-scatter.  Where nothing is saved the sum is made at once.  Never where the later value is larger.

    %a = dot(...)            partial sums                 without: all-reduce a, all-reduce b, add
    %b = dot(...)            partial sums
    %c = add(%a, %b)         partial sums of both         with: add, all-reduce c

Several users may each cut their part out of partial sums, if waiting pays for all of them: gradients of weights that a
program joins to compute with them at once, and that a loop adds up each on its own.
"""

from __future__ import annotations

from hlosharding.ir import Instruction
from hlosharding.partitioner.context import Context, PlanContext
from hlosharding.partitioner.partial_sums.partial_sum_ops import DEFERRAL_RULES, deferral_rule, is_linear, terms_of
from hlosharding.partitioner.resharding import is_cut_up
from hlosharding.partitioner.value import DeferredReduction
from hlosharding.sharding import HloSharding


def pass_through(context: Context, inst: Instruction) -> DeferredReduction | None:
    """The instruction on partial sums, if it is linear in deferred operands and waiting saves something; else None."""
    rule = DEFERRAL_RULES.get(inst.opcode)
    if rule is None or rule.on_partial_sums is None:
        return None
    values = context.values
    for source in inst.operands:
        if isinstance(values.get(source), DeferredReduction):
            break
    else:
        return None
    if not waiting_pays(context, source, inst):
        return None
    made = rule.on_partial_sums(context, inst)
    return None if made is None else DeferredReduction(made, context.wanted_leaves(inst)[0])


def may_wait(context: PlanContext, source: Instruction) -> bool:
    """Would partial sums that `source` makes be reduced later than here: at its only user, or at all that cut it?"""
    if source.is_root or not source.users or not (len(source.users) == 1 or is_cut_up(source)):
        return False
    return all(waiting_pays(context, source, user) for user in source.users)


def waiting_pays(context: PlanContext, source: Instruction, inst: Instruction) -> bool:
    """Does a later op that the partial sums of `source` pass through add up several of them, or want less of the sum?
    Or does the caller want them as they are?

    If not, the reduction is made at once: then what follows it can be fused into its readers.  Past what the user
    annotated partial sums go only on the way to a sum in the same sharding.
    """
    rule = DEFERRAL_RULES.get(inst.opcode)
    if rule is None or rule.on_partial_sums is None:  # asked of thousands: mostly this is all
        return False
    return _pays(context, source, source, inst, None)


def _pays(
    context: PlanContext, first: Instruction, source: Instruction, inst: Instruction, annotated: HloSharding | None
) -> bool:
    """Is it so of the partial sums of `first`, which `source` has passed on, behind an op annotated so or not?"""
    rule, names, may_defer = DEFERRAL_RULES.get(inst.opcode), context.decisions.annotated, context.may_defer
    while rule is not None and rule.on_partial_sums is not None:
        if names and source.name in names:
            annotated = context.wanted(source) or annotated
        if annotated is not None and context.wanted(inst) != annotated:
            return False
        if (may_defer and inst in may_defer and not rule.is_sum) or is_wanted_partial(context.wanted(inst)):
            return True
        if len(source.users) == 1 and _reduces_less(context, first, inst):
            return True
        if rule.is_sum and _sums_only_partial_sums(context, source, inst):
            return True
        if inst.is_root or not inst.users:
            return False
        if len(inst.users) > 1:
            return is_cut_up(inst) and all(_pays(context, first, inst, user, annotated) for user in inst.users)
        source, inst = inst, inst.users[0]
        rule = DEFERRAL_RULES.get(inst.opcode)
    return False


def is_wanted_partial(wanted: HloSharding | None) -> bool:
    """Are partial sums wanted, and not their sum?"""
    return wanted is not None and (wanted.is_unreduced() or "unreduced" in wanted.subgroup_types)


def _reduces_less(context: PlanContext, first: Instruction, inst: Instruction) -> bool:
    """Does a reduction of `inst` cost less than one of `first`?

    A reduction for all costs twice what one costs that leaves each device its part.
    """
    size, before = inst.shape.byte_size, first.shape.byte_size
    if not before <= size < 2 * before:
        return size < before
    shardings = context.shardings
    after, given = shardings.get(inst.id), shardings.get(first.id)
    return after is not given and after is not None and after.num_tiles > (1 if given is None else given.num_tiles)


def _sums_only_partial_sums(context: PlanContext, source: Instruction, inst: Instruction) -> bool:
    """Are all terms of the sum `inst` partial sums, or may they be?"""
    return all(o is source or o in context.may_defer or _may_wait(context, o) for o in terms_of(inst))


def _may_wait(context: PlanContext, operand: Instruction) -> bool:
    """Is it a deferred reduction, or, where it is not lowered yet, may it become one?"""
    known = context.is_deferred(operand)
    return known if known is not None else is_linear(operand) or deferral_rule(operand).makes_partial_sums
