"""Values that are the same along some dims: their tiles change devices, sizes and dims for nothing, and stay right."""

from __future__ import annotations

import pytest

from hlosharding.partitioner.broadcast_dims import broadcast_dims_after_reshape
from tests.support.split_programs import counts, mark, right

FROM, TO = "[4,1,2]<=[8]", "[4,1,2]7,6,3,2,5,4,0,1"
WIDE = f"wide = f32[8,6,4] broadcast(x), dimensions={{1}}{mark(FROM)}"


@pytest.mark.parametrize(
    ("op", "dims", "target"),
    [
        ("copy(wide)", "8,6,4", TO),
        ("exponential(wide)", "8,6,4", TO),
        ("copy(wide)", "8,6,4", "[2,1,4]<=[8]"),
        ("copy(wide)", "8,6,4", "[1,1,8]<=[8]"),
        ("copy(wide)", "8,6,4", ""),
        ("transpose(wide), dimensions={2,0,1}", "4,8,6", "[2,4,1]7,6,3,2,5,4,0,1"),
        ("reshape(wide)", "2,4,6,4", "[2,2,1,2]7,6,3,2,5,4,0,1"),
        ("reduce(wide, zero), dimensions={1}, to_apply=add_f32", "8,4", "[4,2]7,6,3,2,5,4,0,1"),
    ],
)
def test_what_a_broadcast_repeats_is_nowhere_sent(op: str, dims: str, target: str) -> None:
    local = right(f"""
        x = f32[6] parameter(0){mark("")}
        zero = f32[] constant(0)
        {WIDE}
        own = f32[{dims}] {op}
        ROOT y = f32[{dims}] copy(own){mark(target)}""")
    assert not local.collectives


def test_of_what_differs_along_other_dims_one_slice_moves() -> None:
    local = right(f"""
        x = f32[6] parameter(0){mark("[2,4]<=[8] copies")}
        wide = f32[6,64] broadcast(x), dimensions={{0}}{mark("[2,4]<=[8]")}
        ROOT y = f32[6,64] copy(wide){mark("")}""")
    # Every device lacks three of the six numbers.
    assert local.comm_bytes_per_device == 3 * 4


def test_a_sum_is_the_same_only_where_both_addends_are() -> None:
    local = right(f"""
        x = f32[6] parameter(0){mark("")}
        y = f32[8,6,4] parameter(1){mark(FROM)}
        {WIDE}
        sum = f32[8,6,4] add(wide, y){mark(FROM)}
        ROOT moved = f32[8,6,4] copy(sum){mark(TO)}""")
    assert counts(local) == {"collective-permute": 1}


def test_tiles_that_are_all_padding_are_nobodys_slice() -> None:
    # Five rows in tiles of two: the last of four devices has none.
    right(f"""
        x = f32[6] parameter(0){mark("[1,8]<=[8] copies")}
        wide = f32[5,6] broadcast(x), dimensions={{1}}{mark("[4,1,2]<=[8] copies")}
        ROOT y = f32[5,6] exponential(wide){mark("[4,1,2]7,6,5,4,3,2,1,0 copies")}""")


def test_bits_of_a_number_are_not_the_same() -> None:
    right(f"""
        x = s64[] parameter(0){mark("")}
        wide = s64[8] broadcast(x), dimensions={{}}{mark("[4,2]<=[8] copies")}
        halves = s32[8,2] bitcast-convert(wide){mark("[4,2]<=[8]")}
        ROOT y = s32[8,2] copy(halves){mark("[4,2]7,6,5,4,3,2,1,0")}""")


@pytest.mark.parametrize(
    ("dims", "after", "same", "expected"),
    [
        ((4, 6), (24,), (0,), ()),
        ((4, 6), (2, 12), (0,), (0,)),
        ((4, 6), (8, 3), (1,), (1,)),
        ((4, 6), (2, 2, 6), (0,), (0, 1)),
        ((4, 1, 6), (24,), (0, 2), (0,)),
        ((4, 6), (3, 8), (0,), ()),
        ((0, 6), (6, 0), (1,), ()),
    ],
)
def test_dims_behind_a_reshape(
    dims: tuple[int, ...], after: tuple[int, ...], same: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert broadcast_dims_after_reshape(dims, after, same) == expected
