"""The command line imports no room before it must, so its words stand there once more: they are the library's."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import get_args

from hlosharding.cli.parser import build_parser
from hlosharding.frontends.loading import ProgramFormat
from hlosharding.partitioner import OVERLAPS
from hlosharding.reshard import OBJECTIVES
from hlosharding.sharding import FORMATS


def choices(name: str) -> Iterator[set[str]]:
    """Of an option, in each command that has it."""
    [commands] = [a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction)]
    for command in commands.choices.values():
        yield from (set(a.choices) for a in command._actions if name in a.option_strings and a.choices)


def test_objectives() -> None:
    found = list(choices("--objective"))
    assert found
    assert all(words == set(OBJECTIVES) for words in found)


def test_overlaps() -> None:
    found = list(choices("--overlap"))
    assert found
    assert all(words == set(OVERLAPS) for words in found)


def test_formats_of_programs() -> None:
    found = list(choices("--format"))
    assert found
    assert all(words == set(get_args(ProgramFormat)) for words in found)


def test_formats_of_shardings() -> None:
    assert [*choices("--to"), *choices("--from")] == [{*FORMATS}] * 2
