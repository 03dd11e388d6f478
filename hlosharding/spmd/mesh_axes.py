"""Which mesh axes a collective runs over: device groups back into the user's words.

Floor: spmd.  Device ids are positions in the device assignment, which counts row-major over the mesh.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np

from hlosharding.sharding import DeviceGrid, MeshInfo, axis_refs
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
    grid = _grid(sizes)
    digits = grid.digits_along(groups, ordered=False)
    axes = axis_refs(digits, grid, names) if digits is not None else None
    return ",".join(axis.text for axis in axes or ())


@lru_cache(maxsize=4096)
def _axes_of_pairs(pairs: Pairs, names: tuple[str, ...], sizes: tuple[int, ...]) -> str:
    moving = np.array([(s, t) for s, t in pairs if s != t], dtype=int).reshape(-1, 2)
    if not len(moving) or moving.max() >= prod(sizes):
        return ""
    sources, targets = (_grid(sizes).coordinates[column] for column in moving.T)
    return ",".join(name for name, differs in zip(names, (sources != targets).any(axis=0), strict=True) if differs)


def _grid(sizes: tuple[int, ...]) -> DeviceGrid:
    return DeviceGrid(sizes, tuple(range(prod(sizes))))
