"""Ops that see their neighbours: slices, pads, convolutions and windows along split dims."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.split_programs import kinds, mark, right, split

LINES = ["[8]<=[8]", "[4,2]<=[8] copies", "[8]7,3,5,1,6,2,4,0"]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("cut", ["[1:31]", "[0:32:2]", "[3:20:3]", "[16:32]", "[30:32]", "[5:6]"])
@pytest.mark.parametrize("size", [32, 41])
def test_a_slice_along_a_split_dim_is_right(size: int, cut: str, line: str) -> None:
    start, limit, *rest = map(int, cut[1:-1].split(":"))
    count = len(range(start, limit, rest[0] if rest else 1))
    for out in (line, ""):
        right(f"""
            x = f32[{size}] parameter(0){mark(line)}
            ROOT s = f32[{count}] slice(x), slice={{{cut}}}{mark(out)}""")


def test_a_slice_takes_no_more_than_it_needs() -> None:
    # Device i holds 4 elements and needs one of its right neighbour.
    local = split(f"""
        x = f32[32] parameter(0){mark("[8]<=[8]")}
        ROOT s = f32[31] slice(x), slice={{[1:32]}}{mark("[8]<=[8]")}""")
    assert kinds(local) == ["collective-permute"]
    assert local.comm_bytes_per_device == 4 * 7 / 8


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("padding", ["1_1", "3_0", "-2_5", "0_0_1", "2_-3_2", "-9_-9"])
@pytest.mark.parametrize("size", [32, 21])
def test_a_pad_along_a_split_dim_is_right(size: int, padding: str, line: str) -> None:
    low, high, *rest = map(int, padding.split("_"))
    count = size + (size - 1) * (rest[0] if rest else 0) + low + high
    for out in (line, ""):
        right(f"""
            x = f32[{size}] parameter(0){mark(line)}
            v = f32[] constant(5)
            ROOT p = f32[{count}] pad(x, v), padding={padding}{mark(out)}""")


CONVOLUTIONS = {
    "same": ("size=3x3 pad=1_1x1_1", "b01f_01io->b01f", (8, 8)),
    "valid": ("size=3x3", "b01f_01io->b01f", (6, 6)),
    "strided": ("size=3x3 stride=2x2 pad=0_1x0_1", "b01f_01io->b01f", (4, 4)),
    "dilated kernel": ("size=3x3 pad=2_2x2_2 rhs_dilate=2x2", "b01f_01io->b01f", (8, 8)),
    "dilated input": ("size=3x3 pad=1_2x1_2 lhs_dilate=2x2", "b01f_01io->b01f", (16, 16)),
    "reversed kernel": ("size=3x3 pad=1_1x1_1 rhs_reversal=1x1", "b01f_01io->b01f", (8, 8)),
    "even kernel": ("size=2x2 stride=2x2", "b01f_01io->b01f", (4, 4)),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.parametrize("tiling", ["[8,1,1,1]<=[8]", "[1,4,2,1]<=[8]", "[2,4,1,1]7,6,5,4,3,2,1,0", "[1,2,1,4]<=[8]"])
def test_a_convolution_is_right(case: str, tiling: str) -> None:
    window, labels, (rows, columns) = CONVOLUTIONS[case]
    taps = 2 if "2x2" in window.split()[0] else 3
    right(f"""
        x = f32[3,8,8,4] parameter(0){mark(tiling)}
        w = f32[{taps},{taps},4,6] parameter(1){mark("")}
        ROOT c = f32[3,{rows},{columns},6] convolution(x, w), window={{{window}}}, dim_labels={labels}{mark(tiling)}""")


@pytest.mark.parametrize("tiling", ["[1,8,1]<=[8]", "[1,4,2]<=[8]", "[2,4,1]<=[8]"])
@pytest.mark.parametrize("size", [16, 13])
def test_an_uneven_convolution_is_right(size: int, tiling: str) -> None:
    right(f"""
        x = f32[2,{size},4] parameter(0){mark(tiling)}
        w = f32[5,4,3] parameter(1){mark("")}
        ROOT c = f32[2,{size},3] convolution(x, w), window={{size=5 pad=2_2}}, dim_labels=b0f_0io->b0f{mark(tiling)}""")


@pytest.mark.parametrize("kernel", ["[2,4,1,1]0,7,6,4,5,2,1,3", "[2,2,1,1,2]0,7,6,4,5,2,1,3 copies"])
@pytest.mark.parametrize("x", ["[1,1,1,4,2]<=[4,2]T(1,0) copies", "[1,2,1,1,4]3,2,4,0,5,1,7,6 copies", ""])
def test_strips_come_from_a_device_with_the_same_rows(x: str, kernel: str) -> None:
    """Where the taps of both dims are split, copies of columns hold different rows: their order says nothing."""
    right(f"""
        x = f32[2,9,3,8] parameter(0){mark(x)}
        w = f32[4,2,8,3] parameter(1){mark(kernel)}
        ROOT c = f32[2,11,3,3] convolution(x, w), dim_labels=b01f_01io->b01f,
          window={{size=4x2 stride=2x1 pad=3_0x1_0 lhs_dilate=3x1 rhs_dilate=2x1}}{mark("")}""")


def test_a_spatial_split_sends_rows_only() -> None:
    local = split(
        f"""
        x = f32[1,64,32,4] parameter(0){mark("[1,8,1,1]<=[8]")}
        w = f32[3,3,4,4] parameter(1){mark("")}
        ROOT c = f32[1,64,32,4] convolution(x, w), window={{size=3x3 pad=1_1x1_1}}, dim_labels=b01f_01io->b01f,
          sharding={{devices=[1,8,1,1]<=[8]}}""",
        objective="bytes",
    )
    assert kinds(local) == ["collective-permute"] * 2
    row = 32 * 4 * 4
    assert local.comm_bytes_per_device == 2 * row * 7 / 8


def test_contracting_features_owes_a_sum() -> None:
    local = right(f"""
        x = f32[2,8,8,8] parameter(0){mark("[1,1,1,8]<=[8]")}
        w = f32[3,3,8,4] parameter(1){mark("[1,1,8,1]<=[8]")}
        ROOT c = f32[2,8,8,4] convolution(x, w), window={{size=3x3 pad=1_1x1_1}}, dim_labels=b01f_01io->b01f,
          sharding={{replicated}}""")
    assert kinds(local) == ["all-reduce"]


@pytest.mark.parametrize("tiling", ["[8,1,1,1]<=[8]", "[1,4,2,1]<=[8]", "[2,4,1,1]<=[8]", "[1,8,1,1]<=[8]"])
def test_the_gradient_of_a_filter_is_right(tiling: str) -> None:
    # The kernel is the output's gradient: as large as the input, split alike; batch and space are summed over.
    local = right(
        f"""
        x = f32[8,8,8,3] parameter(0){mark(tiling)}
        g = f32[8,8,8,5] parameter(1){mark(tiling)}
        ROOT c = f32[3,3,3,5] convolution(x, g), window={{size=8x8 pad=1_1x1_1}}, dim_labels=f01b_i01o->01bf,
          sharding={{replicated}}""",
        objective="bytes",
    )
    assert "all-gather" not in kinds(local)
    assert kinds(local).count("all-reduce") == 1


@pytest.mark.parametrize("tiling", ["[1,1,1,8]<=[8]", "[2,4,1,1]<=[8]", "[1,1,2,4]<=[8]"])
@pytest.mark.parametrize("groups", [8, 2])
def test_a_grouped_convolution_is_right(groups: int, tiling: str) -> None:
    right(f"""
        x = f32[2,8,8,8] parameter(0){mark(tiling)}
        w = f32[3,3,{8 // groups},16] parameter(1){mark("[1,1,1,8]<=[8]")}
        ROOT c = f32[2,8,8,16] convolution(x, w), window={{size=3x3 pad=1_1x1_1}}, dim_labels=b01f_01io->b01f,
          feature_group_count={groups}{mark(tiling)}""")


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize(
    ("window", "count"),
    [("size=3 pad=1_1", 24), ("size=2 stride=2", 12), ("size=4 stride=2 pad=1_1", 12), ("size=24 pad=23_0", 24)],
)
def test_a_reduce_window_is_right(window: str, count: int, line: str) -> None:
    for reducer, init in (("add", "0"), ("max", "-inf")):
        right(f"""
            x = f32[24] parameter(0){mark(line)}
            i = f32[] constant({init})
            ROOT r = f32[{count}] reduce-window(x, i), window={{{window}}}, to_apply={reducer}_f32{mark(line)}""")


@pytest.mark.parametrize("size", [17, 19])
def test_an_uneven_reduce_window_is_right(size: int) -> None:
    right(f"""
        x = f32[{size},6] parameter(0){mark("[4,2]<=[8]")}
        i = f32[] constant(0)
        ROOT r = f32[{size},6] reduce-window(x, i), window={{size=3x3 pad=1_1x1_1}}, to_apply=add_f32,
          sharding={{devices=[4,2]<=[8]}}""")


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize(
    ("window", "count"), [("size=2 stride=2", 16), ("size=3 stride=2 pad=0_1", 16), ("size=3 stride=1 pad=1_1", 32)]
)
def test_a_select_and_scatter_is_right(window: str, count: int, line: str) -> None:
    # Overlapping windows may choose the same element; ties go to the first.
    x = np.random.default_rng(1).integers(0, 4, 32).astype(np.float32)
    right(
        f"""
        x = f32[32] parameter(0){mark(line)}
        g = f32[{count}] parameter(1){mark(line)}
        i = f32[] constant(0)
        ROOT r = f32[32] select-and-scatter(x, g, i), window={{{window}}}, select=ge_f32,
          scatter=add_f32{mark(line)}""",
        x,
    )


@pytest.mark.parametrize("tiling", ["[1,4,2,1]<=[8]", "[1,8,1,1]7,6,5,4,3,2,1,0", "[2,4,1,1]<=[8]"])
@pytest.mark.parametrize("reversal", ["", " rhs_reversal=1x1"])
@pytest.mark.parametrize(
    ("rows", "taps", "high", "window"),
    [
        (13, 13, 3, "size=13x6 pad=1_1x1_1"),
        (20, 10, 3, "size=10x6 pad=1_0x1_1 rhs_dilate=2x1"),
        (9, 9, 2, "size=9x6 pad=2_-1x1_1"),
    ],
)
def test_the_gradient_of_a_filter_over_uneven_rows_is_right(
    rows: int, taps: int, high: int, window: str, reversal: str, tiling: str
) -> None:
    local = right(f"""
        x = f32[4,{rows},6,64] parameter(0){mark(tiling)}
        g = f32[4,{taps},6,96] parameter(1){mark(tiling)}
        ROOT c = f32[{high},3,64,96] convolution(x, g), window={{{window}{reversal}}}, dim_labels=f01b_i01o->01bf,
          sharding={{replicated}}""")
    # Less than to fetch both operands whole and to add up a whole result on every device (a ring's all-reduce).
    operands, result = (rows * 64 + taps * 96) * 4 * 6 * 4, high * 3 * 64 * 96 * 4
    assert local.comm_bytes_per_device < 7 / 8 * (operands + 2 * result)


def test_taps_behind_the_end_of_a_window_do_not_spoil_infinities() -> None:
    # Row 9 is read by the last result only; a zero tap behind the end would read it for the first one too.
    x = np.arange(2 * 10 * 3, dtype=np.float32).reshape(2, 10, 3) % 5
    x[:, 9] = np.inf
    right(
        f"""
        x = f32[2,10,3] parameter(0){mark("[1,2,1]<=[2]")}
        g = f32[2,5,4] parameter(1){mark("[1,2,1]<=[2]")}
        ROOT c = f32[3,3,4] convolution(x, g), window={{size=5 pad=1_0 rhs_dilate=2}}, dim_labels=f0b_i0o->0bf,
          sharding={{replicated}}""",
        x,
        np.ones((2, 5, 4), np.float32),
        devices=2,
    )


@pytest.mark.parametrize("tiling", ["[1,8,1]<=[8]", "[2,4,1]<=[8]"])
@pytest.mark.parametrize(
    ("window", "size", "count"),
    [
        ("size=3 pad=1_2 lhs_dilate=2", 14, 28),
        ("size=5 pad=4_4 lhs_dilate=3", 9, 29),
        ("size=3 stride=2 pad=2_2 lhs_dilate=3", 11, 17),
        ("size=4 stride=4 pad=3_3 lhs_dilate=6 rhs_dilate=2", 17, 25),
    ],
)
def test_pieces_out_of_step_with_a_dilated_input_are_right(window: str, size: int, count: int, tiling: str) -> None:
    local = right(
        f"""
        x = f32[2,{size},4] parameter(0){mark(tiling)}
        w = f32[{window[5]},4,3] parameter(1){mark("")}
        ROOT c = f32[2,{count},3] convolution(x, w), window={{{window}}}, dim_labels=b0f_0io->b0f{mark(tiling)}""",
        objective="bytes",
    )
    assert set(kinds(local)) <= {"collective-permute"}


@pytest.mark.parametrize("objective", ["bytes", "time"])
@pytest.mark.parametrize(
    ("window", "count", "rows"),
    [
        ("size=3x3 stride=4x4 pad=1_1x1_1 lhs_dilate=2x2 rhs_reversal=1x1", 4, 0),
        ("size=3x3 pad=1_2x1_2 lhs_dilate=2x2 rhs_reversal=1x1", 14, 1),
    ],
)
def test_a_dilated_input_stays_split_over_its_rows(window: str, count: int, rows: int, objective: str) -> None:
    """XLA's sizes.  The second device lacks so many rows; batches instead of rows would move half of the result."""
    halves = mark("[1,2,1,1]<=[2]")
    local = split(
        f"""
        x = f32[128,7,7,512] parameter(0){halves}
        w = f32[3,3,512,512] parameter(1){mark("")}
        ROOT c = f32[128,{count},{count},512] convolution(x, w), window={{{window}}},
          dim_labels=b01f_01io->b01f{halves}""",
        devices=2,
        objective=objective,
    )
    assert local.comm_bytes_per_device <= rows * 128 * 7 * 512 * 4 / 2


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize(
    ("window", "size", "count"),
    [("size=3 stride=3", 32, 10), ("size=3 stride=2 pad=1_1", 22, 11), ("size=1 stride=2 pad=1_0", 15, 8)],
)
def test_a_select_and_scatter_out_of_step_with_its_tiles_is_right(
    window: str, size: int, count: int, line: str
) -> None:
    x = np.random.default_rng(1).integers(0, 4, size).astype(np.float32)
    local = right(
        f"""
        x = f32[{size}] parameter(0){mark(line)}
        g = f32[{count}] parameter(1){mark(line)}
        i = f32[] constant(0)
        ROOT r = f32[{size}] select-and-scatter(x, g, i), window={{{window}}}, select=ge_f32,
          scatter=add_f32{mark(line)}""",
        x,
        objective="bytes",
    )
    assert set(kinds(local)) == {"collective-permute"}


def test_two_select_and_scatters_that_differ_in_their_reducers_alone_are_split_each_in_its_own_way() -> None:
    # Windows outside the array scatter zeros: to sums they add nothing, but products would be lost.
    x, line = np.random.default_rng(1).integers(0, 4, 32).astype(np.float32), mark("[8]<=[8]")
    window = "window={size=3 stride=1 pad=1_1}, select=ge_f32"
    right(
        f"""
        x = f32[32] parameter(0){line}
        g = f32[32] parameter(1){line}
        zero = f32[] constant(0)
        one = f32[] constant(1)
        a = f32[32] select-and-scatter(x, g, zero), {window}, scatter=add_f32{line}
        b = f32[32] select-and-scatter(x, g, one), {window}, scatter=mul_f32{line}
        ROOT r = (f32[32], f32[32]) tuple(a, b), sharding={{{{devices=[8]<=[8]}}, {{devices=[8]<=[8]}}}}""",
        x,
    )


def test_a_window_over_far_neighbours_gathers_its_dim_and_computes_its_own_part() -> None:
    # Three taps 32 apart: each piece sees its own tile, and those four tiles before and behind.
    local = right(f"""
        x = f32[1,64,4] parameter(0){mark("[1,8,1]<=[8]")}
        w = f32[3,4,3] parameter(1){mark("")}
        ROOT c = f32[1,64,3] convolution(x, w), window={{size=3 pad=32_32 rhs_dilate=32}}, dim_labels=b0f_0io->b0f,
          sharding={{devices=[1,8,1]<=[8]}}""")
    assert kinds(local) == ["all-gather"]
    taps, results = 3, 8
    assert local.cost.by_opcode["convolution"].flops <= 2 * 4 * 3 * taps * results


def test_windows_over_a_whole_array_need_no_neighbours() -> None:
    local = right(f"""
        x = f32[24] parameter(0){mark("")}
        i = f32[] constant(0)
        ROOT r = f32[24] reduce-window(x, i), window={{size=5 pad=2_2}}, to_apply=add_f32{mark("[8]<=[8]")}""")
    assert kinds(local) == []
    assert local.cost.by_opcode["reduce-window"].flops <= 3 * 4
