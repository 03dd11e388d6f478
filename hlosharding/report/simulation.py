"""The critical path of a simulated step as a table.

Floor: report.
"""

from __future__ import annotations

from rich.table import Table

from hlosharding.cost import Simulation
from hlosharding.report.figures import as_seconds
from hlosharding.report.tables import add_row, new_table


def show_critical_path(simulation: Simulation, *, most: int = 10) -> Table:
    """The events that make the step as long as it is: the `most` longest of them, in order of time."""
    path = simulation.critical_path
    longest = sorted(path, key=lambda e: -e.seconds)[:most]
    title = f"Critical path: {len(longest)} longest of {len(path)} steps"
    table = new_table(title, "start", "takes", "stream", "op", "shape", "source", figures=("start", "takes"))
    for event in sorted(longest, key=lambda e: e.start):
        inst = event.instruction
        cells = as_seconds(event.start), as_seconds(event.seconds), event.stream, inst.opcode, str(inst.shape)
        add_row(table, *cells, inst.location)
    return table
