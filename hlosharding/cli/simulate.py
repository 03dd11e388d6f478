"""`hlosharding simulate`: time and memory of one step on a machine nobody has booked.

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace

from hlosharding import report
from hlosharding.cli.files import show, write
from hlosharding.cli.programs import as_json, partitioned_program
from hlosharding.cost import simulate


def execute(arguments: Namespace) -> None:
    """Print the prediction and the critical path; write the trace if one is asked for."""
    partitioned = partitioned_program(arguments)
    found = simulate(partitioned, partitioned.machine)
    if arguments.emit == "json":
        write(as_json(report.simulation_record(found)), None)
    else:
        write(str(found), None)
        show(report.show_critical_path(found, most=arguments.most))
    if arguments.trace:
        found.save_trace(arguments.trace)
