"""What users say how it is split: functions under JAX's `custom_partitioning`, and custom calls like a function.

Floor: propagation.  As XLA, which asks `infer_sharding_from_operands` of a custom call's partitioner; without that the
rule is followed, as Shardy does.  Nothing need be known of what is called inside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from hlosharding.ir import RULE_MARK, Instruction, custom_partitioning_of
from hlosharding.propagation.handlers.table import FORWARD, Shardings
from hlosharding.propagation.improving import Receiver
from hlosharding.propagation.op_view import Edge, OpView, carry, is_partitioned
from hlosharding.rules import Signature, parse_shardy_rule
from hlosharding.sharding import REPLICATED, HloSharding

Infer: TypeAlias = Callable[[Instruction, list[HloSharding]], tuple[HloSharding, ...]]


@FORWARD.register("call")
def _call(op: OpView, receiver: Receiver, operands: Shardings, level: int) -> None:
    offer_results(op, receiver, operands, level, _results)


def offer_results(op: OpView, receiver: Receiver, operands: Shardings, level: int, infer: Infer) -> None:
    """Each result what `infer` makes of the operands' shardings."""
    source = next((n for n, sharding in enumerate(operands) if is_partitioned(sharding)), None)
    # At first only what all operands agree to; then those without a sharding count as copies.
    if source is None or (level == 0 and None in operands):
        return
    given = [sharding if sharding is not None else REPLICATED for sharding in operands]
    for leaf, found in enumerate(infer(op.instruction, given)):
        if is_partitioned(found):
            receiver.improve_leaf(found, leaf, source, aggressive=op.aggressive)


def operand_by_rule(edge: Edge, rule: Signature, user: HloSharding) -> HloSharding | None:
    """What an operand of a call would have: along the dims that it shares with a result what that has."""
    for leaf, (own, shape) in enumerate(zip(user.leaves, edge.op.shape.leaves, strict=True)):
        pairs = rule.pairs(edge.position, result=leaf)
        links = tuple(there for _, there in pairs), tuple(here for here, _ in pairs)
        offer = carry(own, links, shape.rank, edge.shape.rank) if own.is_tiled() else REPLICATED
        if offer.is_tiled():
            return offer
    return None


def _results(inst: Instruction, operands: list[HloSharding]) -> tuple[HloSharding, ...]:
    found = custom_partitioning_of(inst)
    inferred = None if found is None else found.infer_results(inst, operands)
    if inferred is not None:
        return inferred
    text = inst.frontend_attributes.get(RULE_MARK)
    if text is None:
        return ()
    return results_by_rule(replace(parse_shardy_rule(text), is_minded=False).bind(inst), inst, operands)


def results_by_rule(rule: Signature, inst: Instruction, operands: list[HloSharding]) -> tuple[HloSharding, ...]:
    """Per result what the first operand that shares split dims with it has along these."""
    results: list[HloSharding] = []
    for leaf, shape in enumerate(inst.shape.leaves):
        offers: list[HloSharding] = []
        for n, sharding in enumerate(operands):
            pairs = rule.pairs(n, result=leaf)
            links = tuple(a for a, _ in pairs), tuple(b for _, b in pairs)
            if sharding.is_tiled():
                offers.append(carry(sharding, links, inst.operands[n].shape.rank, shape.rank))
        results.append(next((offer for offer in offers if offer.is_tiled()), REPLICATED))
    return tuple(results)
