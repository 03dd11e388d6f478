"""`hlosharding suggest`: which annotations would split a value that is left whole, end a conflict, make a collective
cheaper, or the whole program fastest; and the source with them.

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from hlosharding.cli.files import write
from hlosharding.cli.programs import GivenProgram, present
from hlosharding.errors import AnnotationError
from hlosharding.ir import Module
from hlosharding.report import suggestions_view
from hlosharding.search import Suggestion, suggest


def execute(arguments: Namespace) -> None:
    """Print the best suggestions, or the best one as a patch.  Raises AnnotationError where none was found."""
    if arguments.output is not None and arguments.apply is None:
        arguments.usage_error("--output needs --apply SOURCE.py")
    program = GivenProgram.of(arguments)
    count = program.num_devices
    found = suggest(
        program.module,
        arguments.name,
        conflict=arguments.conflict,
        most=arguments.most,
        to_outputs=arguments.to_outputs,
        to_parameters=arguments.to_parameters,
        num_partitions=count,
        machine=program.machine(count),
        options=program.options,
    )
    if not found and arguments.emit != "json":
        raise _nothing(arguments)
    if arguments.apply is not None:
        _apply(program.module, found, arguments)
    else:
        present(suggestions_view(found), arguments.emit)
    if arguments.save_plan and found:
        found[0].plan_file(program.plan).write(arguments.save_plan)


def _nothing(arguments: Namespace) -> AnnotationError:
    name, conflict = arguments.name, arguments.conflict
    if name is None:
        return AnnotationError("no annotations were found with which it is faster", remedy="name a value that is whole")
    goal = f"ends its conflict with %{conflict.removeprefix('%')}" if conflict else "does it"
    where = name if ":" in name or name.startswith("#") else f"%{name.removeprefix('%')}"
    return AnnotationError(f"no set of annotations near {where} {goal}", remedy="give it a sharding of its own")


def _apply(module: Module, found: Sequence[Suggestion], arguments: Namespace) -> None:
    """The best one in the source: as a patch behind what it saves, or, with `--output`, as a copy."""
    # None was found where a record says so: `--emit json` goes on without.
    for best in found[:1]:
        change = best.change_source(module, arguments.apply)
        if arguments.output is None:
            write(f"# {best}\n{change}", None)
        else:
            change.write(arguments.output)
