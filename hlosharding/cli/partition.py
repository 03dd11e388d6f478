"""`hlosharding partition`: what each device runs, and what that costs.

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace

from hlosharding import report
from hlosharding.cli.files import write
from hlosharding.cli.programs import as_json, in_format, partitioned_program
from hlosharding.compiler import Partitioned


def execute(arguments: Namespace) -> None:
    """Write the local program in the form asked for; without `--emit`, tables."""
    partitioned = partitioned_program(arguments)
    if arguments.emit:
        write(_in_form(partitioned, arguments), arguments.output)
    if arguments.collectives:
        report.show(report.collectives_view(partitioned))
    if arguments.cost:
        report.show(report.cost_view(partitioned.cost))
    if arguments.sharding_overrides:
        report.show(report.overrides_view(partitioned))
    if not (arguments.emit or arguments.collectives or arguments.cost or arguments.sharding_overrides):
        report.show(report.partitioned_view(partitioned))


def _in_form(partitioned: Partitioned, arguments: Namespace) -> str | bytes:
    if arguments.emit == "python":
        return partitioned.as_python()
    if arguments.emit == "json":
        return as_json(report.partitioned_view(partitioned))
    return in_format(partitioned.module, arguments.emit, metadata=arguments.metadata)
