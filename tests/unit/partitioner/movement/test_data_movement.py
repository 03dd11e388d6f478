"""Elements moved along split dims: right for any borders, and no byte more than a device lacks."""

from __future__ import annotations

import pytest

from tests.support.split_programs import kinds, mark, right, split

LINES = ["[8]<=[8]", "[4,2]<=[8] copies", "[8]3,1,4,0,5,2,6,7"]


@pytest.mark.parametrize("out", [*LINES, "", "[2,4]<=[8] copies"])
@pytest.mark.parametrize("tiling", LINES)
@pytest.mark.parametrize("size", [16, 13])
def test_moves_are_right(size: int, tiling: str, out: str) -> None:
    inside, after = mark(tiling), mark(out)
    right(f"x = f32[{size}] parameter(0){inside} ROOT r = f32[5] slice(x), slice={{[3:13:2]}}{after}")
    right(f"x = f32[{size}] parameter(0){inside} ROOT r = f32[{size}] reverse(x), dimensions={{0}}{after}")
    right(f"""
        x = f32[{size}] parameter(0){inside}
        y = f32[7] parameter(1){inside}
        ROOT r = f32[{size + 14}] concatenate(y, x, y), dimensions={{0}}{after}""")
    right(f"""
        x = f32[{size}] parameter(0){inside}
        v = f32[] parameter(1)
        ROOT r = f32[{2 * size + 2}] pad(x, v), padding=2_1_1{after}""")
    right(f"""
        x = f32[{size}] parameter(0){inside}
        y = f32[7] parameter(1){inside}
        a = s32[] constant(4)
        ROOT r = f32[{size}] dynamic-update-slice(x, y, a){after}""")


def test_one_element_of_the_last_tile_travels_once() -> None:
    local = split(
        f"""
        x = f32[4,64] parameter(0){mark("[4,1]<=[4]")}
        ROOT r = f32[1,64] slice(x), slice={{[3:4], [0:64]}}{mark("[4,1]<=[4]")}""",
        devices=4,
    )
    assert kinds(local) == ["collective-permute"]
    assert local.comm_bytes_per_device == 64 * 4 / 4


def test_the_last_tile_reaches_all_in_a_tree() -> None:
    # Seven devices lack it: each receives it once, in three rounds.
    local = split(f"""
        x = f32[8,1048576] parameter(0){mark("[8,1]<=[8]")}
        ROOT r = f32[1,1048576] slice(x), slice={{[7:8], [0:1048576]}}{mark("")}""")
    assert kinds(local) == ["collective-permute"] * 3
    assert local.comm_bytes_per_device == 1048576 * 4 * 7 / 8


def test_a_shift_of_two_ops_moves_once() -> None:
    local = split(f"""
        x = f32[32] parameter(0){mark("[8]<=[8]")}
        v = f32[] constant(0)
        p = f32[33] pad(x, v), padding=1_0{mark("[8]<=[8]")}
        ROOT r = f32[32] slice(p), slice={{[0:32]}}{mark("[8]<=[8]")}""")
    assert kinds(local) == ["collective-permute"]
    assert local.comm_bytes_per_device == 7 * 4 / 8


def test_an_update_moves_only_what_its_tile_lacks() -> None:
    local = split(
        f"""
        x = f32[16,8] parameter(0){mark("[1,2]<=[2]")}
        u = f32[16,2] parameter(1){mark("[1,2]<=[2]")}
        a = s32[] constant(0)
        b = s32[] constant(6)
        ROOT r = f32[16,8] dynamic-update-slice(x, u, a, b){mark("[1,2]<=[2]")}""",
        devices=2,
    )
    assert local.comm_bytes_per_device == 16 * 4 / 2


def test_uneven_dims_merge_over_their_borders() -> None:
    local = right(
        f"""
        x = f32[5,6] parameter(0){mark("[2,1]<=[2]")}
        ROOT r = f32[10,3] reshape(x){mark("[2,1]<=[2]")}""",
        devices=2,
    )
    assert local.comm_bytes_per_device == 3 * 4 / 2


def test_what_somebody_needed_whole_is_cut_for_the_next() -> None:
    local = split(f"""
        x = f32[1024] parameter(0){mark("[8]<=[8]")}
        w = f32[1024] copy(x){mark("")}
        n = f32[1024] negate(w){mark("")}
        s = f32[512] slice(w), slice={{[256:768]}}{mark("[8]<=[8]")}
        ROOT t = (f32[1024], f32[512]) tuple(n, s)""")
    assert kinds(local) == ["all-gather"]


@pytest.mark.parametrize("size", range(3, 10))
@pytest.mark.parametrize("step", [2, 3])
@pytest.mark.parametrize("tiles", [2, 4])
def test_steps_keep_their_phase_in_uneven_tiles(size: int, step: int, tiles: int) -> None:
    # The last tile's first element of the result may lie anywhere in it.
    inside = mark(f"[{tiles},1]<=[{tiles}]")
    for start in range(min(step, size - 1)):
        rows = -(-(size - start) // step)
        right(
            f"""
            x = f32[{size},4] parameter(0){inside}
            ROOT r = f32[{rows},4] slice(x), slice={{[{start}:{size}:{step}], [0:4]}}{inside}""",
            devices=tiles,
        )
