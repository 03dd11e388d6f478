"""`hlosharding check`: does the program do worse under its plan than when the figures were recorded?

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace

from hlosharding.cli.files import write
from hlosharding.cli.programs import annotated_program, partitioned_program, partitions, plan_of
from hlosharding.cost import machines
from hlosharding.plans import check_plan, golden_path


def execute(arguments: Namespace) -> None:
    """Say how the program does; raise PlanError where it does worse.  With `--update`, record how it does."""
    module = annotated_program(arguments)
    plan_of(arguments)
    target = None if arguments.machine else machines.h100(max(1, partitions(arguments, module)))
    verdict = check_plan(
        arguments.plan,
        partitioned_program(arguments, module, target=target),
        update=arguments.update,
        tolerance=arguments.tolerance,
        replicated_over=arguments.replicated_over,
    )
    said = f"recorded in {golden_path(arguments.plan)}" if arguments.update else str(verdict)
    write(said, None)
