"""Where a program departs from propagation: the values that were given another sharding, and why.

Floor: partitioner.  Compares two tables and reads what was noted on the walk; decides nothing, and looks at single
instructions only where something differs.

An annotation is bypassed where nobody reads the value as its user asked: each reader found it nearer, as it was before.

    y = with_sharding_constraint(x, P("model"))    x lies by P("data")
    z = tanh(y)                                    z is wanted by P("data"): it is made of x, and nothing moves"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hlosharding.ir import Instruction, Module, rewrite
from hlosharding.partitioner.prices import Prices
from hlosharding.partitioner.value import AnyValue, DeferredReduction, Value, leaves_of
from hlosharding.sharding import HloSharding

READ_IN_PART = "nobody reads it whole"
BATCH_OVER_ALL = "batch over all devices: the whole program is better so"
KEPT_WHOLE = "all that it is made of is whole, and its parts would have to move"
SMALL_WHOLE = "it is small, and all that it is made of is whole, or a sum"
ONLY_READER = "its only reader wants it so"
IN_PLACE = "it is written into, and lies so before and after"
BOTH_ENDS = "the ops that make and read it cost less together"
EVEN_PART = "nobody asked for the result whole, and it has dims that divide evenly"
NAMED = "nobody asked for it, and the axes of the mesh cannot say it: JAX's arrays could not have it"
ONE_ORDER = "every manual group has its tiles in one order"
SUMMED_LATER = "partial sums stay apart until their users' sum"
BYPASSED = "the annotation is bypassed: nobody reads the value so"


@dataclass(frozen=True, slots=True)
class ShardingOverride:
    """A value whose sharding in the per-device program is not the propagated one."""

    instruction: Instruction
    """The global one."""
    propagated: HloSharding
    chosen: HloSharding
    why: str

    @property
    def is_bypassed(self) -> bool:
        """Is the propagated one what the user asked for?"""
        return self.why.startswith(BYPASSED)

    @property
    def name(self) -> str:
        """Of the instruction."""
        return self.instruction.name

    @property
    def opcode(self) -> str:
        """Of the instruction."""
        return self.instruction.opcode

    @property
    def shape(self) -> str:
        """The global shape."""
        return str(self.instruction.shape)

    @property
    def location(self) -> str:
        """The source line."""
        return self.instruction.location


def sharding_overrides(
    module: Module,
    shardings: Mapping[int, HloSharding],
    undecided: Mapping[Instruction, AnyValue | DeferredReduction],
    why: Mapping[int, str],
    bypassed: Mapping[Instruction, ShardingOverride],
) -> Iterator[ShardingOverride]:
    """The sharding overrides of a program made with the table `shardings`, in program order.

    `undecided` is what became of values that the table lacks, or whose sum may have waited; `why` says for which
    instructions the table was changed for another reason than that they are read in part.  `bypassed`: those of values
    that the user annotated.
    """
    # By identity, for shardings are interned; what only is spelled otherwise is sorted out below.
    changed = {i for i, sharding in module.shardings.items() if shardings.get(i) is not sharding}
    listed = changed.union([i.id for i in undecided], [i.id for i in bypassed])
    for inst in [i for i in module.instructions if i.id in listed]:
        if inst in bypassed:
            yield bypassed[inst]
            continue
        propagated, chosen = module.shardings.get(inst.id), shardings.get(inst.id)
        reason = why.get(inst.id, READ_IN_PART)
        made = undecided.get(inst)
        if made is not None:
            chosen = _became(inst, made)
            reason = SUMMED_LATER if isinstance(made, DeferredReduction) else reason
        # A tuple only holds values: they speak for themselves, but where it is what the program gives back.
        holds = inst.opcode == "tuple" and reason not in (EVEN_PART, NAMED)
        if holds or propagated is None or chosen is None or chosen == propagated:
            continue
        yield ShardingOverride(inst, propagated, chosen, reason)


def _became(inst: Instruction, made: AnyValue | DeferredReduction) -> HloSharding | None:
    """What a value was made in; None where its sum was made after all, in the sharding that the table says."""
    leaves = leaves_of(made)
    if isinstance(made, DeferredReduction) and (made.reduced is not None or not inst.users):
        return None
    if any(v.manual_groups is not None for v in leaves):
        return None
    shardings = [v.sharding for v in leaves]
    return HloSharding.tuple(shardings) if inst.shape.is_tuple else shardings[0]


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
        # The same elements as somebody reads them.
        for read in [next((other for other in value.reshards.values() if other.local in live), None)]
        if read is not None
    }


def _override(inst: Instruction, asked: Value, read: Value, prices: Prices) -> ShardingOverride:
    there = prices.reshard_cost(asked.shape, read.sharding, asked.sharding, None)
    back = prices.reshard_cost(asked.shape, asked.sharding, read.sharding, None)
    cost = there + back
    why = f"{BYPASSED}; keeping it would move {cost.mean_bytes:,.0f} bytes in {cost.seconds * 1e6:.3g} us"
    return ShardingOverride(inst, asked.sharding, read.sharding, why)
