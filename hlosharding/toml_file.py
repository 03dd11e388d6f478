"""TOML in small files that strangers write: read within bounds.

Floor: ground.
"""

from __future__ import annotations

import os
import tomllib
from typing import Any

from hlosharding.errors import HloShardingError
from hlosharding.whole_files import read_whole

_LARGEST = 16 * 2**20
_MOST_DOTS = 64


def read_text(path: str | os.PathLike[str], error: type[HloShardingError]) -> str:
    """A small file of text.  Raises `error`."""
    data = read_whole(path, error, most=_LARGEST, remedy="is it the file that you mean?")
    try:
        return data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as found:
        raise error(f"{path} is no text: {found.reason}", where=f"byte {found.start}") from None


def parsed_toml(name: str, text: str, error: type[HloShardingError]) -> dict[str, Any]:
    """The tables of a text; `name`: what messages call it.  Raises `error`.

    >>> parsed_toml("the plan", "machine = 'h100:8'", HloShardingError)
    {'machine': 'h100:8'}
    """
    # The time that a key takes grows with the square of its dots.
    dotted = next((number for number, line in enumerate(text.split("\n"), 1) if line.count(".") > _MOST_DOTS), None)
    if dotted is not None:
        remedy = f"write at most {_MOST_DOTS} dots in a line"
        raise error(f"{name} is no such file", where=f"line {dotted}", remedy=remedy)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as found:
        raise error(f"{name} is no TOML: {str(found)[:200]}") from None
