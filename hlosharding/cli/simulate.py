"""`hlosharding simulate`: time and memory of one step, or of a schedule, on a machine nobody has booked.

Floor: cli.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Callable
from functools import partial

from hlosharding.cli.files import read_program, working, write
from hlosharding.cli.parser import build_parser
from hlosharding.cli.programs import GivenProgram, machine, present
from hlosharding.cost import Machine
from hlosharding.errors import HloShardingError
from hlosharding.report import schedule_view, simulation_view, timeline_svg
from hlosharding.schedule import Schedule, parse_schedule, simulate
from hlosharding.search import schedule_of
from hlosharding.whole_files import read_whole

# Possessive (*+), since // inside of // may be read in many ways: without it sixteen of them in a line took 17 s, and
# each four more take a hundred times as long.
_SCHEDULE = re.compile(rb"(?:\xef\xbb\xbf)?(?:\s|//[^\n]*)*+(?:func|program) @")
_OF_SCHEDULES = frozenset({"command", "file", "machine", "trace", "plot", "semantics", "runtime", "most", "emit"})


def execute(arguments: Namespace) -> None:
    """Print the prediction and the critical path; write the trace and the picture if they are asked for."""
    source = read_program(arguments.file)
    content = source if isinstance(source, bytes) else read_whole(source)
    if _SCHEDULE.match(content):
        _check_options(arguments)
        with working("simulating"):
            schedule = parse_schedule(content.decode("utf-8-sig", errors="replace"))
        _simulate_schedule(arguments, schedule, partial(machine, arguments))
        return
    program = GivenProgram.of(arguments, source)
    if program.plan.pipeline is not None or program.plan.batch:
        _simulate_schedule(arguments, _planned(program), program.machine)
    else:
        _simulate_program(program)


def _simulate_program(program: GivenProgram) -> None:
    arguments = program.arguments
    if arguments.plot:
        raise HloShardingError("--plot draws schedules, FILE is a program", remedy="take --trace, for Perfetto")
    if arguments.semantics != "overlap":
        raise HloShardingError("--semantics is of schedules, FILE is a program", remedy="leave it out")
    partitioned = program.partition()
    found = simulate(partitioned, partitioned.machine, combine=arguments.combine, runtime=arguments.runtime)
    present(simulation_view(found, most=arguments.most), arguments.emit)
    if arguments.trace:
        found.save_trace(arguments.trace)


def _planned(program: GivenProgram) -> Schedule:
    """The program cut as a plan with stages and microbatches says."""
    module = program.load()
    program.execute_rules(module.num_partitions)
    with working("cutting into stages"):
        return schedule_of(program.plan, module)


def _simulate_schedule(arguments: Namespace, schedule: Schedule, machine_for: Callable[[int], Machine | None]) -> None:
    with working("simulating"):
        target = machine_for(1 + max(schedule.devices, default=0))
        found = simulate(schedule, target, semantics=arguments.semantics, runtime=arguments.runtime)
    present(schedule_view(found, most=arguments.most), arguments.emit)
    if arguments.trace:
        found.save_trace(arguments.trace)
    if arguments.plot:
        write(timeline_svg(found), arguments.plot)
    found.check_memory()


def _check_options(arguments: Namespace) -> None:
    """Raises HloShardingError for an option that says how a program is partitioned: a schedule says that itself."""
    # Behind -- a file may be called -x.
    usual = vars(build_parser().parse_args(["simulate", "--", arguments.file]))
    for name, value in vars(arguments).items():
        if name not in _OF_SCHEDULES and value != usual[name]:
            option = ("--no-" if value is False else "--") + name.replace("_", "-")
            raise HloShardingError(f"{option} is of programs, FILE holds a schedule", remedy="leave it out")
