"""Constants, iota and broadcast scalars: made at the tile's size, never sent."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.program_check import run_local
from tests.support.split_programs import mark, opcodes, right, split

TILINGS = ["[8,1]<=[8]", "[1,8]<=[8]", "[2,4]5,1,4,0,7,3,6,2", "[2,2,2]<=[8] copies", ""]


@pytest.mark.parametrize("tiling", TILINGS)
@pytest.mark.parametrize("kind", ["s32", "f32", "u8", "bf16", "c64"])
def test_an_iota_is_right(kind: str, tiling: str) -> None:
    for dim in (0, 1):
        local = right(f"ROOT i = {kind}[10,7] iota(), iota_dimension={dim}{mark(tiling)}")
        assert not local.collectives


@pytest.mark.parametrize("tiling", TILINGS)
def test_a_constant_is_right(tiling: str) -> None:
    numbers = ",".join(f"{{{3 * row},{3 * row + 1},{3 * row + 2}}}" for row in range(5))
    local = right(f"ROOT c = s32[5,3] constant({{{numbers}}}){mark(tiling)}")
    assert not local.collectives


def test_a_large_constant_of_one_number_is_not_stored_whole() -> None:
    numbers = ",".join(["{" + ",".join(["7"] * 16) + "}"] * 16)
    local = right(f"ROOT c = f32[16,16] constant({{{numbers}}}){mark('[8,1]<=[8]')}")
    assert [i.shape.rank for i in local.module.instructions if i.opcode == "constant"] == [0]


def test_negative_zero_and_nan_are_numbers_like_any_other() -> None:
    right(f"""
        c = f32[4] constant({{-0, 0, nan, -inf}}){mark("[4,2]<=[8] copies")}
        one = f32[] constant(1)
        ones = f32[4] broadcast(one), dimensions={{}}
        ROOT r = f32[4] divide(ones, c){mark("[4,2]<=[8] copies")}""")


@pytest.mark.parametrize("tiling", TILINGS)
def test_a_broadcast_scalar_is_made_where_it_is_used(tiling: str) -> None:
    local = right(f"""
        s = f32[] parameter(0), sharding={{replicated}}
        b = f32[9,8] broadcast(s), dimensions={{}}{mark("[8,1]<=[8]")}
        x = f32[9,8] parameter(1){mark(tiling)}
        ROOT r = f32[9,8] add(b, x){mark(tiling)}""")
    assert not local.collectives


def test_users_that_differ_get_an_iota_each() -> None:
    local = split(f"""
        i = s32[16] iota(), iota_dimension=0
        x = s32[16] parameter(0){mark("[8]<=[8]")}
        y = s32[16] parameter(1){mark("")}
        a = s32[16] add(i, x){mark("[8]<=[8]")}
        b = s32[16] add(i, y){mark("")}
        ROOT t = (s32[16], s32[16]) tuple(a, b), sharding={{{{devices=[8]<=[8]}}, {{replicated}}}}""")
    assert opcodes(local).count("iota") == 2
    assert not local.collectives


@pytest.mark.parametrize(("dims", "tiling"), [("8", ""), ("8", "[2,4]<=[8] copies"), ("5,3", "[2,1,4]<=[8] copies"),
                                              ("3", ""), ("", ""), ("16", "[8]<=[8]")])  # fmt: skip
def test_devices_agree_on_random_numbers_that_several_hold(dims: str, tiling: str) -> None:
    # Every device draws from a state of its own; `joined` refuses copies that differ.
    local = split(f"""
        low = s32[] parameter(0)
        high = s32[] parameter(1)
        ROOT y = s32[{dims}] rng(low, high), distribution=rng_uniform{mark(tiling)}""")
    [numbers] = run_local(local, [np.asarray(-5, np.int32), np.asarray(1 << 30, np.int32)])
    assert np.unique(numbers).size == numbers.size
    assert ((numbers >= -5) & (numbers < 1 << 30)).all()


@pytest.mark.parametrize(
    "value", ["iota(), iota_dimension=0", "broadcast(one), dimensions={}", "constant({1,1,1,1})", "constant({1,2,3,4})"]
)
def test_what_is_made_as_partial_sums_is_made_once(value: str) -> None:
    """Devices that all made the whole would count it as often as there are devices."""
    partial = "[1,2,4]<=[8] last_tile_dims={unreduced, replicated}"
    local = right(f"""
        one = f32[] constant(1)
        v = f32[4] {value}, sharding={{devices={partial}}}
        ROOT r = f32[4] negate(v){mark("[1,8]<=[8] copies")}""")
    assert "all-reduce" in opcodes(local) or not local.collectives


@pytest.mark.parametrize("how", ["run", "run_reference"])
def test_a_constant_of_a_tuple_is_its_arrays(how: str) -> None:
    """One device's run is none that XLA's StableHLO can say."""
    local = split(f"""
        c = (s32[8], (f32[], s32[2])) constant(({{0,1,2,3,4,5,6,7}}, (1.5, {{8,9}})))
        whole = s32[8] get-tuple-element(c), index=0
        tiles = s32[8] copy(whole){mark("[8]<=[8]")}
        rest = (f32[], s32[2]) get-tuple-element(c), index=1
        ROOT r = (s32[8], (f32[], s32[2])) tuple(tiles, rest)""")
    assert not local.collectives
    tiles, number, pair = getattr(local, how)()
    np.testing.assert_array_equal(tiles, np.arange(8))
    assert (float(number), pair.tolist()) == (1.5, [8, 9])
