"""`hlosharding check`: does the program do worse under its plan than when the figures were recorded?  Without a plan:
is anything whole on every device that nobody asked to be?

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace

from hlosharding.cli.files import write
from hlosharding.cli.programs import GivenProgram, present
from hlosharding.compiler import Partitioned
from hlosharding.cost import machines
from hlosharding.plans import REPLICATED_OVER, check_plan, golden_path
from hlosharding.report import Table, accidents_view


def execute(arguments: Namespace) -> int:
    """Say how the program does; raise PlanError where it does worse.  With `--update`, record how it does."""
    if arguments.plan is None and arguments.update:
        arguments.usage_error("--update needs PLAN: the figures stand beside it")
    program = GivenProgram.of(arguments)
    count = program.num_devices
    # Not the machine at hand: figures that are recorded on one would be broken on the next.
    partitioned = program.partition(target=program.machine(count) or machines.h100(max(1, count)))
    return _accidents(partitioned, arguments) if arguments.plan is None else _held(partitioned, arguments)


def _accidents(partitioned: Partitioned, arguments: Namespace) -> int:
    """Exit status 1 where there are any."""
    view = accidents_view(partitioned, over=arguments.replicated_over or REPLICATED_OVER)
    present(view)
    return int(any(isinstance(part, Table) and bool(part.rows) for part in view.parts))


def _held(partitioned: Partitioned, arguments: Namespace) -> int:
    verdict = check_plan(
        arguments.plan,
        partitioned,
        update=arguments.update,
        tolerance=arguments.tolerance,
        replicated_over=arguments.replicated_over,
    )
    write(f"recorded in {golden_path(arguments.plan)}" if arguments.update else str(verdict), None)
    return 0
