"""`hlosharding export`: what a stock `jax.jit` needs to follow the program's shardings.

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace

from hlosharding.cli.devices import choose_devices
from hlosharding.cli.files import working, write
from hlosharding.cli.programs import GivenProgram, present
from hlosharding.plans import export_plan
from hlosharding.report import difference_view, exported_view, show


def execute(arguments: Namespace) -> None:
    """Write the Python; with `--compare`, show XLA's own program under the plan beside ours."""
    program = GivenProgram.of(arguments)
    choose_devices("cpu", program.num_devices)
    partitioned = program.partition()
    with working("looking for constraints"):
        exported = export_plan(partitioned)
    if arguments.emit == "json":
        present(exported_view(exported), "json", arguments.output)
    elif arguments.output or not arguments.compare:
        write(str(exported), arguments.output)
    if arguments.compare:
        with working("compiling by XLA"):
            found = exported.compare()
        show(difference_view(found, names=("XLA", "hlosharding")))
