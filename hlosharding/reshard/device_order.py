"""The devices of a tile assignment put into other tile counts, so that as much as can stays where it is.

Floor: reshard.  Knows device ids and counts.
"""

from __future__ import annotations

import numpy as np

from hlosharding.reshard.layout import Dims, Table
from hlosharding.sharding import prime_factors


def in_source_order(devices: Table, have: Dims, want: Dims) -> Table:
    """The source's devices as an array of the target's counts; the last count is that of the copies.

    Of each dim what can stay stays, as its major part; the rest is free, prime by prime, for the dims that want more.
    From [4,2] to [2,4]: of the four along dim 0 two stay and two are free, which go behind the two of dim 1.

        devices [4,2]  as  [2 stay, 2 free | 2 stay]  ->  [2 | 2, 2 of dim 0]  as  [2,4]

    >>> in_source_order(np.arange(8).reshape(4, 2), (4, 2, 1), (2, 4, 1))[..., 0].tolist()
    [[0, 2, 1, 3], [4, 6, 5, 7]]
    """
    stays = np.gcd(have, want).tolist()
    sizes: list[int] = []
    order: list[list[int]] = []
    free: list[tuple[int, int]] = []  # (prime, its place in `sizes`)
    for count, kept in zip(have, stays, strict=True):
        order.append([len(sizes)])
        sizes.append(kept)
        for prime in prime_factors(count // kept):
            free.append((prime, len(sizes)))
            sizes.append(prime)
    # Copies first: they are cut, which makes smaller what else must move.
    free.sort(key=lambda one: one[1] < order[-1][0])
    for places, count, kept in zip(order, want, stays, strict=True):
        for prime in prime_factors(count // kept):
            taken = next(one for one in free if one[0] == prime)
            free.remove(taken)
            places.append(taken[1])
    return devices.reshape(sizes).transpose([place for places in order for place in places]).reshape(want)
