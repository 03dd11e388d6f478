"""The HLO that plans write does on eight CPU devices what a slicing of the whole array says."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from hlosharding.ir import Builder, Shape
from hlosharding.reshard import Step, plan_steps
from hlosharding.reshard.layout import layout_of
from hlosharding.reshard.reshard_plan import local_tiles
from hlosharding.sharding import HloSharding
from hlosharding.spmd import Emitter, Program
from hlosharding.xla_bridge import run_proto
from tests.support.random_programs.shardings import random_sharding

N = 8
CASES = {
    "slice": ("f32[16,8]", "{replicated}", "{devices=[4,2]<=[2,4]T(1,0)}", None),
    "gather": ("f32[16,8]", "{devices=[4,2]<=[2,4]T(1,0)}", "{devices=[1,2,4]<=[8] last_tile_dim_replicate}", None),
    "all-to-all": ("bf16[16,8]", "{devices=[8,1]<=[8]}", "{devices=[1,8]<=[8]}", None),
    "two axes at once": ("s32[8,8,8]", "{devices=[2,4,1]<=[8]}", "{devices=[1,1,8]<=[8]}", None),
    "joint all-to-all": ("f32[4,4,4,4]", "{devices=[2,1,4,1]<=[8]}", "{devices=[1,2,1,4]<=[8]}", None),
    "permute": ("f32[16,8]", "{devices=[4,2]<=[8]}", "{devices=[4,2]7,6,5,4,3,2,1,0}", None),
    "one to all": ("f32[8,8]", "{maximal device=3}", "{replicated}", None),
    "all to one": ("pred[8,8]", "{devices=[4,2]<=[8]}", "{maximal device=5}", None),
    "uneven": ("f32[13,10]", "{devices=[4,2]<=[8]}", "{devices=[2,4]3,1,4,0,5,2,6,7}", None),
    "uneven padding": ("f32[13,10]", "{devices=[8,1]<=[8]}", "{devices=[1,8]<=[8]}", None),
    "odd order": ("u8[24]", "{devices=[8]3,1,4,0,5,2,6,7}", "{devices=[4,2]<=[8] last_tile_dim_replicate}", None),
    "sum for all": ("f32[8,8]", "{devices=[1,2,4]<=[8] last_tile_dims={unreduced}}", "{devices=[1,2,4]<=[8] "
        "last_tile_dim_replicate}", "add"),
    "sum scattered": ("f32[8,8]", "{devices=[2,1,4]<=[8] last_tile_dims={unreduced}}", "{devices=[2,4]<=[8]}", "add"),
    "maximum": ("f32[8,10]", "{unreduced}", "{devices=[2,1,4]<=[8] last_tile_dim_replicate}", "maximum"),
    "sum, other order": ("s32[8,8]", "{devices=[2,1,4]0,3,5,6,1,2,4,7 last_tile_dims={unreduced}}",
        "{devices=[4,2]7,2,1,5,0,3,6,4}", "add"),
    "whole to partial": ("f32[8,8]", "{devices=[2,1,4]<=[8] last_tile_dim_replicate}",
        "{devices=[2,1,4]<=[8] last_tile_dims={unreduced}}", "add"),
}  # fmt: skip


@pytest.mark.parametrize("objective", ["bytes", "time"])
@pytest.mark.parametrize("case", CASES)
def test_emitted_steps_move_the_data(case: str, objective: str) -> None:
    text, first, last, kind = CASES[case]
    check(Shape.parse(text), HloSharding.parse(first), HloSharding.parse(last), kind, objective)


@pytest.mark.parametrize("seed", range(24))
def test_emitted_steps_of_random_reshards_move_the_data(seed: int) -> None:
    random = Random(seed)
    shape = Shape.array(random.choice(["f32", "s32", "bf16", "u8"]), tuple(random.choices(range(1, 17), k=2)))
    source, target = random_sharding(random, shape, N), random_sharding(random, shape, N)
    check(shape, source, target, None, random.choice(["bytes", "time"]))


def check(shape: Shape, source: HloSharding, target: HloSharding, kind: str | None, objective: str) -> None:
    """Plan, emit, run, and compare every device's real elements."""
    before, after = layout_of(source, shape.dims, N), layout_of(target, shape.dims, N)
    random = np.random.default_rng(5)
    partial_sums = [random.integers(0, 2, shape.dims).astype(shape.dtype) for _ in range(before.num_partial_sums)]
    steps = plan_steps(shape, source, target, reduce_kind=kind, objective=objective, num_devices=N)
    got = run(steps, list(local_tiles(partial_sums, before, padding=1)))
    assert got[0].shape == after.tile
    if after.num_partial_sums > 1:
        # Of a partial result only the sum over each group counts.
        groups = [[e for e in range(N) if (after.index[d] == after.index[e]).all()] for d in range(N)]
        got = [np.sum([got[e] for e in group], axis=0) for group in groups]
    whole = (np.max if kind == "maximum" else np.sum)(partial_sums, axis=0).astype(shape.dtype)
    low, high = after.bounds
    for device in np.flatnonzero(after.has_data()):
        wanted = whole[tuple(slice(a, b) for a, b in zip(low[device], high[device], strict=True))]
        np.testing.assert_array_equal(got[device][tuple(slice(0, size) for size in wanted.shape)], wanted)


def run(steps: tuple[Step, ...], tiles: list[np.ndarray]) -> list[np.ndarray]:
    """Local tiles of all devices after the HLO that the steps write."""
    builder = Builder("reshard", num_partitions=N)
    program = Program(builder, N)
    main = builder.computation("main")
    x = main.parameter(0, Shape.from_dtype(tiles[0].dtype, tiles[0].shape))
    emitter = Emitter(program, main)
    for step in steps:
        local = step.result(x.shape)
        x = step.emit(emitter, x)
        assert x.shape == local
    main.root(main.add("copy", x.shape, (x,)))
    module = builder.finish(main)
    return run_proto(module.to_hlo_proto(), [tiles], N)[0]
