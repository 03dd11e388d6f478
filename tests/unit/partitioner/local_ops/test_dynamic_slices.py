"""Dynamic slices along split dims: blocks that start anywhere, within a tile, across tiles, or over all of them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.split_programs import kinds, mark, right, split

TABLES = ["[8,1]<=[8]", "[1,8]<=[8]", "[2,4]<=[8]", "[4,1,2]<=[8] copies", "[8,1]3,1,0,2,7,5,4,6", ""]


@pytest.mark.parametrize("kind", ["u8", "u32", "s64"])
def test_starts_of_any_integer_type_are_right(kind: str) -> None:
    dtype = np.dtype({"u8": "uint8", "u32": "uint32", "s64": "int64"}[kind])
    for start in (0, 7, 200):
        given = np.arange(1200, dtype=np.float32).reshape(120, 10), dtype.type(start), dtype.type(3)
        right(
            f"""
            t = f32[120,10] parameter(0){mark("[4,2]<=[8]")}
            i = {kind}[] parameter(1){mark("")}
            j = {kind}[] parameter(2){mark("")}
            ROOT r = f32[1,4] dynamic-slice(t, i, j), dynamic_slice_sizes={{1,4}}{mark("[1,2,4]<=[8] copies")}""",
            *given,
        )
        right(
            f"""
            t = f32[120,10] parameter(0){mark("[4,2]<=[8]")}
            i = {kind}[] parameter(1){mark("")}
            j = {kind}[] parameter(2){mark("")}
            u = f32[1,4] parameter(3){mark("")}
            ROOT r = f32[120,10] dynamic-update-slice(t, u, i, j){mark("[4,2]<=[8]")}""",
            *given,
        )


def test_starts_of_dims_taken_whole_count_as_zero() -> None:
    # The table is whole on every device and is cut before its rows are taken.
    right(
        f"""
        t = f32[16,8] parameter(0){mark("")}
        i = s32[] parameter(1){mark("")}
        ROOT r = f32[4,8] dynamic-slice(t, i, i), dynamic_slice_sizes={{4,8}}{mark("[1,8]<=[8]")}""",
        np.arange(128, dtype=np.float32).reshape(16, 8),
        np.int32(5),
    )


@pytest.mark.parametrize("start", [3, -4, 100])
@pytest.mark.parametrize("table", TABLES)
def test_a_row_is_taken_by_number(table: str, start: int) -> None:
    for out in (None, "[1,8]<=[8]"):
        right(
            f"""
            t = f32[10,6] parameter(0){mark(table)}
            i = s32[] parameter(1){mark("")}
            z = s32[] constant(0)
            ROOT r = f32[1,6] dynamic-slice(t, i, z), dynamic_slice_sizes={{1,6}}{mark(out)}""",
            np.random.default_rng(0).normal(size=(10, 6)).astype(np.float32),
            np.int32(start),
        )


@pytest.mark.parametrize("start", [0, 2, 5, -4, 100])
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("dims", [(16, 24), (10, 6)])
def test_a_block_is_taken(dims: tuple[int, int], table: str, start: int) -> None:
    for rows, columns in ((4, 3), (1, 2), (9, 5)):
        for out in (table, ""):
            right(
                f"""
                t = f32[{dims[0]},{dims[1]}] parameter(0){mark(table)}
                i = s32[] parameter(1){mark("")}
                ROOT r = f32[{rows},{columns}] dynamic-slice(t, i, i),
                  dynamic_slice_sizes={{{rows},{columns}}}{mark(out)}""",
                np.random.default_rng(0).normal(size=dims).astype(np.float32),
                np.int32(start),
            )


@pytest.mark.parametrize("start", [0, 2, 5, -4, 100])
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("dims", [(16, 24), (10, 6)])
def test_a_block_is_put(dims: tuple[int, int], table: str, start: int) -> None:
    for rows, columns in ((4, 3), (1, 2), (9, 5)):
        for update in (table, ""):
            right(
                f"""
                t = f32[{dims[0]},{dims[1]}] parameter(0){mark(table)}
                u = f32[{rows},{columns}] parameter(1){mark(update)}
                i = s32[] parameter(2){mark("")}
                ROOT r = f32[{dims[0]},{dims[1]}] dynamic-update-slice(t, u, i, i){mark(table)}""",
                np.random.default_rng(0).normal(size=dims).astype(np.float32),
                np.random.default_rng(1).normal(size=(rows, columns)).astype(np.float32),
                np.int32(start),
            )


def test_a_block_across_tiles_moves_no_more_than_a_sum_of_the_block() -> None:
    local = split(
        f"""
        t = f32[8,4096] parameter(0){mark("[1,8]<=[8]")}
        i = s32[] parameter(1){mark("")}
        z = s32[] constant(0)
        ROOT r = f32[8,600] dynamic-slice(t, z, i), dynamic_slice_sizes={{8,600}}{mark("")}""",
        objective="bytes",
    )
    assert local.comm_bytes_per_device <= 2 * 7 / 8 * 8 * 600 * 4


def test_a_block_that_all_have_is_put_by_each_where_it_is() -> None:
    local = split(f"""
        t = f32[8,4096] parameter(0){mark("[1,8]<=[8]")}
        u = f32[8,600] parameter(1){mark("")}
        i = s32[] parameter(2){mark("")}
        z = s32[] constant(0)
        ROOT r = f32[8,4096] dynamic-update-slice(t, u, z, i){mark("[1,8]<=[8]")}""")
    assert not local.collectives


@pytest.mark.parametrize("start", [3, -4, 100])
@pytest.mark.parametrize("table", TABLES)
def test_a_row_is_put_by_number(table: str, start: int) -> None:
    for size in (1, 4):
        right(
            f"""
            t = f32[10,6] parameter(0){mark(table)}
            u = f32[{size},6] parameter(1){mark("[1,8]<=[8]")}
            i = s32[] parameter(2){mark("")}
            z = s32[] constant(0)
            ROOT r = f32[10,6] dynamic-update-slice(t, u, i, z){mark(table)}""",
            np.random.default_rng(0).normal(size=(10, 6)).astype(np.float32),
            np.random.default_rng(1).normal(size=(size, 6)).astype(np.float32),
            np.int32(start),
        )


def test_a_layer_of_a_stack_is_taken_by_a_sum_of_one_layer() -> None:
    local = split(
        f"""
        t = f32[32,64,64] parameter(0){mark("[8,1,1]<=[8]")}
        i = s32[] parameter(1){mark("")}
        z = s32[] constant(0)
        ROOT r = f32[1,64,64] dynamic-slice(t, i, z, z), dynamic_slice_sizes={{1,64,64}}{mark("")}""",
        objective="bytes",
    )
    assert kinds(local) == ["all-reduce"]
    assert local.comm_bytes_per_device == 2 * 7 / 8 * 64 * 64 * 4


def test_a_row_of_a_table_whose_other_dims_are_split_costs_nothing() -> None:
    local = split(f"""
        t = f32[32,64] parameter(0){mark("[1,8]<=[8]")}
        u = f32[1,64] parameter(1){mark("[1,8]<=[8]")}
        i = s32[] parameter(2){mark("")}
        z = s32[] constant(0)
        ROOT r = f32[32,64] dynamic-update-slice(t, u, i, z){mark("[1,8]<=[8]")}""")
    assert not local.collectives


def test_what_was_gathered_at_one_place_out_of_range_is_read_where_it_was_clamped_to() -> None:
    # XLA makes a dynamic slice of a gather at one place, and merges it into the read without the clamp.
    right(
        f"""
        t = s32[1,6,2] parameter(0){mark("")}
        i = s32[2,8] parameter(1){mark("")}
        g = s32[8,5,2] gather(t, i), offset_dims={{1,2}}, collapsed_slice_dims={{0}}, start_index_map={{0,1}},
          index_vector_dim=0, slice_sizes={{1,5,2}}{mark("[8,1,1]<=[8]")}
        u = s32[1,1,2] parameter(2){mark("")}
        n = s32[] parameter(3){mark("")}
        z = s32[] constant(0)
        ROOT r = s32[8,5,2] dynamic-update-slice(g, u, n, n, z){mark("[8,1,1]<=[8]")}""",
        np.arange(12, dtype=np.int32).reshape(1, 6, 2),
        np.full((2, 8), 3, np.int32),
        np.full((1, 1, 2), 77, np.int32),
        np.int32(3),
    )
