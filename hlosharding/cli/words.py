"""How the words of a command line are read: one function for each kind, as argparse's `type=`.

Floor: cli.  Standard library only until a word needs more; each raises `argparse.ArgumentTypeError`.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import re
from functools import partial
from typing import Any

# Names may hold an equals sign, as paths of dicts do (p['a=b']): the first behind which a sharding begins counts.
_ANNOTATION = re.compile(r"(?P<name>.+?)=(?P<sharding>\{.*|(P|PartitionSpec)\(.*|\(.*)", re.DOTALL)


def read_words(text: str) -> list[str]:
    """'fsdp,zero2'."""
    return text.split(",")


def read_names(text: str) -> tuple[str, ...]:
    """'main,host'."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def read_positive(text: str) -> int:
    """A whole number from 1 on."""
    # int() alone would take signs, blanks and underscores, too.
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return int(text)


def read_counts(text: str) -> tuple[int, ...]:
    """Positive numbers, as 2,4,8."""
    return tuple(read_positive(part.strip()) for part in text.split(","))


def read_plans(text: str) -> tuple[Any, ...]:
    """'8/1/1/1 fsdp,2/2/2/4'."""
    from hlosharding.errors import HloShardingError
    from hlosharding.search import Plan

    try:
        return tuple(map(Plan.parse, text.split(",")))
    except HloShardingError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _read_natural(what: str, text: str) -> int:
    """A whole number from 0 on."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is no {what}: write 0, 1, 2 ...")
    return int(text)


read_seed, read_rank = partial(_read_natural, "seed"), partial(_read_natural, "rank")


def read_tolerance(text: str) -> float:
    """A number from 0 on; not inf, by which everything would be within."""
    with contextlib.suppress(ValueError):
        # nan is refused with what is below 0, as it is not above.
        if 0 <= (value := float(text)) < math.inf:
            return value
    raise argparse.ArgumentTypeError(f"{text} is no tolerance: write 0, 0.01, 1e-4 ...")


def read_mesh(text: str) -> dict[str, int]:
    """'data=2,model=4'."""
    axes: dict[str, int] = {}
    for part in text.split(","):
        name, equals, size = part.partition("=")
        if not (name and equals and size.isdecimal() and int(size)) or name in axes:
            raise argparse.ArgumentTypeError(f"{text!r} is no mesh: write axis=size,axis=size, as data=2,model=4")
        axes[name] = int(size)
    return axes


def read_input(text: str) -> tuple[str, str]:
    """'x=f32[8,16]': the name, and the shape or the value as text."""
    # The last one: names may hold equals signs, shapes and values do not.
    name, equals, said = text.rpartition("=")
    if not (name and equals and said):
        raise argparse.ArgumentTypeError(f"{text!r} is no input: write NAME=f32[8,16], or NAME=3")
    return name, said


def read_annotation(text: str) -> tuple[str, str]:
    """'x={devices=[8]<=[8]}' or 'x=P(data, None)': the name, and the text of the sharding."""
    found = _ANNOTATION.fullmatch(text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no annotation: write NAME={{...}} or NAME=P(axis, None)")
    sharding = "P" + found["sharding"] if found["sharding"].startswith("(") else found["sharding"]
    if not sharding.startswith("{"):
        _check_spec(sharding)
    return found["name"], sharding


def _check_spec(text: str) -> None:
    from hlosharding.sharding import spec_from_text

    try:
        spec_from_text(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no PartitionSpec: write P(axis, None, (axis, axis))") from None


def read_trips(text: str) -> tuple[str, int]:
    """'while.7=100' or 'model.py:31=100'."""
    name, equals, count = text.rpartition("=")
    if not (name and equals and count.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} states no trips: write LOOP=N, as while.7=100")
    return name, int(count)


def read_machine(text: str) -> tuple[str, int | None]:
    """'h100:16' or 'h100': a preset, and how many devices; or a TOML file."""
    if text.endswith(".toml"):
        return text, None
    from hlosharding.cost import parse_machine
    from hlosharding.errors import CostError

    try:
        return parse_machine(text)
    except CostError as error:
        raise argparse.ArgumentTypeError(f"{error.what}: {error.remedy}") from None
