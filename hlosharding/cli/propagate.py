"""`hlosharding propagate`: a sharding for every value.

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace

from hlosharding.cli.files import write
from hlosharding.cli.programs import GivenProgram, as_json, in_format, mesh_text, present
from hlosharding.frontends import annotate
from hlosharding.plans import diff
from hlosharding.propagation import Propagation
from hlosharding.report import View, conflicts_view, difference_view, propagation_view, show, trace_view


def execute(arguments: Namespace) -> None:
    """Write the program with its shardings, or the table of them, or how they came about."""
    program = GivenProgram.of(arguments)
    propagated = program.propagate()
    view = _view_asked_for(program, propagated)
    if view is not None:
        present(view, arguments.emit, arguments.output)
        return
    if arguments.emit == "json":
        write(as_json(propagation_view(propagated)), arguments.output)
    elif arguments.emit or not arguments.table:
        write(_in_form(propagated, arguments), arguments.output)
    if arguments.table:
        show(propagation_view(propagated))


def _in_form(propagated: Propagation, arguments: Namespace) -> str | bytes:
    if arguments.emit == "mesh":
        return mesh_text(propagated, "annotated")
    return in_format(propagated.module, arguments.emit or "hlo", metadata=arguments.metadata)


def _view_asked_for(program: GivenProgram, propagated: Propagation) -> View | None:
    """The steps, what another set of annotations changes, or the conflicts; None: the program itself."""
    arguments = program.arguments
    if arguments.trace:
        return trace_view(propagated)
    if arguments.diff:
        other = program.propagate(annotate(program.module, dict(arguments.diff)))
        return difference_view(diff(propagated, other))
    return conflicts_view(propagated.conflicts) if arguments.conflicts else None
