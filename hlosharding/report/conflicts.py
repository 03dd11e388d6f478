"""Where neighbours disagree, so that data moves: who offered what, and why it lost.

Floor: report.
"""

from __future__ import annotations

from rich.table import Table

from hlosharding.propagation import ChainLink, Propagation
from hlosharding.report.tables import add_row, new_table
from hlosharding.sharding import spell


def show_conflicts(propagated: Propagation) -> Table:
    """Every offer that lost, in program order, with the annotations to which both sides go back."""
    lost = propagated.conflicts
    table = new_table("Conflicts", "value", "has", "because of", "neighbour", "offers", "because of", "why it lost")
    for one in lost:
        mesh = one.winner.mesh
        add_row(
            table,
            _place(one.winner),
            spell(one.winner.sharding, mesh),
            _place(one.held_since),
            f"{one.role}: {_place(one.loser)}",
            spell(one.offered, mesh),
            _place(one.offered_since),
            one.reason,
        )
    if not lost:
        add_row(table, "none", "", "", "", "", "", "")
    return table


def _place(link: ChainLink) -> str:
    return f"{link.title} at {link.location}" if link.location else link.title
