"""`hlosharding propagate`: a sharding for every value.

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace

from hlosharding import report
from hlosharding.cli.files import show, write
from hlosharding.cli.programs import annotated_program, as_json, in_format, propagated_program
from hlosharding.frontends import annotate


def execute(arguments: Namespace) -> None:
    """Write the program with its shardings, or the table of them, or how they came about."""
    module = annotated_program(arguments)
    propagated = propagated_program(arguments, module)
    if arguments.trace:
        write("\n".join(report.trace_lines(propagated)), arguments.output)
        return
    if arguments.diff:
        other = propagated_program(arguments, annotate(module, dict(arguments.diff)))
        show(report.show_difference(propagated, other))
        return
    if arguments.emit == "json":
        write(as_json(report.propagation_record(propagated)), arguments.output)
    elif arguments.emit or not arguments.table:
        write(in_format(propagated.module, arguments.emit or "hlo", metadata=arguments.metadata), arguments.output)
    if arguments.table:
        show(report.show_shardings(propagated))
