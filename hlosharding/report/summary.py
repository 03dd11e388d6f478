"""A partitioned program at one glance: what it costs, where it talks, what was not partitioned or chosen anew.

Floor: report.
"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from hlosharding.compiler import Partitioned
from hlosharding.report.collectives import show_collectives
from hlosharding.report.costs import show_cost
from hlosharding.report.sharding_overrides import show_sharding_overrides

_DEPARTURES_SHOWN = 12


def show_partitioned(partitioned: Partitioned) -> RenderableType:
    """The totals, the collectives, the values that propagation had sharded otherwise, and the warnings."""
    count = partitioned.num_partitions
    head = Text(f"{partitioned.module.name} on {count} device{'' if count == 1 else 's'}", style="bold")
    tables: list[RenderableType] = [head, show_cost(partitioned.cost), show_collectives(partitioned)]
    if partitioned.sharding_overrides:
        tables.append(show_sharding_overrides(partitioned, limit=_DEPARTURES_SHOWN))
    return Group(*tables, show_warnings(partitioned))


def show_warnings(partitioned: Partitioned) -> RenderableType:
    """The ops that were not partitioned, a line each; nothing where there are none."""
    return Group(*(Text(f"warning: {warning}", style="yellow") for warning in partitioned.warnings))
