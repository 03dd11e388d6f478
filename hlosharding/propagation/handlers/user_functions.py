"""Functions under JAX's `custom_partitioning`: whoever wrote one says what its results' shardings are.

Floor: propagation.  As XLA, which asks `infer_sharding_from_operands` of a custom call's partitioner; without that the
rule string is followed, as Shardy does.  Nothing need be known of what the function calls inside.
"""

from __future__ import annotations

from dataclasses import replace

from hlosharding.ir import RULE_MARK, Instruction, custom_partitioning_of
from hlosharding.propagation.handlers.table import FORWARD, Shardings
from hlosharding.propagation.improving import Receiver
from hlosharding.propagation.op_view import OpView, carry, is_partitioned
from hlosharding.rules import parse_shardy_rule
from hlosharding.sharding import REPLICATED, HloSharding


@FORWARD.register("call")
def _call(op: OpView, receiver: Receiver, operands: Shardings, level: int) -> None:
    source = next((n for n, sharding in enumerate(operands) if is_partitioned(sharding)), None)
    # At first only what all operands agree to; then those without a sharding count as copies.
    if source is None or (level == 0 and None in operands):
        return
    given = [sharding if sharding is not None else REPLICATED for sharding in operands]
    for leaf, found in enumerate(_results(op.instruction, given)):
        if is_partitioned(found):
            receiver.improve_leaf(found, leaf, source, aggressive=op.aggressive)


def _results(inst: Instruction, operands: list[HloSharding]) -> tuple[HloSharding, ...]:
    found = custom_partitioning_of(inst)
    inferred = None if found is None else found.infer_results(inst, operands)
    if inferred is not None:
        return inferred
    text = inst.frontend_attributes.get(RULE_MARK)
    return () if text is None else _by_rule(inst, text, operands)


def _by_rule(inst: Instruction, text: str, operands: list[HloSharding]) -> tuple[HloSharding, ...]:
    """Per result what the first operand that shares split dims with it has along these."""
    signature = replace(parse_shardy_rule(text), is_minded=False).bind(inst)
    results: list[HloSharding] = []
    for leaf, shape in enumerate(inst.shape.leaves):
        offers = [REPLICATED]
        for n, sharding in enumerate(operands):
            pairs = signature.pairs(n, result=leaf)
            links = tuple(a for a, _ in pairs), tuple(b for _, b in pairs)
            if sharding.is_tiled():
                offers.insert(-1, carry(sharding, links, inst.operands[n].shape.rank, shape.rank))
        results.append(next((offer for offer in offers if offer.is_tiled()), REPLICATED))
    return tuple(results)
