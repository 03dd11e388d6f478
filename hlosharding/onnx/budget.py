"""How much a model may ask for beyond what its file holds: one budget for each load, charged before anything is made.

Floor: onnx.  A file of a hundred bytes can ask for terabytes (a shape to fill, a count of repeats) and for nodes
without end (functions that call functions twice, loops in loops).  What stands in the file itself is free: whoever
means it may write it out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, SupportsInt

import numpy as np

from hlosharding.errors import LoadError

_BYTES = 1 << 30
"""Of all values that are computed while a model is read.  ONNX's own largest model of filled weights (VGG-19) makes
0.6 GB; whoever runs JAX has as much memory."""
_ADDRESSABLE = 1 << 60
"""XLA counts bytes in 64 bits, and what an operator makes on its way may be a little larger."""
_NODES = 100_000
"""That come again: calls of functions, trips of loops that are traced one by one.  About a minute; a large language
model has 50,000 in all."""


_Budget = dict[str, int]
"""By unit what is left of it."""


def _whole() -> _Budget:
    return {"bytes": _BYTES, "nodes": _NODES}


_current: ContextVar[_Budget | None] = ContextVar("budget of the model that is read", default=None)


@contextmanager
def one_budget() -> Iterator[None]:
    """What is made inside shares one budget."""
    token = _current.set(_whole())
    try:
        yield
    finally:
        _current.reset(token)


def charge_bytes(count: int) -> None:
    """Before so many bytes are made.  Raises LoadError where they are more than is left.

    >>> charge_bytes(1 << 40)
    Traceback (most recent call last):
    ...
    hlosharding.errors.LoadError: 1,099,511,627,776 bytes are to be made while the model is read, and 1,073,741,824 \
are left; values that the file holds are taken: fold constants before
    """
    remedy = "values that the file holds are taken: fold constants before"
    _charge("bytes", count, "be made while the model is read", remedy)


def charge_array(dims: Iterable[SupportsInt], itemsize: int = 8) -> None:
    """Before an array of such dims is made.  Raises LoadError where one is negative, too.

    >>> charge_array((2, -3))
    Traceback (most recent call last):
    ...
    hlosharding.errors.LoadError: a shape of [2, -3]
    """
    sizes = [int(n) for n in dims]
    if min(sizes, default=0) < 0:
        raise LoadError(f"a shape of {sizes}")
    charge_bytes(math.prod(sizes) * itemsize)


def check_size(dims: Sequence[int], dtype: Any) -> None:
    """Raises LoadError for an array that no program can have, nobody makes it now or not.

    >>> check_size((1 << 40, 1 << 40), np.int8)
    Traceback (most recent call last):
    ...
    hlosharding.errors.LoadError: an array of int8[1099511627776, 1099511627776], which no machine holds
    """
    # A dim alone may be too long, or none, whatever the others are.
    sizes = math.prod(dims) * np.dtype(dtype).itemsize, *dims
    if max(sizes) > _ADDRESSABLE or min(sizes) < 0:
        raise LoadError(f"an array of {np.dtype(dtype)}{list(dims)}, which no machine holds")


def charge_nodes(count: int) -> None:
    """Before so many nodes come again.  Raises LoadError where they are more than are left.

    >>> charge_nodes(2**30)
    Traceback (most recent call last):
    ...
    hlosharding.errors.LoadError: 1,073,741,824 nodes are to come beyond those of the file, and 100,000 are left; \
nodes that the file holds are taken: inline functions and unroll loops before
    """
    remedy = "nodes that the file holds are taken: inline functions and unroll loops before"
    _charge("nodes", count, "come beyond those of the file", remedy)


def _charge(unit: str, count: int, fate: str, remedy: str) -> None:
    budget = _current.get() or _whole()
    if count > budget[unit]:
        said = f"{_number(count)} {unit} are to {fate}, and {budget[unit]:,} are left"
        raise LoadError(said, remedy=remedy)
    budget[unit] -= count


def _number(count: int) -> str:
    """Of any size: functions of functions ask for numbers that Python would not print."""
    return f"{count:,}" if count < 1 << 64 else "more than 2**64"
