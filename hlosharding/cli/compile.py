"""`hlosharding compile`: what XLA makes of the program for GPUs that need not be there.

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from hlosharding.cli.files import working, write
from hlosharding.cli.programs import GivenProgram, present
from hlosharding.cli.run import choose_devices
from hlosharding.compiler import OptimizedProgram, compile_by_xla, compile_for
from hlosharding.cost import Topology, topology
from hlosharding.errors import CostError, ExecutionError
from hlosharding.report import executable_view


def execute(arguments: Namespace) -> None:
    """Compile our program and XLA's for the target; show memory and collectives, write the HLO of ours."""
    program = GivenProgram.of(arguments)
    choose_devices("cpu", 1)  # nothing runs
    target = _target(program)
    partitioned = program.partition(count=len(target.devices), target=target.machine)
    with working("compiling"):
        ours = compile_for(partitioned, target.devices)
    xla = _compiled_by_xla(program, target.devices)
    if arguments.output:
        write(ours.text, arguments.output)
    if arguments.output != "-":
        present(executable_view(partitioned, ours, xla, target.machine.name), arguments.emit)


def compiled_on_cpu(program: GivenProgram, count: int) -> OptimizedProgram:
    """FILE as XLA's partitioner splits it, compiled for CPU devices.  Raises ExecutionError for too few."""
    import jax

    devices = jax.devices("cpu")[:count]
    if len(devices) < count:
        raise ExecutionError(f"for XLA's own program {count} CPU devices are needed, JAX has {len(devices)}")
    return _compiled_by_xla(program, devices)


def _compiled_by_xla(program: GivenProgram, devices: Sequence[Any]) -> OptimizedProgram:
    module, said = program.module, program.arguments
    with working("compiling by XLA's partitioner"):
        return compile_by_xla(
            module,
            devices,
            to_parameters=as_asked(said.to_parameters, module.open_parameters),
            to_outputs=as_asked(said.to_outputs, module.open_outputs),
        )


def as_asked(asked: bool | None, own: bool | tuple[bool, ...]) -> tuple[bool, ...]:
    """Whose shardings at the edge XLA may choose: as the command line says, else as the module does."""
    found = own if asked is None else asked
    return (found,) if isinstance(found, bool) else found


def _target(program: GivenProgram) -> Topology:
    """As many GPUs as the program is for; a program that does not say so is for all of the target's."""
    (name, devices), count = program.arguments.target, program.num_devices
    if devices is not None and count not in (1, devices):
        raise CostError(
            f"--target {name}:{devices} has {devices} devices, the program is for {count}",
            remedy=f"write {name}:{count}, or {name} alone",
        )
    return topology(name, devices or count)
