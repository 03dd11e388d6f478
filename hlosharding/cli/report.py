"""`hlosharding report`: all there is to say of a program, on the terminal, as one page, as JSON, as a picture.

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from hlosharding.cli.compile import as_asked, compiled_on_cpu
from hlosharding.cli.devices import choose_devices
from hlosharding.cli.files import read_program, working, write
from hlosharding.cli.programs import GivenProgram, present
from hlosharding.compiler import OptimizedProgram, Partitioned
from hlosharding.plans import PlanFile
from hlosharding.report import program_svg, report

_XLA = "xla"


def execute(arguments: Namespace) -> None:
    """Print the sections as tables, or write them as a page."""
    program = GivenProgram.of(arguments)
    module = program.module
    # What is suggested is tried on the module, which then says what is open.
    module.open_outputs = as_asked(arguments.to_outputs, module.open_outputs)
    module.open_parameters = as_asked(arguments.to_parameters, module.open_parameters)
    choose_devices("cpu", program.num_devices)  # where XLA compiles; nothing runs
    partitioned = program.partition()
    other = _other(program, partitioned.num_partitions) if arguments.against else None
    names = _name(arguments.file), "XLA's own" if arguments.against == _XLA else _name(arguments.against or "")
    with working("reporting"):
        found = report(partitioned, against=other, names=names, suggest=arguments.suggest)
    if arguments.plot:
        write(program_svg(partitioned), arguments.plot)
    if arguments.output and not arguments.emit:
        write(found.to_page(), arguments.output)
    elif arguments.emit or not arguments.plot:
        present(found.view, arguments.emit, arguments.output)


def _name(file: str) -> str:
    return "standard input" if file == "-" else Path(file).name


def _other(program: GivenProgram, count: int) -> Partitioned | OptimizedProgram:
    """What to compare with: a program like FILE, or FILE as XLA's partitioner splits it, compiled for CPU devices."""
    arguments = program.arguments
    if arguments.against != _XLA:
        plan = PlanFile(machine=program.plan.machine, objective=program.plan.objective)
        is_same = arguments.against == arguments.file  # standard input can be read but once
        source = program.source if is_same else read_program(arguments.against)
        return replace(program, source=source, plan=plan).partition()
    return compiled_on_cpu(program, count)
