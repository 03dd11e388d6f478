"""`hlosharding convert`: the program, or a sharding, in another format.

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace

from hlosharding.cli.files import read_text, write
from hlosharding.cli.programs import in_format, load_program
from hlosharding.executor import refuse_elided
from hlosharding.sharding import convert


def execute(arguments: Namespace) -> None:
    """Write FILE as `--emit` says, its shardings included; or `--sharding` as `--to` says."""
    is_sharding = arguments.sharding is not None
    wanted, foreign = ("to", ("emit",)) if is_sharding else ("emit", ("to", "source", "mesh", "ndim"))
    if getattr(arguments, wanted) is None or any(getattr(arguments, word) is not None for word in foreign):
        arguments.usage_error("write FILE --emit FORMAT, or --sharding TEXT --to FORMAT")
    if is_sharding:
        text = read_text() if arguments.sharding == "-" else arguments.sharding
        found = convert(text, arguments.to, mesh=arguments.mesh, ndim=arguments.ndim, source=arguments.source)
        write(str(found), arguments.output)
        return
    module = load_program(arguments)
    refuse_elided(module)  # nobody could tell made-up values from the program's in what is written
    write(in_format(module, arguments.emit, metadata=arguments.metadata), arguments.output)
