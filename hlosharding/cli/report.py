"""`hlosharding report`: all there is to say of a program, on the terminal, as one page, as JSON, as a picture.

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from hlosharding.cli.compile import as_asked
from hlosharding.cli.devices import choose_devices
from hlosharding.cli.files import read_program, working, write
from hlosharding.cli.programs import annotated_program, load_program, partitioned_program, partitions, present
from hlosharding.compiler import OptimizedProgram, Partitioned, compile_by_xla
from hlosharding.errors import ExecutionError
from hlosharding.ir import Module
from hlosharding.report import program_svg, report

_XLA = "xla"


def execute(arguments: Namespace) -> None:
    """Print the sections as tables, or write them as a page."""
    module = annotated_program(arguments)
    # What is suggested is tried on the module, which then says what is open.
    module.open_outputs = as_asked(arguments.to_outputs, module.open_outputs)
    module.open_parameters = as_asked(arguments.to_parameters, module.open_parameters)
    choose_devices("cpu", partitions(arguments, module))  # where XLA compiles; nothing runs
    partitioned = partitioned_program(arguments, module)
    other = _other(arguments, module, partitioned.num_partitions) if arguments.against else None
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


def _other(arguments: Namespace, module: Module, count: int) -> Partitioned | OptimizedProgram:
    """What to compare with: a program like FILE, or FILE as XLA's partitioner splits it, compiled for CPU devices."""
    if arguments.against != _XLA:
        return partitioned_program(arguments, load_program(arguments, read_program(arguments.against)))
    import jax

    devices = jax.devices("cpu")[:count]
    if len(devices) < count:
        raise ExecutionError(f"--against xla: {count} CPU devices are needed, JAX has {len(devices)}")
    with working("compiling by XLA's partitioner"):
        return compile_by_xla(
            module,
            devices,
            to_parameters=as_asked(arguments.to_parameters, module.open_parameters),
            to_outputs=as_asked(arguments.to_outputs, module.open_outputs),
        )
