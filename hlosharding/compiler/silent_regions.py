"""Is a region of the program that may need no communication (`hs.no_communication`) without any?

Floor: compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlosharding.compiler.collective_explanation import CollectiveExplanation
from hlosharding.errors import PartitionError
from hlosharding.frontends import may_not_communicate
from hlosharding.ir import Module, collective_kind
from hlosharding.spmd import collectives

_MOST_TOLD = 3


def broken_regions(module: Module, explain: Callable[..., Sequence[CollectiveExplanation]]) -> PartitionError | None:
    """Of the collectives that ops in such regions need, the first with the annotations on both sides; None: of none.

    `explain`: what is known of those of these numbers.
    """
    names = (inst.op_name for inst in module.instructions if collective_kind(inst.opcode))
    # Asked of every program: those without such a region, nearly all, need not list and price their collectives.
    if not any(map(may_not_communicate, names)):
        return None
    found = collectives(module)
    wrong = [n for n, one in enumerate(found) if may_not_communicate(one.op_name)]
    count, total = len(wrong), sum(found[n].bytes_per_device for n in wrong)
    told = [_told(one) for one in explain(*wrong[:_MOST_TOLD])]
    more = [f"and {count - len(told)} more"] if count > len(told) else []
    head = f"{count} collective{'s' if count > 1 else ''}, {total:,.0f} bytes, where hs.no_communication() allows none:"
    return PartitionError(
        "\n".join([head, *told, *more]),
        where=found[wrong[0]].location or None,
        remedy="change an annotation, or let the region end before",
    )


def _told(one: CollectiveExplanation) -> str:
    own = [("itself", one.wanted)] if one.wanted is not None else []
    sides = [*own, *((f"operand {number}", why) for number, why in one.operands)]
    return "\n".join([one.head, *(f"  {what} lies as it does because of {why.links[-1]}" for what, why in sides)])
