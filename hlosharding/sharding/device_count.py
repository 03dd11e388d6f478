"""How many devices a sharding, a mesh or a program may name: more are refused before anything is listed for each.

Floor: sharding.
"""

from __future__ import annotations

from collections.abc import Iterable

from hlosharding.errors import ShardingError

MOST_DEVICES = 1 << 20
"""More than there are in any machine; what is kept for each of so many still takes megabytes, not gigabytes."""


def count_devices(sizes: Iterable[int]) -> int:
    """How many devices axes or tiles of these sizes are over.  Raises ShardingError for more than can be listed.

    >>> count_devices((2, 4))
    8
    >>> count_devices((1 << 30, 1 << 30))
    Traceback (most recent call last):
    ...
    hlosharding.errors.ShardingError: 1073741824 devices are more than the 1048576 that can be listed
    """
    count = 1
    for size in sizes:  # step by step: the product of a stranger's numbers may be too long to be shown
        count *= size
        check_devices(count)
    return count


def check_devices(count: int) -> None:
    """Raise ShardingError for more devices than can be listed."""
    if count > MOST_DEVICES:
        raise ShardingError(f"{count} devices are more than the {MOST_DEVICES} that can be listed")
