"""Partial results: one reduction for all partial sums, scattered where a slice is wanted, neither too early nor too
late.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.split_programs import counts, mark, right, split

ADDENDS = f"""
    x = f32[16,800] parameter(0){mark("[1,8]<=[8]")}
    w = f32[800,24] parameter(1){mark("[8,1]<=[8]")}
    d = f32[16,24] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
    y = f32[16,800] parameter(2){mark("[1,8]<=[8]")}
    e = f32[16,24] dot(y, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"""
SUM = 2 * 7 / 8 * 16 * 24 * 4


@pytest.mark.parametrize("op", ["add", "subtract"])
def test_two_gradients_that_are_added_cost_one_sum(op: str) -> None:
    local = right(f"{ADDENDS}\n ROOT s = f32[16,24] {op}(d, e){mark('')}")
    assert counts(local) == {"all-reduce": 1}
    assert local.comm_bytes_per_device == SUM


@pytest.mark.parametrize("other", ["[2,4]<=[4,2]T(1,0)", "[2,4]<=[8]", "[8,1]<=[4,2]T(1,0)"])
def test_sums_over_all_devices_are_one_however_each_is_split(other: str) -> None:
    """As the norm of all gradients, where weights are split over data and model, or over model and data."""
    local = right(f"""
        x = f32[16,32] parameter(0){mark("[4,2]<=[8]")}
        y = f32[32,16] parameter(1){mark(other)}
        zero = f32[] constant(0)
        a = f32[] reduce(x, zero), dimensions={{0,1}}, to_apply=add_f32
        b = f32[] reduce(y, zero), dimensions={{0,1}}, to_apply=add_f32
        ROOT s = f32[] add(a, b){mark("")}""")
    assert counts(local) == {"all-reduce": 1}


def test_a_gradient_that_ends_split_is_scattered_once() -> None:
    local = right(f"{ADDENDS}\n ROOT s = f32[16,24] add(d, e){mark('[8,1]<=[8]')}")
    assert counts(local) == {"reduce-scatter": 1}
    assert local.comm_bytes_per_device == SUM / 2


def test_linear_steps_wait_for_the_sum() -> None:
    local = right(f"""{ADDENDS}
        third = f32[] constant(0.25)
        scale = f32[16,24] broadcast(third), dimensions={{}}
        n = f32[16,24] negate(d)
        m = f32[16,24] multiply(scale, n)
        f = f32[16,24] divide(e, scale)
        a = f32[16,24] add(m, f)
        ROOT t = f32[24,16] transpose(a), dimensions={{1,0}}{mark("")}""")
    assert counts(local) == {"all-reduce": 1}


def test_a_product_of_addends_needs_their_sums_first() -> None:
    local = right(f"{ADDENDS}\n ROOT s = f32[16,24] multiply(d, e){mark('')}")
    assert counts(local) == {"all-reduce": 2}
    right(f"{ADDENDS}\n ROOT s = f32[16,24] multiply(d, d){mark('')}")
    right(f"{ADDENDS}\n ROOT s = f32[16,24] add(d, d){mark('')}")


def test_the_largest_of_sums_is_no_sum_of_largest() -> None:
    right(f"{ADDENDS}\n ROOT s = f32[16,24] maximum(d, e){mark('')}")


def test_the_largest_of_partial_maxima_costs_one_reduction() -> None:
    local = right(f"""
        x = f32[16,800] parameter(0){mark("[1,8]<=[8]")}
        y = f32[16,800] parameter(1){mark("[1,8]<=[8]")}
        low = f32[] constant(-inf)
        a = f32[16] reduce(x, low), dimensions={{1}}, to_apply=max_f32
        b = f32[16] reduce(y, low), dimensions={{1}}, to_apply=max_f32
        ROOT m = f32[16] maximum(a, b){mark("")}""")
    assert counts(local) == {"all-reduce": 1}


def test_addends_of_other_groups_are_not_mixed() -> None:
    right(f"""
        x = f32[16,800] parameter(0){mark("[1,4,2]<=[8] copies")}
        y = f32[16,800] parameter(1){mark("[1,4,2]<=[2,4]T(1,0) copies")}
        zero = f32[] constant(0)
        a = f32[16] reduce(x, zero), dimensions={{1}}, to_apply=add_f32
        b = f32[16] reduce(y, zero), dimensions={{1}}, to_apply=add_f32
        ROOT m = f32[16] add(a, b){mark("")}""")


def test_a_sum_that_two_need_is_paid_once() -> None:
    local = right(f"""{ADDENDS}
        a = f32[16,24] tanh(d)
        b = f32[16,24] add(d, e)
        ROOT t = (f32[16,24], f32[16,24]) tuple(a, b), sharding={{{{replicated}}, {{replicated}}}}""")
    assert counts(local) == {"all-reduce": 2}


def test_a_sum_is_taken_before_it_is_narrowed() -> None:
    local = right(f"""{ADDENDS}
        ROOT n = bf16[16,24] convert(d){mark("")}""")
    (sum_,) = local.collectives
    assert sum_.kind == "all-reduce"
    assert sum_.dtype == "f32"


def test_a_scalar_is_reduced_before_it_is_broadcast() -> None:
    local = right(f"""
        x = f32[64] parameter(0){mark("[8]<=[8]")}
        zero = f32[] constant(0)
        s = f32[] reduce(x, zero), dimensions={{0}}, to_apply=add_f32
        n = f32[] negate(s)
        b = f32[64] broadcast(n), dimensions={{}}
        ROOT r = f32[64] multiply(b, x){mark("[8]<=[8]")}""")
    (sum_,) = local.collectives
    assert sum_.shape.size == 1


def test_column_then_row_is_one_sum() -> None:
    local = right(f"""
        x = f32[16,32] parameter(0){mark("")}
        w1 = f32[32,64] parameter(1){mark("[1,8]<=[8]")}
        h = f32[16,64] dot(x, w1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
        a = f32[16,64] tanh(h)
        w2 = f32[64,32] parameter(2){mark("[8,1]<=[8]")}
        ROOT y = f32[16,32] dot(a, w2), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{mark("")}""")
    assert counts(local) == {"all-reduce": 1}
    assert local.comm_bytes_per_device == 2 * 7 / 8 * 16 * 32 * 4


def test_a_sharded_parameter_gets_its_gradient_by_reduce_scatter() -> None:
    # Fully sharded data parallel: the batch and the parameter are split over the same devices.
    local = split(f"""
        x = f32[2048,512] parameter(0){mark("[8,1]<=[8]")}
        g = f32[2048,128] parameter(1){mark("[8,1]<=[8]")}
        w = f32[512,128] parameter(2){mark("[8,1]<=[8]")}
        d = f32[512,128] dot(x, g), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}{mark("[8,1]<=[8]")}
        ROOT n = f32[512,128] subtract(w, d){mark("[8,1]<=[8]")}""")
    assert counts(local) == {"reduce-scatter": 1}
    assert local.comm_bytes_per_device == 7 / 8 * 512 * 128 * 4


def test_mixed_splits_reduce_over_their_group_only() -> None:
    local = right(f"""
        x = f32[16,32] parameter(0){mark("[2,4]<=[8]")}
        w = f32[32,24] parameter(1){mark("[4,1,2]<=[2,4]T(1,0) copies")}
        ROOT d = f32[16,24] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},
          sharding={{devices=[2,1,4]<=[8] last_tile_dim_replicate}}""")
    (sum_,) = local.collectives
    assert {tuple(sorted(g)) for g in sum_.groups} == {(0, 1, 2, 3), (4, 5, 6, 7)}


def test_padding_of_an_uneven_contraction_is_no_addend() -> None:
    for k in (5, 9, 3):
        right(f"""
            x = f32[4,{k}] parameter(0){mark("[1,8]<=[8]")}
            w = f32[{k},6] parameter(1){mark("[8,1]<=[8]")}
            d = f32[4,6] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
            ROOT e = f32[4,6] negate(d){mark("[4,2]<=[8]")}""")


# Annotations bind: partial sums pass what the user annotated only on the way to a sum that has the same sharding.  But
# where each device keeps its own part of such a sum alone, no more of it is made, as XLA's GPU compiler has it.


@pytest.mark.parametrize("reader", ["negate", "copy"])
def test_of_an_annotated_sum_that_nobody_reads_whole_each_device_makes_its_part(reader: str) -> None:
    local = right(f"""{ADDENDS}
        a = f32[16,24] copy(d){mark("")}
        n = f32[16,24] {reader}(a){mark("[8,1]<=[8]")}
        ROOT r = f32[16,24] tanh(n){mark("[8,1]<=[8]")}""")
    assert counts(local) == {"reduce-scatter": 1}
    assert local.comm_bytes_per_device == SUM / 2
    assert local.sharding_overrides == ()


def test_a_sum_that_nobody_annotated_is_made_for_its_split_reader() -> None:
    local = right(f"""{ADDENDS}
        n = f32[16,24] negate(d){mark("[8,1]<=[8]")}
        ROOT r = f32[16,24] tanh(n){mark("[8,1]<=[8]")}""")
    assert counts(local) == {"reduce-scatter": 1}


def test_an_annotated_addend_is_a_sum_of_its_own() -> None:
    local = right(f"""{ADDENDS}
        a = f32[16,24] copy(d){mark("")}
        s = f32[16,24] add(a, e){mark("[8,1]<=[8]")}
        ROOT r = f32[16,24] tanh(s){mark("[8,1]<=[8]")}""")
    assert counts(local) == {"reduce-scatter": 2}


def test_an_annotated_addend_waits_for_a_sum_of_its_own_sharding_and_is_named() -> None:
    local = right(f"""{ADDENDS}
        a = f32[16,24] copy(d){mark("")}
        s = f32[16,24] add(a, e){mark("")}
        ROOT r = f32[16,24] tanh(s){mark("")}""")
    assert counts(local) == {"all-reduce": 1}
    assert "a" in {d.name for d in local.sharding_overrides}


def cut(count: int, size: int = 8) -> str:
    """Parts of the partial sums `d`, one behind the other."""
    parts = [(n, 8 * n, 8 * n + size) for n in range(count)]
    return "\n".join(f"c{n} = f32[16,{size}] slice(d), slice={{[0:16], [{a}:{b}]}}" for n, a, b in parts)


def test_parts_of_a_sum_that_each_meet_another_wait_for_it() -> None:
    local = right(f"""{ADDENDS}
        {cut(3)}
        e0 = f32[16,8] slice(e), slice={{[0:16], [0:8]}}
        e1 = f32[16,8] slice(e), slice={{[0:16], [8:16]}}
        e2 = f32[16,8] slice(e), slice={{[0:16], [16:24]}}
        first = f32[16,8] add(c0, e0)
        second = f32[16,8] subtract(e1, c1)
        third = f32[16,8] add(c2, e2)
        ROOT t = (f32[16,8], f32[16,8], f32[16,8]) tuple(first, second, third),
            sharding={{{{replicated}}, {{replicated}}, {{replicated}}}}""")
    assert local.comm_bytes_per_device == SUM


@pytest.mark.parametrize("size", [8, 12])
def test_parts_of_a_sum_that_nothing_is_added_to_are_cut_behind_it(size: int) -> None:
    results = "(f32[16,8], f32[16,8])".replace("8]", f"{size}]")
    local = right(f"""{ADDENDS.splitlines()[1]}
        w = f32[800,24] parameter(1){mark("[8,1]<=[8]")}
        d = f32[16,24] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
        {cut(2, size)}
        ROOT t = {results} tuple(c0, c1), sharding={{{{replicated}}, {{replicated}}}}""")
    assert counts(local) == {"all-reduce": 1}


def test_a_part_of_partial_sums_is_cut_where_it_is_whole_and_not_where_it_is_split() -> None:
    """Along the dim that four devices split the parts lie across tiles: the sum is made first."""
    for dims, sizes, sums in (("[0:8], [0:24]", "8,24", 2), ("[0:16], [0:8]", "16,8", 1)):
        local = right(f"""
            x = f32[16,800] parameter(0){mark("[4,2]<=[8]")}
            w = f32[800,24] parameter(1){mark("[2,1,4]<=[4,2]T(1,0) copies")}
            d = f32[16,24] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
            y = f32[16,800] parameter(2){mark("[4,2]<=[8]")}
            e = f32[16,24] dot(y, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
            c = f32[{sizes}] slice(d), slice={{{dims}}}
            f = f32[{sizes}] slice(e), slice={{{dims}}}
            ROOT s = f32[{sizes}] add(c, f){mark("")}""")
        assert counts(local)["all-reduce"] == sums


@pytest.mark.parametrize("rows", ["[1,8]<=[8]", "[2,4]<=[8]"])
def test_a_sum_waits_for_its_rows_to_be_added_to_fewer(rows: str) -> None:
    """As of what experts make of tokens, each of several: all devices have all rows, or a half of them."""
    columns = rows if rows.startswith("[1") else "[4,1,2]<=[2,4]T(1,0) copies"
    local = right(
        f"""
        i = s32[512,1] parameter(0){mark("")}
        x = f32[512,800] parameter(1){mark(rows)}
        w = f32[800,64] parameter(2){mark("[8,1]<=[8]" if rows.startswith("[1") else columns)}
        d = f32[512,64] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
        zero = f32[] constant(0)
        z = f32[64,64] broadcast(zero), dimensions={{}}
        ROOT s = f32[64,64] scatter(z, i, d), update_window_dims={{1}}, inserted_window_dims={{0}},
          scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=add_f32{mark("[8,1]<=[8]")}""",
        np.arange(512, dtype=np.int32).reshape(512, 1) * 7 % 64,
    )
    assert counts(local) == {"reduce-scatter": 1}
    assert local.comm_bytes_per_device == 7 / 8 * 64 * 64 * 4


def test_a_sum_of_few_rows_does_not_wait_for_a_large_table() -> None:
    """Of which other rows come from elsewhere: the gradients of an embedding that is looked up twice."""
    into_table = """update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0},
          index_vector_dim=1, to_apply=add_f32"""
    local = right(
        f"""
        i = s32[16,1] parameter(0){mark("")}
        j = s32[512,1] parameter(1){mark("[8,1]<=[8]")}
        x = f32[16,800] parameter(2){mark("[1,8]<=[8]")}
        w = f32[800,24] parameter(3){mark("[8,1]<=[8]")}
        d = f32[16,24] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
        g = f32[512,24] parameter(4){mark("[8,1]<=[8]")}
        zero = f32[] constant(0)
        z = f32[65536,24] broadcast(zero), dimensions={{}}
        few = f32[65536,24] scatter(z, i, d), {into_table}{mark("[8,1]<=[8]")}
        many = f32[65536,24] scatter(z, j, g), {into_table}{mark("[8,1]<=[8]")}
        ROOT s = f32[65536,24] add(few, many){mark("[8,1]<=[8]")}""",
        *[np.arange(count, dtype=np.int32).reshape(count, 1) * 7 for count in (16, 512)],
    )
    assert local.comm_bytes_per_device <= SUM + 7 / 8 * 512 * (24 + 1) * 4


@pytest.mark.parametrize("batch", [4, 6])
def test_a_sum_waits_for_its_rows_to_be_added_to_fewer_sequence_by_sequence(batch: int) -> None:
    local = right(
        f"""
        i = s32[{batch},64,1] parameter(0){mark("[2,1,1,4]<=[8] copies")}
        x = f32[{batch},64,80] parameter(1){mark("[2,1,4]<=[8]")}
        w = f32[80,24] parameter(2){mark("[4,1,2]<=[2,4]T(1,0) copies")}
        d = f32[{batch},64,24] dot(x, w), lhs_contracting_dims={{2}}, rhs_contracting_dims={{0}}
        zero = f32[] constant(0)
        z = f32[{batch},16,24] broadcast(zero), dimensions={{}}
        ROOT s = f32[{batch},16,24] scatter(z, i, d), update_window_dims={{2}}, inserted_window_dims={{1}},
          scatter_dims_to_operand_dims={{1}}, input_batching_dims={{0}}, scatter_indices_batching_dims={{0}},
          index_vector_dim=2, to_apply=add_f32{mark("[2,1,1,4]<=[8] copies")}""",
        np.arange(batch * 64, dtype=np.int32).reshape(batch, 64, 1) * 7 % 16,
    )
    assert counts(local) == {"all-reduce": 1}
    assert local.comm_bytes_per_device == 2 * 3 / 4 * (batch // 2) * 16 * 24 * 4


@pytest.mark.parametrize("rows", [510, 511])
def test_rows_that_do_not_divide_are_added_once(rows: int) -> None:
    right(
        f"""
        i = s32[{rows},1] parameter(0){mark("")}
        x = f32[{rows},800] parameter(1){mark("[4,2]<=[8]")}
        w = f32[800,64] parameter(2){mark("[2,1,4]<=[4,2]T(1,0) copies")}
        d = f32[{rows},64] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
        zero = f32[] constant(0)
        z = f32[64,64] broadcast(zero), dimensions={{}}
        ROOT s = f32[64,64] scatter(z, i, d), update_window_dims={{1}}, inserted_window_dims={{0}},
          scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=add_f32{mark("[8,1]<=[8]")}""",
        np.arange(rows, dtype=np.int32).reshape(rows, 1) * 7 % 64,
    )


def test_a_sum_does_not_wait_for_what_can_be_no_partial_sum() -> None:
    """`t` is made whole on each device, though it comes through a linear op: few rows travel, and no sum does."""
    local = right(
        f"""
        i = s32[64,1] parameter(0){mark("")}
        u = f32[64,64] parameter(1){mark("[8,1]<=[8]")}
        y = f32[4096,8] parameter(2){mark("")}
        zero = f32[] constant(0)
        z = f32[512,64] broadcast(zero), dimensions={{}}
        s = f32[512,64] scatter(z, i, u), update_window_dims={{1}}, inserted_window_dims={{0}},
          scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=add_f32{mark("")}
        h = f32[4096,8] tanh(y)
        t = f32[512,64] reshape(h)
        a = f32[512,64] add(s, t){mark("")}
        ROOT n = f32[512,64] negate(a){mark("")}""",
        np.arange(64, dtype=np.int32).reshape(64, 1) * 7 % 512,
    )
    assert counts(local) == {"all-gather": 1}
    assert local.comm_bytes_per_device == 7 / 8 * 64 * 64 * 4


STATE = "(s32[], f32[16], f32[16,64])"
ADDING = f"""
  add {{ l = f32[] parameter(0)  r = f32[] parameter(1)  ROOT s = f32[] add(l, r) }}
  more {{ c = {STATE} parameter(0)  i = s32[] get-tuple-element(c), index=0
    n = s32[] constant(4)  ROOT less = pred[] compare(i, n), direction=LT }}
  body {{ c = {STATE} parameter(0)  i = s32[] get-tuple-element(c), index=0
    one = s32[] constant(1)  next = s32[] add(i, one)
    s = f32[16] get-tuple-element(c), index=1
    x = f32[16,64] get-tuple-element(c), index=2
    y = f32[16,64] tanh(x)
    zero = f32[] constant(0)
    d = f32[16] reduce(y, zero), dimensions={{1}}, to_apply=add
    new = f32[16] add(s, d)
    ROOT t = {STATE} tuple(next, new, y) }}"""


@pytest.mark.parametrize("begin", [0, 4])
@pytest.mark.parametrize(
    ("start", "beside", "sums"), [("copy(d)", 0, 1), ("add(z, d)", 0, 1), ("subtract(z, d)", 0, 1), ("add(z, d)", 1, 2)]
)
def test_what_a_loop_starts_to_add_to_waits_for_its_end(start: str, beside: int, sums: int, begin: int) -> None:
    """A program's first layer, say, does what its loop over the others does."""
    local = right(
        f"""
        x = f32[16,64] parameter(0){mark("[1,8]<=[8]")}
        zero = f32[] constant(0)
        d = f32[16] reduce(x, zero), dimensions={{1}}, to_apply=add
        o = f32[] constant({beside})
        z = f32[16] broadcast(o), dimensions={{}}
        s = f32[16] {start}
        i = s32[] constant({begin})
        t = {STATE} tuple(i, s, x)
        l = {STATE} while(t), condition=more, body=body,
          sharding={{{{replicated}}, {{replicated}}, {{devices=[1,8]<=[8]}}}}
        ROOT r = f32[16] get-tuple-element(l), index=1{mark("")}""",
        computations=ADDING,
    )
    assert [(c.kind, c.executions) for c in local.collectives] == [("all-reduce", 1)] * sums
