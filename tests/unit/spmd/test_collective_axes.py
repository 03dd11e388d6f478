"""Axes that groups run along, against groups cut out of numpy's grids."""

from __future__ import annotations

import numpy as np
import pytest

from hlosharding.sharding import MeshInfo
from hlosharding.spmd import Groups
from hlosharding.spmd.collective import axes_of_groups, axes_of_pairs

MESH = MeshInfo(("a", "b", "c"), (2, 8, 1))


def _groups(*moving: int) -> Groups:
    """Along some dims of the devices as 2 x 2 x 2 x 2, the last of which are `b`; in no order."""
    rest = [dim for dim in range(4) if dim not in moving]
    grid = np.arange(16).reshape(2, 2, 2, 2).transpose([*rest, *moving]).reshape(-1, 2 ** len(moving))
    return tuple(map(tuple, grid[::-1, ::-1].tolist()))


@pytest.mark.parametrize(
    ("moving", "text"),
    [
        ((), ""),
        ((0,), "a"),
        ((1, 2, 3), "b"),
        ((3, 0, 2, 1), "a,b"),
        ((1,), "b:(1)2"),
        ((2, 3), "b:(2)4"),
        ((0, 2), "a,b:(2)2"),
        ((1, 3), "b:(1)2,b:(4)2"),
    ],
)
def test_groups_are_named_by_the_axes_they_run_along(moving: tuple[int, ...], text: str) -> None:
    assert axes_of_groups(_groups(*moving), MESH) == text


@pytest.mark.parametrize(
    "groups",
    [((0, 1, 2), (3,)), ((0, 1), (2, 3)), tuple((d, 15 - d) for d in range(8)), ((0, 3), (1, 2), *_groups(3)[2:])],
)
def test_groups_that_are_no_box_of_axes_have_no_name(groups: Groups) -> None:
    assert axes_of_groups(groups, MESH) == ""


def test_pairs_are_named_by_the_axes_in_which_they_differ() -> None:
    assert axes_of_pairs(((0, 8), (8, 0), (1, 1)), MESH) == "a"
    assert axes_of_pairs(((0, 15), (1, 2)), MESH) == "a,b"
    assert axes_of_pairs(((0, 0),), MESH) == ""
    assert axes_of_pairs(((0, 16),), MESH) == ""
