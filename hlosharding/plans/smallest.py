"""The smallest part of a list that still does: halves are left out, then smaller pieces (delta debugging).

Floor: plans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def smallest(items: Sequence[Item], does: Callable[[Sequence[Item]], bool], most: int) -> list[Item]:
    """Of `items`, which do, a part of which no single one can be left out; after `most` questions what is found so far.

    >>> smallest(range(10), lambda part: {2, 7} <= set(part), most=100)
    [2, 7]
    """
    kept, asked, size = list(items), 0, len(items)
    while size and kept:
        start = len(kept)
        while start > 0 and asked < most:
            start -= size
            part = kept[: max(0, start)] + kept[max(0, start) + min(size, size + start) :]
            asked += 1
            if does(part):
                kept = part
        size //= 2
    return kept
