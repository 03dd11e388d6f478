"""Which reshapes each device may do on its own tile, and the runs of dims that a reshape joins or splits."""

from __future__ import annotations

import pytest

from hlosharding.sharding import HloSharding, is_local_reshape, reshape_runs


@pytest.mark.parametrize(
    ("source", "dims", "target", "result", "local"),
    [
        ("[8,1]<=[8]", (8, 6), "[8]<=[8]", (48,), True),
        ("[1,2]<=[2]", (8, 6), "[2]<=[2]", (48,), False),  # columns are no run of the flat array
        ("[2]<=[2]", (48,), "[2,1]<=[2]", (6, 8), True),
        ("[2]<=[2]", (48,), "[2,1]1,0", (6, 8), False),  # the other half
        ("[4]<=[4]", (9,), "[4,1]<=[4]", (3, 3), False),  # uneven
        ("[4]<=[4]", (9,), "[4,1]<=[4]", (9, 1), True),  # uneven, but the dim stays what it is
        ("[4,1]<=[4]", (9, 6), "[4,1,1]<=[4]", (9, 2, 3), True),  # uneven, but its dim is untouched
    ],
)
def test_when_a_reshape_is_local(
    source: str, dims: tuple[int, ...], target: str, result: tuple[int, ...], local: bool
) -> None:
    one, two = (HloSharding.parse(f"{{devices={s}}}") for s in (source, target))
    assert is_local_reshape(one, dims, two, result) is local


@pytest.mark.parametrize(
    ("dims", "result", "expected"),
    [
        ((4, 6), (24,), (((0, 1), (0,)),)),
        ((4, 6), (4, 2, 3), (((0,), (0,)), ((1,), (1, 2)))),
        ((2, 3), (3, 2), (((0, 1), (0, 1)),)),
    ],
)
def test_groups_are_the_smallest_runs(dims: tuple[int, ...], result: tuple[int, ...], expected: object) -> None:
    assert reshape_runs(dims, result) == expected
