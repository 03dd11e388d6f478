"""Gather, scatter and dynamic slices along split dims: rows by number, wherever they live."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.split_programs import counts, kinds, mark, right, split

TABLES = ["[8,1]<=[8]", "[1,8]<=[8]", "[2,4]<=[8]", "[4,1,2]<=[8] copies", "[8,1]3,1,0,2,7,5,4,6", ""]
INDICES = ["[8]<=[8]", "[2,4]<=[8] copies", ""]
WILD = np.array([0, 3, 9, 10, 11, -1, 100, 2**31 - 1, -(2**31), 5, 9, 1], np.int32)


@pytest.mark.parametrize("indices", INDICES)
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("rows", [16, 10])
def test_rows_are_gathered_also_out_of_bounds(rows: int, table: str, indices: str) -> None:
    for out in ("[8,1]<=[8]", ""):
        right(
            f"""
            t = f32[{rows},6] parameter(0){mark(table)}
            i = s32[12] parameter(1){mark(indices)}
            ROOT g = f32[12,6] gather(t, i), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
              index_vector_dim=1, slice_sizes={{1,6}}{mark(out)}""",
            np.random.default_rng(0).normal(size=(rows, 6)).astype(np.float32),
            WILD,
        )


@pytest.mark.parametrize("kind", ["u8", "u32", "s64", "s8"])
def test_indices_of_any_integer_type_are_right(kind: str) -> None:
    dtype = np.dtype({"u8": "uint8", "u32": "uint32", "s64": "int64", "s8": "int8"}[kind])
    indices = np.array([0, 3, 9, 10, 11, 5, 9, np.iinfo(dtype).max, np.iinfo(dtype).min, 1], dtype)
    for combine in ("gather", "scatter"):
        op = (
            """gather(t, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
               index_vector_dim=1, slice_sizes={1,6}"""
            if combine == "gather"
            else """scatter(t, i, u), update_window_dims={1}, inserted_window_dims={0},
               scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add_f32"""
        )
        right(
            f"""
            t = f32[10,6] parameter(0){mark("[8,1]<=[8]")}
            i = {kind}[10] parameter(1){mark("")}
            u = f32[10,6] parameter(2){mark("")}
            ROOT g = f32[10,6] {op}""",
            np.random.default_rng(0).normal(size=(10, 6)).astype(np.float32),
            indices,
        )


@pytest.mark.parametrize("table", TABLES)
def test_slices_are_gathered_at_two_indices(table: str) -> None:
    right(
        f"""
        t = f32[9,8] parameter(0){mark(table)}
        i = s32[5,2] parameter(1){mark("")}
        ROOT g = f32[5] gather(t, i), offset_dims={{}}, collapsed_slice_dims={{0,1}}, start_index_map={{1,0}},
          index_vector_dim=1, slice_sizes={{1,1}}""",
        np.random.default_rng(0).normal(size=(9, 8)).astype(np.float32),
        np.array([[0, 0], [7, 8], [3, 4], [9, 9], [-1, 2]], np.int32),
    )


@pytest.mark.parametrize("indices", ["[8,1]<=[8]", "[2,1,4]<=[8] copies", ""])
@pytest.mark.parametrize("table", ["[8,1,1]<=[8]", "[2,4,1]<=[8]", "[2,2,2]<=[8]"])
def test_batched_rows_are_gathered(table: str, indices: str) -> None:
    right(
        f"""
        t = f32[4,6,8] parameter(0){mark(table)}
        i = s32[4,3] parameter(1){mark(indices)}
        ROOT g = f32[4,3,8] gather(t, i), offset_dims={{2}}, collapsed_slice_dims={{1}}, start_index_map={{1}},
          operand_batching_dims={{0}}, start_indices_batching_dims={{0}}, index_vector_dim=2, slice_sizes={{1,1,8}}""",
        np.random.default_rng(0).normal(size=(4, 6, 8)).astype(np.float32),
        np.random.default_rng(1).integers(-2, 8, (4, 3)).astype(np.int32),
    )


def test_an_embedding_split_by_rows_owes_one_sum_of_the_output() -> None:
    local = split(f"""
        t = f32[50000,64] parameter(0){mark("[8,1]<=[8]")}
        i = s32[128] parameter(1){mark("")}
        ROOT g = f32[128,64] gather(t, i), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
          index_vector_dim=1, slice_sizes={{1,64}}{mark("")}""")
    assert counts(local) == {"all-reduce": 1}
    assert local.comm_bytes_per_device == 2 * 7 / 8 * 128 * 64 * 4


def test_an_embedding_split_by_columns_costs_nothing() -> None:
    local = split(f"""
        t = f32[50000,64] parameter(0){mark("[1,8]<=[8]")}
        i = s32[128] parameter(1){mark("")}
        ROOT g = f32[128,64] gather(t, i), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
          index_vector_dim=1, slice_sizes={{1,64}}{mark("[1,8]<=[8]")}""")
    assert not local.collectives


def test_a_small_table_is_gathered_rather_than_a_large_sum_paid() -> None:
    local = split(f"""
        t = f32[16,4] parameter(0){mark("[8,1]<=[8]")}
        i = s32[100000] parameter(1){mark("")}
        ROOT g = f32[100000,4] gather(t, i), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
          index_vector_dim=1, slice_sizes={{1,4}}{mark("")}""")
    assert local.comm_bytes_per_device <= 7 / 8 * 16 * 4 * 4


# Scatter


@pytest.mark.parametrize("updates", ["[8,1]<=[8]", "[2,4]<=[8]", ""])
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("rows", [16, 10])
def test_rows_are_scattered_also_out_of_bounds(rows: int, table: str, updates: str) -> None:
    for reducer in ("add", "max"):
        right(
            f"""
            t = f32[{rows},6] parameter(0){mark(table)}
            i = s32[12] parameter(1){mark("")}
            u = f32[12,6] parameter(2){mark(updates)}
            ROOT g = f32[{rows},6] scatter(t, i, u), update_window_dims={{1}}, inserted_window_dims={{0}},
              scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply={reducer}_f32{mark(table)}""",
            np.random.default_rng(0).integers(0, 9, (rows, 6)).astype(np.float32),
            WILD,
            np.random.default_rng(1).integers(0, 9, (12, 6)).astype(np.float32),
        )


@pytest.mark.parametrize("updates", ["[8,1]<=[8]", "[1,8]<=[8]", ""])
@pytest.mark.parametrize("table", TABLES)
def test_rows_are_overwritten(table: str, updates: str) -> None:
    right(
        f"""
        t = f32[10,6] parameter(0){mark(table)}
        i = s32[4] parameter(1){mark("")}
        u = f32[4,6] parameter(2){mark(updates)}
        ROOT g = f32[10,6] scatter(t, i, u), update_window_dims={{1}}, inserted_window_dims={{0}},
          scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, unique_indices=true,
          to_apply=assign_f32{mark(table)}""",
        np.random.default_rng(0).normal(size=(10, 6)).astype(np.float32),
        np.array([9, 0, -1, 4], np.int32),
    )


def test_the_gradient_of_an_embedding_stays_with_its_rows() -> None:
    # Tokens split over all devices, the table by rows: updates travel, no table of zeros is summed.
    local = split(f"""
        zero = f32[] constant(0)
        t = f32[50000,64] broadcast(zero), dimensions={{}}{mark("[8,1]<=[8]")}
        i = s32[128] parameter(0){mark("[8]<=[8]")}
        u = f32[128,64] parameter(1){mark("[8,1]<=[8]")}
        ROOT g = f32[50000,64] scatter(t, i, u), update_window_dims={{1}}, inserted_window_dims={{0}},
          scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=add_f32{mark("[8,1]<=[8]")}""")
    assert set(kinds(local)) == {"all-gather"}
    assert local.comm_bytes_per_device <= 7 / 8 * (128 * 64 + 128) * 4


def test_updates_split_over_devices_owe_one_sum() -> None:
    local = right(
        f"""
        zero = f32[] constant(0)
        t = f32[10,6] broadcast(zero), dimensions={{}}{mark("")}
        i = s32[64] parameter(0){mark("[8]<=[8]")}
        u = f32[64,6] parameter(1){mark("[8,1]<=[8]")}
        ROOT g = f32[10,6] scatter(t, i, u), update_window_dims={{1}}, inserted_window_dims={{0}},
          scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=add_f32{mark("")}""",
        np.random.default_rng(0).integers(-1, 12, 64).astype(np.int32),
    )
    assert kinds(local) == ["all-reduce"]


def test_a_row_that_must_be_dropped_leaves_an_array_that_was_just_cut_alone() -> None:
    right(
        f"""
        x = s32[8,1] parameter(0){mark("")}
        n = s32[8,1] iota(), iota_dimension=0
        z = s32[] constant(0)
        d = s32[8,1] dynamic-update-slice(n, x, z, z){mark("[4,1,2]<=[8] copies")}
        i = s32[1] parameter(1){mark("")}
        u = s32[1,1] parameter(2){mark("")}
        ROOT y = s32[8,1] scatter(d, i, u), update_window_dims={{0}}, inserted_window_dims={{}},
          scatter_dims_to_operand_dims={{0}}, input_batching_dims={{1}}, scatter_indices_batching_dims={{0}},
          index_vector_dim=1, to_apply=add_s32{mark("[4,1,2]<=[8] copies")}""",
        np.array([[8], [-2], [5], [4], [-4], [8], [3], [1]], np.int32),
        np.array([9], np.int32),
        np.array([[3]], np.int32),
    )


# Slices of several rows


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(("rows", "size"), [(16, 3), (10, 3), (10, 7), (16, 9)])
def test_runs_of_rows_are_gathered_across_tiles(rows: int, size: int, table: str) -> None:
    right(
        f"""
        t = f32[{rows},6] parameter(0){mark(table)}
        i = s32[12,2] parameter(1){mark("")}
        ROOT g = f32[12,{size},2] gather(t, i), offset_dims={{1,2}}, collapsed_slice_dims={{}}, start_index_map={{0,1}},
          index_vector_dim=1, slice_sizes={{{size},2}}{mark("")}""",
        np.random.default_rng(0).normal(size=(rows, 6)).astype(np.float32),
        np.stack([WILD, np.roll(WILD, 3)], 1),
    )


@pytest.mark.parametrize("reducer", ["add", "max"])
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(("rows", "size"), [(16, 3), (10, 3), (10, 7), (16, 9)])
def test_runs_of_rows_are_scattered_across_tiles_or_dropped_altogether(
    rows: int, size: int, table: str, reducer: str
) -> None:
    local = right(
        f"""
        t = f32[{rows},6] parameter(0){mark(table)}
        i = s32[12,2] parameter(1){mark("")}
        u = f32[12,{size},2] parameter(2){mark("")}
        ROOT g = f32[{rows},6] scatter(t, i, u), update_window_dims={{1,2}}, inserted_window_dims={{}},
          scatter_dims_to_operand_dims={{0,1}}, index_vector_dim=1, to_apply={reducer}_f32{mark(table)}""",
        np.random.default_rng(0).integers(0, 9, (rows, 6)).astype(np.float32),
        np.stack([WILD, np.roll(WILD, 3)], 1),
        np.random.default_rng(1).integers(0, 9, (12, size, 2)).astype(np.float32),
    )
    assert not local.collectives


def test_short_runs_of_a_long_table_are_summed_rather_than_the_table_gathered() -> None:
    local = split(
        f"""
        t = f32[50000,8] parameter(0){mark("[8,1]<=[8]")}
        i = s32[16,1] parameter(1){mark("")}
        ROOT g = f32[16,5,8] gather(t, i), offset_dims={{1,2}}, collapsed_slice_dims={{}}, start_index_map={{0}},
          index_vector_dim=1, slice_sizes={{5,8}}{mark("")}""",
        objective="bytes",
    )
    assert counts(local) == {"all-reduce": 1}
    assert local.comm_bytes_per_device == 2 * 7 / 8 * 16 * 5 * 8 * 4


def test_rows_of_a_table_longer_than_the_type_of_its_indices_are_gathered() -> None:
    right(
        f"""
        t = f32[320,6] parameter(0){mark("[8,1]<=[8]")}
        i = u8[10] parameter(1){mark("")}
        ROOT g = f32[10,6] gather(t, i), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
          index_vector_dim=1, slice_sizes={{1,6}}""",
        np.arange(320 * 6, dtype=np.float32).reshape(320, 6),
        np.array([0, 3, 39, 40, 41, 250, 255, 254, 128, 127], np.uint8),
    )


# Index values that count


COUNTED = """
  n = s32[{size},1] iota(), iota_dimension=0
  j = s32[{size},1] reshape(i)
  at = s32[{size},2] concatenate(n, j), dimensions={{1}}"""


@pytest.mark.parametrize("places", ["[8]<=[8]", "[4,2]<=[8] copies", ""])
@pytest.mark.parametrize("table", ["[8,1,1]<=[8]", "[4,2,1]<=[8]", "[2,1,4]<=[8]", "[8,1,1]3,1,0,2,7,5,4,6", ""])
@pytest.mark.parametrize("size", [16, 13])
def test_one_element_of_each_row_is_taken_where_the_row_is(size: int, table: str, places: str) -> None:
    right(
        f"""
        t = f32[{size},6,4] parameter(0){mark(table)}
        i = s32[{size}] parameter(1){mark(places)}{COUNTED.format(size=size)}
        ROOT g = f32[{size},4] gather(t, at), offset_dims={{1}}, collapsed_slice_dims={{0,1}},
          start_index_map={{0,1}}, index_vector_dim=1, slice_sizes={{1,1,4}}{mark("[8,1]<=[8]")}""",
        np.random.default_rng(0).normal(size=(size, 6, 4)).astype(np.float32),
        np.resize(WILD, size),
    )


@pytest.mark.parametrize("places", ["[8]<=[8]", "[4,2]<=[8] copies", ""])
@pytest.mark.parametrize("table", ["[8,1,1]<=[8]", "[4,2,1]<=[8]", "[2,1,4]<=[8]", "[8,1,1]3,1,0,2,7,5,4,6", ""])
@pytest.mark.parametrize("size", [16, 13])
def test_one_element_of_each_row_is_put_where_the_row_is(size: int, table: str, places: str) -> None:
    for reducer in ("assign", "max"):
        right(
            f"""
            t = f32[{size},6,4] parameter(0){mark(table)}
            i = s32[{size}] parameter(1){mark(places)}{COUNTED.format(size=size)}
            u = f32[{size},4] parameter(2){mark("[8,1]<=[8]")}
            ROOT g = f32[{size},6,4] scatter(t, at, u), update_window_dims={{1}}, inserted_window_dims={{0,1}},
              scatter_dims_to_operand_dims={{0,1}}, index_vector_dim=1, to_apply={reducer}_f32{mark(table)}""",
            np.random.default_rng(0).normal(size=(size, 6, 4)).astype(np.float32),
            np.resize(WILD, size),
        )


def test_rows_that_move_in_step_with_their_indices_need_nobody() -> None:
    for op in (
        """gather(t, at), offset_dims={1}, collapsed_slice_dims={0,1}, start_index_map={0,1}, index_vector_dim=1,
           slice_sizes={1,1,4}""",
        """scatter(t, at, u), update_window_dims={1}, inserted_window_dims={0,1},
           scatter_dims_to_operand_dims={0,1}, index_vector_dim=1, to_apply=assign_f32""",
    ):
        result, tiles = ("f32[16,4]", "[8,1]<=[8]") if op.startswith("gather") else ("f32[16,6,4]", "[8,1,1]<=[8]")
        local = split(f"""
            t = f32[16,6,4] parameter(0){mark("[8,1,1]<=[8]")}
            i = s32[16] parameter(1){mark("[8]<=[8]")}{COUNTED.format(size=16)}
            u = f32[16,4] parameter(2){mark("[8,1]<=[8]")}
            ROOT g = {result} {op}{mark(tiles)}""")
        assert not local.collectives


def test_two_components_may_count_and_a_third_choose() -> None:
    right(
        f"""
        t = f32[8,6,5] parameter(0){mark("[4,2,1]<=[8]")}
        n = s32[1,8,6] iota(), iota_dimension=1
        m = s32[1,8,6] iota(), iota_dimension=2
        i = s32[1,8,6] parameter(1){mark("[1,4,2]<=[8]")}
        at = s32[3,8,6] concatenate(m, i, n), dimensions={{0}}
        ROOT g = f32[8,6] gather(t, at), offset_dims={{}}, collapsed_slice_dims={{0,1,2}}, start_index_map={{1,2,0}},
          index_vector_dim=0, slice_sizes={{1,1,1}}{mark("[4,2]<=[8]")}""",
        np.random.default_rng(0).normal(size=(8, 6, 5)).astype(np.float32),
        np.random.default_rng(1).integers(-2, 9, (1, 8, 6)).astype(np.int32),
    )
