"""Reverse along split dims: tiles on mirrored devices, so nothing moves unless the result is bound elsewhere."""

from __future__ import annotations

import pytest

from tests.support.split_programs import kinds, mark, right, split


@pytest.mark.parametrize("out", [None, "", "[2,4]<=[8]", "[8,1]3,1,0,2,7,5,4,6"])
@pytest.mark.parametrize("tiling", ["[8,1]<=[8]", "[1,8]<=[8]", "[2,4]6,7,4,5,2,3,0,1", "[4,1,2]<=[8] copies"])
@pytest.mark.parametrize("dims", ["16,8", "9,5"])
def test_a_reverse_is_right(dims: str, tiling: str, out: str | None) -> None:
    for reversed_dims in ("0", "0,1"):
        right(f"""
            x = f32[{dims}] parameter(0){mark(tiling)}
            ROOT r = f32[{dims}] reverse(x), dimensions={{{reversed_dims}}}{mark(out)}""")


def test_even_tiles_are_mirrored_in_place() -> None:
    local = split(f"""
        x = f32[16] parameter(0){mark("[8]<=[8]")}
        ROOT r = f32[16] reverse(x), dimensions={{0}}{mark("[8]7,6,5,4,3,2,1,0")}""")
    assert not local.collectives


def test_the_same_device_order_costs_one_permute() -> None:
    local = split(f"""
        x = f32[16] parameter(0){mark("[8]<=[8]")}
        ROOT r = f32[16] reverse(x), dimensions={{0}}{mark("[8]<=[8]")}""")
    assert kinds(local) == ["collective-permute"]
    assert local.comm_bytes_per_device == 2 * 4
