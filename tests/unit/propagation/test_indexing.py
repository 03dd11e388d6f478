"""Gather and scatter: looked-up, pass-through and parallel dims."""

from __future__ import annotations

from tests.support.propagated_texts import SUM, printed

LOOK_UP = "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,16}"
ADD = (
    "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1,"
    " to_apply=%sum"
)


def gather(table: str, indices: str, define: str = "parameter(1)") -> str | None:
    body = (
        f"  %t = f32[8,16] parameter(0){table}\n  %i = s32[8,1] {define}{indices}\n"
        f"  %op = f32[8,16] gather(%t, %i), {LOOK_UP}\n  ROOT %sink = (f32[8,16]) tuple(%op)"
    )
    return printed(body, "op")


def test_rows_looked_up_are_split_as_the_indices() -> None:
    assert gather("", ", sharding={devices=[4,1]<=[4]}") == "{devices=[4,1]<=[4]}"


def test_a_column_split_of_the_table_passes_through() -> None:
    assert gather(", sharding={devices=[1,4]<=[4]}", "") == "{devices=[1,4]<=[4]}"


def test_a_row_split_of_the_table_does_not() -> None:
    assert gather(", sharding={devices=[4,1]<=[4]}", "") is None


def test_unless_the_index_is_an_iota() -> None:
    found = gather(", sharding={devices=[4,1]<=[4]}", "", "iota(), iota_dimension=0")
    assert found == "{devices=[4,1]<=[4]}"
    constant = "constant({{0},{1},{2},{3},{4},{5},{6},{7}})"
    assert gather(", sharding={devices=[4,1]<=[4]}", "", constant) == "{devices=[4,1]<=[4]}"
    constant = "constant({{0},{1},{2},{3},{4},{5},{7},{6}})"
    assert gather(", sharding={devices=[4,1]<=[4]}", "", constant) is None


def scatter(update: str, name: str, operand: str = "") -> str | None:
    body = (
        f"  %t = f32[8,16] parameter(0){operand}\n  %j = s32[4,1] parameter(1)\n  %i = s32[4,1] negate(%j)\n"
        f"  %u = f32[4,16] parameter(2){update}\n"
        f"  %op = f32[8,16] scatter(%t, %i, %u), {ADD}\n  ROOT %sink = (f32[8,16]) tuple(%op)"
    )
    return printed(body, name, SUM)


def test_scatter_takes_window_dims_from_updates_and_all_from_the_operand() -> None:
    assert scatter(", sharding={devices=[1,4]<=[4]}", "op") == "{devices=[1,4]<=[4]}"
    assert scatter(", sharding={devices=[4,1]<=[4]}", "op") is None
    assert scatter("", "op", ", sharding={devices=[4,1]<=[4]}") == "{devices=[4,1]<=[4]}"


def test_indices_are_split_as_the_updates_are() -> None:
    both = ", sharding={devices=[2,2]<=[4]}"
    assert scatter(both, "i", ", sharding={replicated}") == "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"
