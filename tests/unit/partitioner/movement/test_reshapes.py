"""Reshapes: local where dims line up, right everywhere."""

from __future__ import annotations

import pytest

from tests.support.split_programs import kinds, mark, right, split

SIZES = [
    ("8,6", "48"), ("48", "8,6"), ("8,6", "2,4,6"), ("6,8", "4,12"), ("5,6", "30"), ("3,4,5", "12,5"), ("12", "12,1"),
]  # fmt: skip
TILINGS = ["[8{}]<=[8]", "[{}8]<=[8]", "[2{}4]<=[8]", "[2{}4]7,2,5,0,3,6,1,4"]


def tiling_of(dims: str, pattern: str) -> str:
    """`pattern` spread over the first and last dim: [2{}4] becomes [2,1,4] for three dims; of one dim, [8]."""
    rank = dims.count(",") + 1
    head, order = pattern.split("]", 1)
    first, last = head[1:].split("{}")
    ways = [1] * rank
    ways[0] *= int(first or 1)
    ways[-1] *= int(last or 1)
    return f"[{','.join(map(str, ways))}]{order}"


@pytest.mark.parametrize("pattern", TILINGS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_reshape_is_right(sizes: tuple[str, str], pattern: str) -> None:
    dims, result = sizes
    for out in (None, tiling_of(result, TILINGS[0])):
        right(f"""
            x = f32[{dims}] parameter(0){mark(tiling_of(dims, pattern))}
            ROOT r = f32[{result}] reshape(x){mark(out)}""")


@pytest.mark.parametrize("sizes", [("6,4", "24"), ("24", "6,4"), ("9,5", "45"), ("12,5", "3,4,5")], ids=str)
def test_a_reshape_on_six_devices_is_right(sizes: tuple[str, str]) -> None:
    dims, result = sizes
    for pattern in ("[6{}]<=[6]", "[3{}2]<=[6]", "[{}6]4,0,5,1,3,2"):
        right(f"""
            x = f32[{dims}] parameter(0){mark(tiling_of(dims, pattern))}
            ROOT r = f32[{result}] reshape(x)""", devices=6)  # fmt: skip


def test_heads_are_split_and_joined_for_free() -> None:
    # Attention: [batch, seq, model] <-> [batch, seq, heads, size], the model dim split over four devices.
    local = split(f"""
        x = f32[8,16,32] parameter(0){mark("[2,1,4]<=[8]")}
        h = f32[8,16,8,4] reshape(x)
        ROOT r = f32[128,32] reshape(h){mark("[2,4]<=[8]")}""")
    assert not local.collectives


def test_a_split_that_cannot_pass_goes_where_it_can() -> None:
    # Columns have no place in the flat array: each device swaps half of its rows for the other half of the columns.
    local = split(f"""
        x = f32[8000,6000] parameter(0){mark("[4,2]<=[8]")}
        ROOT r = f32[48000000] reshape(x){mark("[8]<=[8]")}""")
    assert local.comm_bytes_per_device == 1000 * 3000 * 4


def test_a_reshape_of_addends_is_paid_once() -> None:
    local = right(f"""
        x = f32[4,8] parameter(0){mark("[1,8]<=[8]")}
        w = f32[8,6] parameter(1){mark("[8,1]<=[8]")}
        d = f32[4,6] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
        ROOT r = f32[24] reshape(d){mark("")}""")
    assert kinds(local) == ["all-reduce"]
