"""Which mesh axes a collective runs over: device groups back into the user's words.

Floor: spmd.  Device ids are positions in the device assignment, which counts row-major over the mesh.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np

from hlosharding.sharding import MeshInfo
from hlosharding.spmd.participants import Groups, Pairs


def axes_of_groups(groups: Groups, mesh: MeshInfo) -> str:
    """Names of the axes along which each group runs, "" if the groups are no box of axes.

    A part of an axis is written as Shardy does: `x:(2)4` is the sub-axis of size 4 below the first 2.

    >>> from hlosharding.sharding import MeshInfo
    >>> mesh = MeshInfo(("data", "model"), (2, 4))
    >>> axes_of_groups(((0, 1, 2, 3), (4, 5, 6, 7)), mesh), axes_of_groups(((0, 2), (1, 3), (4, 6), (5, 7)), mesh)
    ('model', 'model:(1)2')
    """
    return _axes_of_groups(groups, mesh.names, mesh.sizes)


def axes_of_pairs(pairs: Pairs, mesh: MeshInfo) -> str:
    """Names of the axes along which sources and targets of a permute differ.

    >>> from hlosharding.sharding import MeshInfo
    >>> mesh = MeshInfo(("data", "model"), (2, 4))
    >>> axes_of_pairs(((0, 4), (4, 0)), mesh)
    'data'
    """
    return _axes_of_pairs(pairs, mesh.names, mesh.sizes)


@lru_cache(maxsize=4096)
def _axes_of_groups(groups: Groups, names: tuple[str, ...], sizes: tuple[int, ...]) -> str:
    total = prod(sizes)
    if len({len(g) for g in groups}) != 1 or sorted(d for g in groups for d in g) != list(range(total)):
        return ""
    parts = [_along(axis, name, sizes, groups) for axis, name in enumerate(names)]
    if any(part is None for part in parts) or prod(part[1] for part in parts if part) != len(groups[0]):
        return ""
    return ",".join(part[0] for part in parts if part and part[0])


def _along(axis: int, name: str, sizes: tuple[int, ...], groups: Groups) -> tuple[str, int] | None:
    """(text, members) of the part of one axis that a group covers; None if that is no sub-axis."""
    size = sizes[axis]
    inner = prod(sizes[axis + 1 :])
    offsets = {tuple(sorted({d // inner % size for d in group})) for group in groups}
    first = min(offsets)
    count = len(first)
    if count == 1:
        return "", 1
    if count == size:
        return name, count
    stride = first[1] - first[0]
    if first != tuple(range(first[0], first[0] + count * stride, stride)) or size % (count * stride):
        return None
    return f"{name}:({size // (count * stride)}){count}", count


@lru_cache(maxsize=4096)
def _axes_of_pairs(pairs: Pairs, names: tuple[str, ...], sizes: tuple[int, ...]) -> str:
    moving = np.array([(s, t) for s, t in pairs if s != t], dtype=int).reshape(-1, 2)
    if not len(moving) or moving.max() >= prod(sizes):
        return ""
    sources, targets = (np.unravel_index(moving[:, column], sizes) for column in (0, 1))
    return ",".join(name for name, s, t in zip(names, sources, targets, strict=True) if (s != t).any())
