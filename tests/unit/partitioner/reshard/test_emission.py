"""The HLO that plans write does on eight CPU devices what a slicing of the whole array says."""

from __future__ import annotations

import numpy as np
import pytest

from hlosharding.ir import Builder, Shape
from hlosharding.partitioner.emitter import Emitter, Program
from hlosharding.partitioner.reshard import Step, plan_steps
from hlosharding.partitioner.reshard.layout import layout_of
from hlosharding.partitioner.reshard.reshard_plan import local_tiles
from hlosharding.sharding import HloSharding
from hlosharding.xla_bridge import run_proto

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
    shape, source, target = Shape.parse(text), HloSharding.parse(first), HloSharding.parse(last)
    steps = plan_steps(shape, source, target, reduce_kind=kind, objective=objective, num_devices=N)
    before = layout_of(source, shape.dims, N)
    addends = _addends(shape, before.addends)
    whole = _combined(kind, addends)
    tiles = list(local_tiles(addends, before, padding=1))

    got = _run(steps, tiles)

    after = layout_of(target, shape.dims, N)
    wanted = addends if kind and after.addends > 1 else [whole] * after.addends
    low, high = after.bounds()
    assert got[0].shape == after.tile
    if after.addends > 1:
        # Only the sum over each group counts.
        groups = [[d for d in range(N) if (after.index[d] == after.index[e]).all()] for e in range(N)]
        got = [np.sum([got[d] for d in group], axis=0) for group in groups]
        wanted = [whole] * N
    for device in np.flatnonzero(after.has_data()):
        mine = tuple(slice(a, b) for a, b in zip(low[device], high[device], strict=True))
        real = tuple(slice(0, b - a) for a, b in zip(low[device], high[device], strict=True))
        np.testing.assert_array_equal(got[device][real], whole[mine])
    assert len(wanted) in (1, N)


def _addends(shape: Shape, count: int) -> list[np.ndarray]:
    random = np.random.default_rng(5)
    return [random.integers(0, 100, shape.dims).astype(shape.dtype) for _ in range(count)]


def _combined(kind: str | None, addends: list[np.ndarray]) -> np.ndarray:
    if kind == "maximum":
        return np.max(addends, axis=0)
    return np.sum(addends, axis=0).astype(addends[0].dtype) if len(addends) > 1 else addends[0]


def _run(steps: tuple[Step, ...], tiles: list[np.ndarray]) -> list[np.ndarray]:
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
