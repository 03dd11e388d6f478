"""Plans: operands and results lie as the program has them, and what was not taken costs no less."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.partitioner import PartitionOptions, alternatives_of

MESH = AbstractMesh((2, 4), ("d", "x"))


def layers(count: int) -> hs.Partitioned:
    """Products one after the other, rows over `d` and weights over `x`."""

    def step(x: jax.Array, weights: list[jax.Array]) -> list[jax.Array]:
        made = []
        for weight in weights:
            x = jnp.tanh(x @ weight)
            made.append(x)
        return made

    weights = [P(None, "x") if n % 2 == 0 else P("x", None) for n in range(count)]
    shape = jax.ShapeDtypeStruct((256, 256), jnp.float32)
    module = hs.trace(step, mesh=MESH, in_shardings=(P("d", None), weights))(shape, [shape] * count)
    return hs.partition(module, machine=hs.machines.h100(8), options=PartitionOptions(objective="bytes"))


@pytest.mark.parametrize("count", [2, 24])
def test_each_product_has_its_plan_in_one_layer_and_in_many(count: int) -> None:
    local = layers(count)
    assert local.whole_program is not None
    names = [inst.name for inst in local.whole_program.instructions if inst.opcode == "dot"]
    assert len(names) == count
    assert set(names) <= local.plans.keys()


def test_operands_lie_as_the_program_has_them() -> None:
    local = layers(4)
    dots = [inst for inst in local.module.entry.instructions if inst.opcode == "dot"]
    assert len(dots) == 4
    for inst in dots:
        plan = local.plans[inst.name]
        tiles = [s.tile_shape((256, 256)) for s in plan.operands]
        assert [o.shape.dims for o in inst.operands] == tiles
        assert inst.shape.dims == plan.results[0].tile_shape((256, 256))


def test_the_runner_up_is_no_cheaper_than_what_was_taken() -> None:
    local = layers(2)
    for plan in local.plans.values():
        found = alternatives_of(plan)
        if found is not None and found.runner_up is not None and not found.runner_up.excluded.startswith("repeats"):
            assert found.runner_up.price >= found.chosen.price


def test_what_only_moves_has_a_plan_without_other_splits() -> None:
    text = """HloModule m, num_partitions=2
        ENTRY e {
          x = f32[8] parameter(0), sharding={devices=[2]<=[2]}
          ROOT y = f32[8] reverse(x), dimensions={0}, sharding={devices=[2]<=[2]}
        }"""
    local = hs.partition(hs.load(text))
    plan = local.plans["y"]
    assert (str(plan.results[0]), alternatives_of(plan)) == ("{devices=[2]<=[2]}", None)
    assert local.explain("y").splits is None


def test_a_reshape_says_how_it_is_done() -> None:
    text = """HloModule m, num_partitions=2
        ENTRY e {
          x = f32[8] parameter(0), sharding={devices=[2]<=[2]}
          ROOT y = f32[2,4] reshape(x), sharding={devices=[2,1]<=[2]}
        }"""
    plan = hs.partition(hs.load(text)).plans["y"]
    assert [str(s) for s in (*plan.operands, *plan.results)] == ["{devices=[2]<=[2]}", "{devices=[2,1]<=[2]}"]
    assert plan.price >= 0
