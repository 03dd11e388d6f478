"""`hlosharding check`: does the program do worse under its plan than when the figures were recorded?

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace

from hlosharding.cli.files import write
from hlosharding.cli.programs import GivenProgram
from hlosharding.cost import machines
from hlosharding.plans import check_plan, golden_path


def execute(arguments: Namespace) -> None:
    """Say how the program does; raise PlanError where it does worse.  With `--update`, record how it does."""
    program = GivenProgram.of(arguments)
    count = program.num_devices
    verdict = check_plan(
        arguments.plan,
        program.partition(target=program.machine(count) or machines.h100(max(1, count))),
        update=arguments.update,
        tolerance=arguments.tolerance,
        replicated_over=arguments.replicated_over,
    )
    said = f"recorded in {golden_path(arguments.plan)}" if arguments.update else str(verdict)
    write(said, None)
