"""`hlosharding suggest`: which annotations would split a value that is left whole, end a conflict, or make the whole
program fastest.

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace

from hlosharding.cli.explain import find_values
from hlosharding.cli.programs import GivenProgram, present
from hlosharding.errors import AnnotationError
from hlosharding.report import suggestions_view
from hlosharding.search import suggest


def execute(arguments: Namespace) -> None:
    """Print the best suggestions.  Raises AnnotationError where none was found."""
    program = GivenProgram.of(arguments)
    module = program.module
    name = find_values(module, arguments.name)[0].name if arguments.name is not None else None
    count = program.num_devices
    found = suggest(
        module,
        name,
        conflict=arguments.conflict,
        most=arguments.most,
        to_outputs=arguments.to_outputs,
        to_parameters=arguments.to_parameters,
        num_partitions=count,
        machine=program.machine(count),
        options=program.options,
    )
    if not found and name is None and arguments.emit != "json":
        raise AnnotationError("no annotations were found with which it is faster", remedy="name a value that is whole")
    if not found and arguments.emit != "json":
        goal = f"ends its conflict with %{arguments.conflict.removeprefix('%')}" if arguments.conflict else "does it"
        raise AnnotationError(f"no set of annotations near %{name} {goal}", remedy="give it a sharding of its own")
    present(suggestions_view(found), arguments.emit)
    if arguments.save_plan and found:
        found[0].plan_file(program.plan).write(arguments.save_plan)
