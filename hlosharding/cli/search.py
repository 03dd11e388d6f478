"""`hlosharding search`: the best data, tensor and pipeline parallelism of a step for a machine.

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace

from hlosharding import report
from hlosharding.cli.files import counting
from hlosharding.cli.programs import load_program, present
from hlosharding.cost import Machine, machine_named, read_machine
from hlosharding.errors import CostError
from hlosharding.search import MICROBATCHES, search


def execute(arguments: Namespace) -> None:
    """Print the plans, the fastest first, and why it won."""
    module = load_program(arguments)
    with counting("pricing plans") as progress:
        found = search(
            module,
            batch=arguments.batch,
            machine=_machine(*arguments.machine),
            microbatches=arguments.microbatches or MICROBATCHES,
            prune=not arguments.all,
            progress=progress,
        )
    present(report.search_view(found, most=arguments.most), arguments.emit)


def _machine(name: str, devices: int | None) -> Machine:
    """Of a file, or a preset.  Raises CostError for one without a number of devices."""
    if name.endswith(".toml"):
        return read_machine(name)
    if devices is None:
        raise CostError(f"--machine {name} says no number of devices", remedy=f"write {name}:16")
    return machine_named(name, devices)
