"""`hlosharding explain`: why a value has its sharding, or why a collective is there.

Floor: cli.
"""

from __future__ import annotations

import re
from argparse import Namespace

from hlosharding.cli.compile import compiled_on_cpu
from hlosharding.cli.devices import choose_devices
from hlosharding.cli.programs import GivenProgram, present
from hlosharding.compiler import CollectiveExplanation, explain_line, is_line
from hlosharding.report import View, collective_explanations_view, explanations_view, split_view

# Ahead of a line the colon is needed: xlamodel.py:31 is a line of a file that is called so.
_OF_XLA = re.compile(r"xla:?(?P<which>#\d+|(?<=:).+)")
"""xla#3, or xla:model.py:31."""


def execute(arguments: Namespace) -> None:
    """Print the chain of causes of each value that NAME means, or of each collective."""
    present(_answer(arguments), arguments.emit)


def _answer(arguments: Namespace) -> View:
    program, name = GivenProgram.of(arguments), arguments.name
    if (of_xla := _OF_XLA.fullmatch(name)) is not None:
        return collective_explanations_view(_of_xla(program, of_xla["which"]))
    if arguments.collectives or name.startswith("#"):
        return collective_explanations_view(program.partition().explain_collectives(name))
    if arguments.splits:
        return split_view(program.partition().explain(name))
    propagated = program.propagate()
    told = explain_line(propagated, name) if is_line(name) else [propagated.explain(name)]
    return explanations_view(told, whole=arguments.whole)


def _of_xla(program: GivenProgram, which: str) -> list[CollectiveExplanation]:
    """Of collectives of the program that XLA's own partitioner makes of FILE."""
    count = program.num_devices
    choose_devices("cpu", count)  # where XLA compiles; nothing runs
    return program.partition().explain_collectives(which, of=compiled_on_cpu(program, count).collectives)
