"""`hlosharding calibrate`: a machine file from measurements on the devices here.

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace

from hlosharding.cli.devices import use
from hlosharding.cli.files import write
from hlosharding.cli.programs import load_program, present
from hlosharding.cost import calibration_of
from hlosharding.progress import counting
from hlosharding.report import calibration_view


def execute(arguments: Namespace) -> None:
    """Measure, write the machine, and show how well it fits."""
    count = use(arguments.platform, arguments.devices)
    program = load_program(arguments) if arguments.file else None
    import jax

    with counting("measuring") as progress:
        found = calibration_of(jax.devices()[:count], program=program, progress=progress)
    write(found.text(), arguments.output)
    present(calibration_view(found), arguments.emit)
