"""`hlosharding convert`: the program in another format.

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace

from hlosharding.cli.files import write
from hlosharding.cli.programs import in_format, load_program


def execute(arguments: Namespace) -> None:
    """Write FILE as `--emit` says, its shardings included."""
    module = load_program(arguments)
    write(in_format(module, arguments.emit, metadata=arguments.metadata), arguments.output)
