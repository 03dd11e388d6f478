"""The open dims of a `Sharding` call, those that propagation may split further.

Floor: ir.  XLA spells them in the call's opaque string.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hlosharding.errors import PropagationError

_UNSPECIFIED = re.compile(r"\s*+unspecified_dims\s*+=\s*+\[[\s,]*+((?:-?[0-9]{1,9}(?:[\s,]++|(?=\])))*+)\]\s*+,?")


def unspecified_dims(opaque: str) -> tuple[int, ...]:
    """The open dims that a `Sharding` call's opaque string names, sorted.

    >>> unspecified_dims("unspecified_dims=[2,0]")
    (0, 2)
    """
    place, end, dims = 0, len(opaque.rstrip()), []
    while place < end:
        match = _UNSPECIFIED.match(opaque, place)
        if not match:
            raise PropagationError(
                f"cannot read the sharding attributes {opaque[:200]!r}",
                remedy='write them like "unspecified_dims=[0,2]"',
            )
        dims += [int(d) for d in match.group(1).replace(",", " ").split()]
        place = match.end()
    return tuple(sorted(dims))


def unspecified_dims_text(open_dims: Iterable[int]) -> str:
    """The opaque string of a `Sharding` call with these open dims.

    >>> unspecified_dims_text((0, 2))
    'unspecified_dims=[0,2]'
    """
    return f"unspecified_dims=[{','.join(map(str, open_dims))}]"
