"""`hlosharding simulate`: time and memory of one step on a machine nobody has booked.

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace

from hlosharding import report
from hlosharding.cli.programs import partitioned_program, present
from hlosharding.cost import simulate


def execute(arguments: Namespace) -> None:
    """Print the prediction and the critical path; write the trace if one is asked for."""
    partitioned = partitioned_program(arguments)
    found = simulate(partitioned, partitioned.machine, combine=arguments.combine)
    present(report.simulation_view(found, most=arguments.most), arguments.emit)
    if arguments.trace:
        found.save_trace(arguments.trace)
