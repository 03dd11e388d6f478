"""What would change the best plan: other memory, other links, another batch.

Floor: search.  Nothing is extrapolated: each answer is of plans that were simulated so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log10
from typing import Any

from hlosharding.cost import Machine
from hlosharding.search.comparison import EQUAL, memory_text, runners_up, time_text
from hlosharding.search.plans import Plan
from hlosharding.search.priced_plan import PricedPlan, pareto, sort_by_throughput


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The best plan under another condition than the search's."""

    condition: str
    """As "from 96 GB a device"."""
    best: PricedPlan
    """Then, of the plans that were priced so; of equal ones that which is the best today."""
    today: PricedPlan | None
    """What the search's best takes then; None: it does not fit, or cannot be cut so."""

    @classmethod
    def of(cls, condition: str, priced: Sequence[PricedPlan], today: Plan) -> WhatIf:
        """`priced`: under the condition, the best first."""
        own = next((each for each in priced if each.plan == today and each.fits), None)
        is_best = own is not None and own.time_s <= EQUAL * priced[0].time_s
        return cls(condition, own if own is not None and is_best else priced[0], own)

    def __str__(self) -> str:
        takes = f"{self.best.plan} takes {time_text(self.best.time_s)}"
        if not self.best.fits:
            return f"{self.condition}: none fits, the fastest, {takes}, {memory_text(self.best.peak_memory_bytes)}"
        if self.today is None or self.today == self.best:
            return f"{self.condition}: {'still ' if self.today else ''}{takes}"
        return f"{self.condition}: {takes}; {self.today.plan} takes {time_text(self.today.time_s)}"


_REACH = 10
"""Times the machine's memory, and part of it: there are no devices with more, and none with less."""
_LEAST_SAVING = 0.9
"""Of memory: what holds little less is no answer to less memory."""


def of_memory(table: Sequence[PricedPlan], machine: Machine) -> list[WhatIf]:
    """What is the best of the plans on devices of other memory, from the fastest down to the leanest.

    `table`: the best first.

    >>> from hlosharding.cost import StepBreakdown, machines
    >>> figures = (Plan(4), 2.0, 49e9), (Plan(1, 4), 3.0, 25e9), (Plan(2, 2), 1.0, 90e9)
    >>> table = [PricedPlan(plan, 1, s, StepBreakdown(flops_s=s), size, size < 8e10) for plan, s, size in figures]
    >>> print(*of_memory(table, machines.h100(4)), sep="\\n")
    with 90 GB a device: 2/2/1/1 takes 1 s; 4/1/1/1 takes 2 s
    with 25 GB a device: 1/4/1/1 takes 3 s
    """
    found, limit = list[WhatIf](), _REACH * machine.memory_bytes
    alike = [each for each in table if each.batch_size == table[0].batch_size]
    for each in pareto(alike):
        if machine.memory_bytes / _REACH <= each.peak_memory_bytes <= _LEAST_SAVING * limit:
            limit = each.peak_memory_bytes
            held = sort_by_throughput(replace(one, fits=one.peak_memory_bytes <= limit) for one in alike)
            found.append(WhatIf.of(f"with {_limit_text(limit)} a device", held, table[0].plan))
    return [one for one in found if one.best.plan != table[0].plan]


def _limit_text(nbytes: float) -> str:
    """Three digits, rounded up: with so much it fits."""
    step = 10.0 ** (floor(log10(nbytes)) - 2)
    return memory_text(step * ceil(nbytes / step))


def other_conditions(machine: Machine, batch_size: int | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is asked, and what differs then: the slowest links half and twice as fast, half and twice the batch.

    `batch_size`: None: it cannot differ.
    """
    field, name = ("between", "between nodes") if machine.num_nodes > 1 else ("inside", "inside the node")
    links = getattr(machine, field)
    has_links = machine.num_devices > 1 and not machine.parts  # of unlike nodes each has links of its own
    for factor, said in ((0.5, "half"), (2.0, "twice")) if has_links else ():
        condition = f"links {name} {said} as fast"
        other = {"name": f"{machine.name}, {condition}", field: replace(links, bandwidth=factor * links.bandwidth)}
        yield condition, {"machine": replace(machine, **other)}
    for size in (batch_size // 2 or 1, batch_size * 2) if batch_size is not None else ():
        yield f"batch of {size}", {"batch_size": size}


def contenders(table: Sequence[PricedPlan]) -> list[Plan]:
    """Who may be the best under another condition: today's best, whoever is faster and does not fit, and the best of
    each other choice.  `table`: the best first; not empty."""
    others = (*(each for each in pareto(table) if not each.fits), *(one.priced for one in runners_up(table)))
    return list(dict.fromkeys(each.plan for each in (table[0], *others)))
