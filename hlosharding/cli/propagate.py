"""`hlosharding propagate`: a sharding for every value.

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace

from hlosharding import report
from hlosharding.cli.files import show, write
from hlosharding.cli.programs import annotated_program, as_json, in_format, propagated_program
from hlosharding.frontends import annotate
from hlosharding.propagation import Propagation


def execute(arguments: Namespace) -> None:
    """Write the program with its shardings, or the table of them, or how they came about."""
    module = annotated_program(arguments)
    propagated = propagated_program(arguments, module)
    in_json = arguments.emit == "json"
    if arguments.trace:
        steps = as_json(report.trace_record(propagated)) if in_json else "\n".join(report.trace_lines(propagated))
        write(steps, arguments.output)
        return
    if arguments.conflicts or arguments.diff:
        other = propagated_program(arguments, annotate(module, dict(arguments.diff))) if arguments.diff else None
        _show_view(propagated, other, arguments, in_json=in_json)
        return
    if in_json:
        write(as_json(report.propagation_record(propagated)), arguments.output)
    elif arguments.emit or not arguments.table:
        write(in_format(propagated.module, arguments.emit or "hlo", metadata=arguments.metadata), arguments.output)
    if arguments.table:
        show(report.show_shardings(propagated))


def _show_view(propagated: Propagation, other: Propagation | None, arguments: Namespace, *, in_json: bool) -> None:
    """The conflicts, or what another set of annotations changes."""
    if in_json:
        record = (
            report.conflicts_record(propagated.conflicts)
            if other is None
            else report.difference_record(propagated, other)
        )
        write(as_json(record), arguments.output)
    else:
        show(report.show_conflicts(propagated) if other is None else report.show_difference(propagated, other))
