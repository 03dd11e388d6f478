"""Annotated values that nobody reads as their user asked: each reader found the elements nearer, as they were before.

    y = with_sharding_constraint(x, P("model"))    x lies by P("data")
    z = tanh(y)                                    z is wanted by P("data"): it is made of x, and nothing moves

Floor: partitioner.  Reads what was noted on the walk; decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hlosharding.ir import Instruction, Module, rewrite
from hlosharding.partitioner.overrides.sharding_overrides import BYPASSED, ShardingOverride
from hlosharding.partitioner.prices import Cost, Prices
from hlosharding.partitioner.value import Value


def bypassed_annotations(
    local: Module, annotated: Mapping[Instruction, Value], prices: Prices
) -> dict[Instruction, ShardingOverride]:
    """Of the annotated values of the walk that wrote `local`; what nobody reads leaves that, as it does in the first of
    the passes."""
    moved = {inst: value for inst, value in annotated.items() if inst.users and value.reshards}
    if not moved:
        return {}
    rewrite.dead_code(local)
    live = {inst for computation in local.computations for inst in computation.instructions}
    return {
        inst: _override(inst, value, read, prices)
        for inst, value in moved.items()
        if value.local not in live and value.local.computation in local.computations
        for read in [next(_read(value, live), None)]
        if read is not None
    }


def _read(value: Value, live: set[Instruction]) -> Iterator[Value]:
    """The same elements as somebody reads them."""
    return (other for other in value.reshards.values() if other.local in live)


def _override(inst: Instruction, asked: Value, read: Value, prices: Prices) -> ShardingOverride:
    there = prices.reshard_cost(asked.shape, read.sharding, asked.sharding, None)
    back = prices.reshard_cost(asked.shape, asked.sharding, read.sharding, None)
    return ShardingOverride(inst, asked.sharding, read.sharding, _why(there + back))


def _why(cost: Cost) -> str:
    return f"{BYPASSED}; keeping it would move {cost.mean_bytes:,.0f} bytes in {cost.seconds * 1e6:.3g} us"
