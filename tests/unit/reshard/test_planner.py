"""What the planner promises beside right data: limits, refusals, partial values, one-device values, text."""

from __future__ import annotations

import numpy as np
import pytest

import hlosharding as hs
from hlosharding.cost import machines
from hlosharding.errors import PartitionError, ShardingError
from hlosharding.ir import Shape
from hlosharding.partitioner import PartitionOptions
from hlosharding.reshard import (
    AllGather,
    AllReduce,
    AllToAll,
    DynamicSlice,
    Keep,
    Pad,
    Permute,
    ReduceScatter,
    Slice,
    plan_steps,
)
from hlosharding.sharding import HloSharding

parse = HloSharding.parse
SHAPE = Shape.parse("f32[64,64]")
ROWS, COLUMNS = parse("{devices=[8,1]<=[8]}"), parse("{devices=[1,8]<=[8]}")


def kinds(source: str, target: str, **options: object) -> list[type]:
    return [type(s) for s in plan_steps(SHAPE, parse(source), parse(target), num_devices=8, **options)]  # pyright: ignore[reportArgumentType]


def test_nothing_to_do() -> None:
    named = parse('{devices=[2,4]<=[8] metadata={op_name="x"}}')
    assert plan_steps(SHAPE, parse("{devices=[2,4]0,1,2,3,4,5,6,7}"), named) == ()


def test_a_finer_tiling_of_copies_is_a_free_slice() -> None:
    steps = plan_steps(SHAPE, HloSharding.replicate(), parse("{devices=[2,4]<=[4,2]T(1,0)}"))
    assert [type(step) for step in steps] == [DynamicSlice]


def test_where_time_alone_decides_a_small_array_is_gathered_whole() -> None:
    source, target = "{devices=[4,1]0,2,1,3}", "{devices=[1,2,2]0,2,1,3 last_tile_dim_replicate}"
    quick = hs.plan_reshard((15, 23), "f32", source, target, objective="time")
    assert isinstance(quick.steps[0], AllGather)
    assert quick.predicted_s < hs.plan_reshard((15, 23), "f32", source, target, objective="bytes").predicted_s
    large = hs.plan_reshard((3000, 4600), "f32", source, target, objective="time")
    assert all(len(step.groups[0]) < 4 for step in large.steps if isinstance(step, AllGather))


@pytest.mark.parametrize(
    ("sizes", "source", "target", "kinds"),
    [
        # XLA gathers both dims and cuts once (live: 2 all-gathers, 1 slice).
        ((1699, 157), "{devices=[2,2]<=[4]}", "{replicated}", [AllGather, AllGather, Slice]),
        # Not whole, but in halves: the target's tiles along dim 0 are two of the source's.
        ((19, 17), "{devices=[4,4]<=[16]}", "{devices=[2,8]<=[16]}", [AllGather, AllGather, Slice, Pad, DynamicSlice]),
        # The small tiles are reordered, then gathered.
        ((15, 23), "{devices=[4,2]5,0,2,1,3,4,7,6}", "{devices=[1,2,4]0,1,4,5,2,3,6,7 last_tile_dim_replicate}",
         [Permute, AllGather, Slice]),
        # A gather, and an exchange that uneven tiles did not allow.
        ((1028, 25573), "{devices=[4,2]<=[8]}", "{devices=[1,4,2]<=[8] last_tile_dim_replicate}",
         [AllGather, Slice, Pad, AllToAll]),
    ],
)  # fmt: skip
def test_where_time_decides_uneven_dims_are_cut_once(
    sizes: tuple[int, ...], source: str, target: str, kinds: list[type]
) -> None:
    plan = hs.plan_reshard(sizes, "f32", source, target, objective="time")
    assert [type(step) for step in plan.steps] == kinds


def test_for_the_fewest_bytes_nobody_gathers_more_than_the_target_has() -> None:
    # GSPMD replicates the whole array for these: 8 to 12 times the bytes needed.
    for source, target in [
        ("{devices=[2,2,2]<=[8] last_tile_dim_replicate}", "{devices=[8,1]<=[8]}"),
        ("{devices=[8,1]<=[8]}", "{devices=[2,2,2]<=[8] last_tile_dim_replicate}"),
        ("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}"),
    ]:
        plan = hs.plan_reshard((2048, 2048), "f32", source, target, objective="bytes")
        assert plan.peak_bytes < 2048 * 2048 * 4
        assert plan.mean_received_bytes <= 2 * plan.lower_bound


def test_time_prefers_few_steps_for_small_arrays_and_few_bytes_for_large_ones() -> None:
    pair = "{devices=[2,4]<=[8]}", "{devices=[4,2]<=[8]}"
    small = hs.plan_reshard((8, 8), "f32", *pair, objective="time")
    large = hs.plan_reshard((8192, 8192), "f32", *pair, objective="time")
    assert small.mean_received_bytes > small.lower_bound
    assert large.mean_received_bytes == large.lower_bound


def test_each_objective_has_the_least_of_what_it_names_and_time_is_the_default() -> None:
    pair = "{devices=[2,4]<=[8]}", "{devices=[8,1]<=[2,2,2]T(2,1,0)}"
    least = hs.plan_reshard((64, 64), "f32", *pair, objective="bytes")
    quick = hs.plan_reshard((64, 64), "f32", *pair, objective="time")
    assert least.mean_received_bytes < quick.mean_received_bytes
    assert quick.predicted_s < least.predicted_s
    assert hs.plan_reshard((64, 64), "f32", *pair).steps == quick.steps


@pytest.mark.parametrize(
    ("m", "n", "sharding"),
    [
        (8, 6, "[2,1,2]0,2,1,3 last_tile_dim_replicate"),
        (8, 6, "[1,2,2]<=[4] last_tile_dim_replicate"),
        (8, 6, "[2,2]<=[4]"),
        (6, 8, "[4,1]<=[4]"),
        (5, 8, "[2,1,2]0,2,1,3 last_tile_dim_replicate"),
    ],
)
def test_more_bytes_move_only_for_time(m: int, n: int, sharding: str) -> None:
    """One sum and a cut are fewer steps than two scattered sums; the cut is made as its reader reads."""
    text = f"""HloModule m, num_partitions=4
    ENTRY e {{
      a = f32[{m},12] parameter(0), sharding={{devices=[1,4]<=[4]}}
      b = f32[12,{n}] parameter(1), sharding={{devices=[4,1]<=[4]}}
      d = f32[{m},{n}] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
      ROOT t = f32[{m},{n}] tanh(d), sharding={{devices={sharding}}}
    }}"""

    def made(objective: str) -> tuple[float, float]:
        local = hs.partition(hs.load(text, format="hlo"), options=PartitionOptions(objective=objective))
        return local.comm_bytes_per_device, hs.simulate(local.module, local.machine).time_s

    (least, seconds), (nbytes, quick) = made("bytes"), made("time")
    assert nbytes <= least or quick < seconds


# Partial values


def test_partial_sums_meet_scattered_where_the_target_is_tiled() -> None:
    source = "{devices=[2,1,4]<=[8] last_tile_dims={unreduced}}"
    assert kinds(source, "{devices=[2,4]<=[8]}", reduce_kind="add") == [ReduceScatter]
    assert kinds(source, "{devices=[8,1]<=[8]}", reduce_kind="maximum") == [ReduceScatter]


def test_partial_sums_meet_for_all_in_one_go_over_the_product_group() -> None:
    steps = plan_steps(SHAPE, HloSharding.unreduced(), HloSharding.replicate(), reduce_kind="add", num_devices=8)
    assert steps == (AllReduce((tuple(range(8)),), "add"),)


def test_copies_share_the_work_of_a_sum() -> None:
    # 2 (g-1)/g of half the buffer, then half of it gathered: less than 2 (g-1)/g of the whole.
    plan = hs.plan_reshard(
        (64, 64),
        "f32",
        "{devices=[1,1,4,2]<=[8] last_tile_dims={unreduced, replicated}}",
        "{replicated}",
        objective="bytes",
    )
    whole = 64 * 64 * 4
    assert plan.mean_received_bytes == plan.lower_bound == whole * 1.25
    assert 2 * 3 / 4 * whole == whole * 1.5


def test_a_partial_value_says_how_it_is_reduced() -> None:
    with pytest.raises(PartitionError, match="its reduction None is none of add, multiply"):
        plan_steps(SHAPE, HloSharding.unreduced(), HloSharding.replicate(), num_devices=8)


def test_part_of_the_partial_sums_may_stay() -> None:
    steps = plan_steps(
        SHAPE,
        parse("{devices=[1,1,8]<=[8] last_tile_dims={unreduced}}"),
        parse("{devices=[1,1,2,4]<=[8] last_tile_dims={unreduced, replicated}}"),
        reduce_kind="add",
        num_devices=8,
    )
    assert steps == (AllReduce(((0, 1, 2, 3), (4, 5, 6, 7)), "add"),)


@pytest.mark.parametrize(
    ("kind", "rest"), [("add", 0), ("multiply", 1), ("maximum", -128), ("minimum", 127), ("and", -1)]
)
def test_whole_to_partial_leaves_neutral_elements(kind: str, rest: int) -> None:
    target = parse("{devices=[1,1,2]<=[2] last_tile_dims={unreduced}}")
    (step,) = plan_steps(Shape.parse("s8[2,2]"), HloSharding.replicate(), target, reduce_kind=kind, num_devices=2)
    assert isinstance(step, Keep)
    kept, neutral = step.apply([np.full((2, 2), 7, np.int8)] * 2)
    assert (kept == 7).all()
    assert (neutral == rest).all()


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("{devices=[1,4,2]<=[8] last_tile_dims={unreduced, replicated}}", "{unreduced}"),
        ("{devices=[1,2,4]<=[8] last_tile_dims={replicated, unreduced}}", "{unreduced}"),
        (
            "{devices=[2,2,2]<=[8] last_tile_dims={unreduced, replicated}}",
            "{devices=[2,4]<=[8] last_tile_dims={unreduced}}",
        ),
    ],
)
def test_copies_of_partial_sums_become_neutral_elements(source: str, target: str) -> None:
    plan = hs.plan_reshard((4,), "f32", source, target)
    assert [type(step) for step in plan.steps] == [Keep]
    terms = [np.arange(4) + 10 * n for n in range(2 if "[2,2,2]" in source else 4)]
    tiles = np.stack(plan.run(terms))
    sums = tiles.sum(0) if target == "{unreduced}" else np.concatenate([tiles[:4].sum(0), tiles[4:].sum(0)])
    np.testing.assert_array_equal(sums, sum(terms))


def test_copies_of_a_new_partial_sum_are_alike() -> None:
    source = "{devices=[2,4]0,2,3,7,1,4,5,6 last_tile_dims={unreduced, replicated}}"
    target = "{devices=[4,2]0,6,5,7,3,4,1,2 last_tile_dims={unreduced, replicated}}"
    tiles = hs.plan_reshard((), "int32", source, target).run([np.int32(5), np.int32(7)])
    assert [tiles[d] for d in (0, 5, 3, 1)] == [tiles[d] for d in (6, 7, 4, 2)]
    assert sum(tiles[d] for d in (0, 5, 3, 1)) == 12


# One device, manual groups, no elements


def test_a_value_on_one_device_spreads_in_pieces() -> None:
    plan = hs.plan_reshard((64, 64), "f32", "{maximal device=2}", "{devices=[8,1]<=[8]}")
    assert plan.mean_received_bytes == plan.lower_bound
    assert plan.received_bytes[2] == 0


def test_manual_groups_keep_to_themselves() -> None:
    source = "{devices=[2,1,4]<=[8] last_tile_dims={manual}}"
    plan = hs.plan_reshard((8, 8), "f32", source, "{devices=[1,2,4]<=[8] last_tile_dims={manual}}")
    assert [str(s) for s in plan.steps] == ["all-to-all, split dim 1, join dim 0, over {0, 4}, {1, 5}, {2, 6}, {3, 7}"]
    with pytest.raises(PartitionError, match="different manual groups"):
        hs.plan_reshard((8, 8), "f32", source, "{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dims={manual}}")


def test_manual_as_a_whole_is_refused() -> None:
    with pytest.raises(PartitionError, match="SPMDFullToShardShape"):
        plan_steps(SHAPE, HloSharding.manual(), ROWS)


def test_unknown_is_refused() -> None:
    with pytest.raises(PartitionError, match="cannot be resharded"):
        plan_steps(SHAPE, HloSharding.unknown(), ROWS)


@pytest.mark.parametrize("objective", ["bytes", "time"])
def test_no_elements_no_traffic(objective: str) -> None:
    plan = hs.plan_reshard((0, 16), "f32", ROWS, COLUMNS, objective=objective)  # pyright: ignore[reportArgumentType]
    assert plan.mean_received_bytes == 0
    assert [tile.shape for tile in plan.run(np.zeros((0, 16)))] == [(0, 2)] * 8


def test_scalars() -> None:
    partial = hs.plan_reshard((), "f32", "{unreduced}", "{replicated}", num_devices=4)
    assert [tile.item() for tile in partial.run([1, 2, 3, 4])] == [10] * 4
    one = hs.plan_reshard((), "s32", "{maximal device=1}", "{replicated}", num_devices=3)
    assert [tile.item() for tile in one.run(5)] == [5, 5, 5]


def test_any_order_of_many_devices_has_a_plan() -> None:
    order = np.random.default_rng(0).permutation(512)
    rows, columns = HloSharding.tile(order.reshape(512, 1)), parse("{devices=[1,512]<=[512]}")
    # Directly 512 x 511 pieces: too many.  The tiles first move to the target's order, as wholes.
    plan = hs.plan_reshard((1024, 1024), "u8", rows, columns, objective="bytes")
    assert plan.mean_received_bytes < 2.01 * plan.lower_bound
    assert len(plan.steps) == 2


# Memory


def test_a_plan_obeys_the_memory_limit_or_says_what_it_needs() -> None:
    free = hs.plan_reshard((64, 64), "f32", ROWS, COLUMNS)
    assert hs.plan_reshard((64, 64), "f32", ROWS, COLUMNS, memory_limit=free.peak_bytes).peak_bytes == free.peak_bytes
    with pytest.raises(
        PartitionError, match=r"fits in 100 bytes per device: the leanest needs 4096|leanest needs 4096"
    ):
        hs.plan_reshard((64, 64), "f32", ROWS, COLUMNS, memory_limit=100)


# The door


def test_shardings_are_checked_against_the_shape() -> None:
    with pytest.raises(ShardingError, match="2 dims"):
        hs.plan_reshard((64,), "f32", ROWS, COLUMNS)


@pytest.mark.parametrize(
    ("dims", "dtype", "says"), [((-4,), "f32", "no shape"), ((4,), "f99", "'f99' is no element type")]
)
def test_what_is_no_array_is_refused(dims: tuple[int, ...], dtype: str, says: str) -> None:
    with pytest.raises(PartitionError, match=says):
        hs.plan_reshard(dims, dtype, "{replicated}", "{replicated}")


def test_an_objective_nobody_knows() -> None:
    with pytest.raises(PartitionError, match="use one of time, bytes"):
        plan_steps(SHAPE, ROWS, COLUMNS, objective="beauty")


def test_run_refuses_another_array() -> None:
    plan = hs.plan_reshard((64, 64), "f32", ROWS, COLUMNS)
    with pytest.raises(PartitionError, match=r"for f32\[64,64\], got 1 of dims \[3\]"):
        plan.run([1, 2, 3])


@pytest.mark.parametrize(("dtype", "size"), [("bf16", 2), ("f8e5m2", 1), ("u8", 1), ("float64", 8), (np.int16, 2)])
def test_dtypes_by_either_name(dtype: object, size: int) -> None:
    plan = hs.plan_reshard((64, 64), dtype, ROWS, COLUMNS, objective="bytes")
    assert plan.mean_received_bytes == 64 * 64 // 8 * 7 // 8 * size


def test_text_shows_steps_bytes_and_bound() -> None:
    text = str(hs.plan_reshard((64, 64), "f32", ROWS, COLUMNS, machine=machines.cpu(8)))
    first, step, last = text.splitlines()
    assert first == "reshard f32[64,64] from {devices=[8,1]<=[8]} to {devices=[1,8]<=[8]} on 8 devices"
    assert step.startswith(
        "  1. all-to-all, split dim 1, join dim 0, over {0, 1, 2, 3, 4, 5, 6, 7}: f32[8,64] -> f32[64,8]"
    )
    assert last.startswith("  received per device 1,792 B (lower bound 1,792 B, 1.00x), peak 4,096 B, predicted ")


def test_plans_are_remembered() -> None:
    shape = Shape.parse("f32[96,96]")
    assert plan_steps(shape, ROWS, COLUMNS) is plan_steps(shape, parse("{devices=[8,1]0,1,2,3,4,5,6,7}"), COLUMNS)
