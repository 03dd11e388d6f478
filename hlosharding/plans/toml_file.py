"""TOML in small files that strangers write: read within bounds.

Floor: plans.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from hlosharding.errors import PlanError

_LARGEST = 16 * 2**20
_MOST_DOTS = 64


def read_text(path: Path) -> str:
    """A file of text.  Raises PlanError."""
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise PlanError(f"cannot read {path}: {error.strerror or error}") from None
    if len(data) > _LARGEST:
        raise PlanError(f"{path} has more than {_LARGEST:,} bytes", remedy="a plan is small: is it one?")
    try:
        return data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise PlanError(f"{path} is no text: {error.reason}", where=f"byte {error.start}") from None


def parsed_toml(name: str, text: str) -> dict[str, Any]:
    """The tables of a text; `name`: what messages call it.  Raises PlanError.

    >>> parsed_toml("the plan", "machine = 'h100:8'")
    {'machine': 'h100:8'}
    """
    # The time that a key takes grows with the square of its dots.
    dotted = next((number for number, line in enumerate(text.split("\n"), 1) if line.count(".") > _MOST_DOTS), None)
    if dotted is not None:
        remedy = f"write at most {_MOST_DOTS} dots in a line"
        raise PlanError(f"{name} is no such file", where=f"line {dotted}", remedy=remedy)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{name} is no TOML: {str(error)[:200]}") from None
