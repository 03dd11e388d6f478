"""`hlosharding diff`: what differs between two programs, or two plans of one.

Floor: cli.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from hlosharding.cli.files import read_program
from hlosharding.cli.programs import GivenProgram, machine, present
from hlosharding.compiler import Partitioned
from hlosharding.errors import HloShardingError
from hlosharding.ir import Module
from hlosharding.plans import diff, is_per_device
from hlosharding.report import difference_view


def execute(arguments: Namespace) -> int:
    """Print the differences; 1 where `--exit-code` is given and there are some."""
    if arguments.of is not None and arguments.plan is not None:
        raise HloShardingError("--plan beside --of: A and B are the plans", remedy="leave --plan out")
    files = (arguments.before, arguments.after)
    # A pipe, or standard input, can be read but once.
    sources = {name: read_program(name) for name in {arguments.of or file for file in files}}
    before, after = (_program(arguments, file, sources[arguments.of or file]) for file in files)
    count = max(before.num_partitions, after.num_partitions)
    found = diff(before, after, machine=machine(arguments, count))
    names = _names(arguments.before, arguments.after)
    present(difference_view(found, names=names, most=arguments.most), arguments.emit, arguments.output)
    return int(arguments.exit_code and not found.is_same)


def _program(arguments: Namespace, file: str, source: Path | bytes) -> Module | Partitioned:
    """The program of a file, or of `--of` with the plan of a file; what is not split yet is partitioned."""
    own = arguments if arguments.of is None else Namespace(**{**vars(arguments), "plan": file})
    program = GivenProgram.of(own, source)
    return program.module if is_per_device(program.module) else program.partition()


def _names(before: str, after: str) -> tuple[str, str]:
    """What people call the two: the names of the files without folders, where that tells them apart."""
    short = Path(before).name, Path(after).name
    return short if short[0] != short[1] else (before, after)
