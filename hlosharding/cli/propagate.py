"""`hlosharding propagate`: a sharding for every value.

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace

from hlosharding.cli.files import write
from hlosharding.cli.programs import (
    annotated_program,
    as_json,
    in_format,
    mesh_text,
    present,
    propagated_program,
)
from hlosharding.frontends import annotate
from hlosharding.ir import Module
from hlosharding.plans import diff
from hlosharding.propagation import Propagation
from hlosharding.report import View, conflicts_view, difference_view, propagation_view, show, trace_view


def execute(arguments: Namespace) -> None:
    """Write the program with its shardings, or the table of them, or how they came about."""
    module = annotated_program(arguments)
    propagated = propagated_program(arguments, module)
    view = _view_asked_for(propagated, module, arguments)
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


def _view_asked_for(propagated: Propagation, module: Module, arguments: Namespace) -> View | None:
    """The steps, what another set of annotations changes, or the conflicts; None: the program itself."""
    if arguments.trace:
        return trace_view(propagated)
    if arguments.diff:
        other = propagated_program(arguments, annotate(module, dict(arguments.diff)))
        return difference_view(diff(propagated, other))
    return conflicts_view(propagated.conflicts) if arguments.conflicts else None
