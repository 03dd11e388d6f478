"""TOML and JSON in small files that strangers write: read within bounds, to values that can be shown and written again.

Floor: ground.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from typing import Any, NoReturn, cast

from hlosharding.errors import HloShardingError
from hlosharding.printable import is_writable
from hlosharding.whole_files import read_whole

_LARGEST = 4 * 2**20
"""Bytes; the largest plans and machines have some thousands, and `tomllib` takes seconds for so many."""
_MOST_DOTS = 64
_LARGEST_INTEGER = 2**63 - 1
"""As TOML's own; Python would not even show those of 5000 digits."""
# Blanked out first: what keys, strings and comments have in common is that none of them is looked into.
# One that never ends reaches to the end, so that none is looked for behind its start again.
_STRING = re.compile(
    r'"""(?:[^"\\]++|\\.|"(?!""))*+(?:"""|\\?\Z)'
    r"|'''(?:[^']++|'(?!''))*+(?:'''|\Z)"
    r'|"(?:[^"\\\n]++|\\.)*+(?:"|\n|\\?\Z)'
    r"|'[^'\n]*+(?:'|\n|\Z)"
    r"|#[^\n]*+",
    re.DOTALL,
)
_PART = r"[A-Za-z0-9_\-\"]++[ \t]*+"
_LONG_KEY = re.compile(rf"(?<![A-Za-z0-9_\-\".]){_PART}(?:\.[ \t]*+{_PART}){{{_MOST_DOTS}}}")


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
    blanked = _STRING.sub(lambda found: '"' + "\n" * found[0].count("\n"), text)
    if (dotted := _LONG_KEY.search(blanked)) is not None:
        line = blanked.count("\n", 0, dotted.start()) + 1
        remedy = f"write at most {_MOST_DOTS} dots in a key"
        raise error(f"{name} is no such file", where=f"line {line}", remedy=remedy)
    try:
        found = tomllib.loads(text)
    except (ValueError, RecursionError) as fault:
        raise error(f"{name} is no TOML: {str(fault)[:200]}") from None
    _check_values(name, found, error)
    return found


def parsed_json(name: str, text: str, error: type[HloShardingError]) -> dict[str, Any]:
    """The object of a text.  Raises `error`, for what TOML would refuse, too.

    >>> parsed_json("the plan", '{"machine": "h100:8"}', HloShardingError)
    {'machine': 'h100:8'}
    """
    try:
        found = json.loads(text, object_pairs_hook=_each_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as fault:
        raise error(f"{name} is no JSON: {str(fault)[:200]}") from None
    if not isinstance(found, dict):
        raise error(f"{name} holds no object", remedy="write one with the keys mesh, machine, annotations")
    _check_values(name, found, error)
    return cast("dict[str, Any]", found)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """As TOML wants it: no key twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands there twice")
    return found


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON's")


def _check_values(name: str, values: Any, error: type[HloShardingError]) -> None:
    """Raises `error` for what Python reads and nobody can write: endless integers, halves of letters."""
    waiting: list[Any] = [values]  # not by recursion: they may be nested as deep as the parsers go
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [*value, *cast("Mapping[str, Any]", value).values()]
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, int) and abs(value) > _LARGEST_INTEGER:
            raise error(f"{name} has a number of more than 63 bits", remedy="write a smaller one")
        elif isinstance(value, str) and not is_writable(value):
            raise error(f"{name} has half a letter: {ascii(value)[:100]}", remedy="write a whole one")
