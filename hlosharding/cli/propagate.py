"""`hlosharding propagate`: a sharding for every value.

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace

from hlosharding import report
from hlosharding.cli.files import show, write
from hlosharding.cli.programs import as_json, in_format, propagated_program


def execute(arguments: Namespace) -> None:
    """Write the program with its shardings, or the table of them."""
    propagated = propagated_program(arguments)
    if arguments.emit == "json":
        write(as_json(report.propagation_record(propagated)), arguments.output)
    elif arguments.emit or not arguments.table:
        write(in_format(propagated.module, arguments.emit or "hlo", metadata=arguments.metadata), arguments.output)
    if arguments.table:
        show(report.show_shardings(propagated))
