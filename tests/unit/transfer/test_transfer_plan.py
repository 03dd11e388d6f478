"""Plans as users hold them: a trainer's weights to rollouts, by closed forms; rounds; what is refused."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs

HIDDEN, FEED_FORWARD, KEYS, VOCABULARY, LAYERS = 8192, 28672, 1024, 128256, 80
SPLIT = {"q": P(None, "m"), "k": P(None, "m"), "v": P(None, "m"), "o": P("m"), "gate": P(None, "m")}
SPLIT |= {"up": P(None, "m"), "down": P("m"), "norm_1": P(), "norm_2": P()}
SIZES = {"q": (HIDDEN, HIDDEN), "k": (HIDDEN, KEYS), "v": (HIDDEN, KEYS), "o": (HIDDEN, HIDDEN)}
SIZES |= {"gate": (HIDDEN, FEED_FORWARD), "up": (HIDDEN, FEED_FORWARD), "down": (FEED_FORWARD, HIDDEN)}
SIZES |= {"norm_1": (HIDDEN,), "norm_2": (HIDDEN,)}


def weights(dims: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    """In bf16."""
    return jax.ShapeDtypeStruct(dims, "bfloat16")


def llama_70b(mesh: AbstractMesh) -> tuple[Any, Any]:
    """All weights, and where those who generate have them."""
    layer = {name: weights(dims) for name, dims in SIZES.items()}
    split = {name: NamedSharding(mesh, spec) for name, spec in SPLIT.items()}
    ends = {
        "embedding": weights((VOCABULARY, HIDDEN)),
        "norm": weights((HIDDEN,)),
        "head": weights((HIDDEN, VOCABULARY)),
    }
    where = {"embedding": P("m"), "norm": P(), "head": P(None, "m")}
    tree = {**ends, "layers": [layer] * LAYERS}
    return tree, {**{n: NamedSharding(mesh, s) for n, s in where.items()}, "layers": [split] * LAYERS}


@pytest.mark.parametrize("machine", [None, hs.machines.h100(96)], ids=["bytes", "h100"])
def test_llama_70b_from_64_to_4_times_8(machine: Any) -> None:
    tree, target = llama_70b(AbstractMesh((4, 8), ("copy", "m")))
    source = NamedSharding(AbstractMesh((64,), ("fsdp",)), P("fsdp"))
    plan = hs.plan_transfer(tree, source, target, machine=machine)
    sizes = [int(np.prod(leaf.shape)) * 2 for leaf in jax.tree.leaves(tree)]
    vectors = sum(size for size, leaf in zip(sizes, jax.tree.leaves(tree), strict=True) if len(leaf.shape) == 1)
    tile = (sum(sizes) - vectors) // 8 + vectors
    assert plan.received_bytes == 32 * tile
    # Each device receives its tile, from outside of its node but for vectors: one of eight takes these in.
    least = tile if machine is None else (tile - vectors + vectors / 8) / machine.between.bandwidth
    assert plan.bound == pytest.approx(least)
    assert plan.busiest <= 1.02 * plan.bound
    assert sum(moved.count for moved in plan.arrays) == len(sizes)
    assert len(plan.arrays) <= 9


def test_a_unit_is_there_before_it_is_passed_on_and_links_have_room() -> None:
    tree = [jax.ShapeDtypeStruct((512, 96), "float32"), jax.ShapeDtypeStruct((96,), "float32")]
    source = NamedSharding(AbstractMesh((4,), ("x",)), P("x"))
    target = [NamedSharding(AbstractMesh((3, 4), ("c", "y")), spec) for spec in (P(None, "y"), P())]
    plan = hs.plan_transfer(tree, source, target)
    largest = max(send.nbytes for sends in plan.rounds for send in sends)
    arrived: set[tuple[Any, int]] = set()
    for sends in plan.rounds:
        assert all(send.hop.source < 4 or (send.unit, send.hop.source) in arrived for send in sends)
        for end in ("source", "target"):
            ends = sorted((getattr(send.hop, end), send.nbytes) for send in sends)
            for _, own in groupby(ends, key=lambda each: each[0]):
                assert sum(nbytes for _, nbytes in own) <= largest
        new = {(send.unit, send.hop.target) for send in sends}
        assert len(new) == len(sends)
        assert not new & arrived
        arrived |= new


def test_seconds_are_above_the_bound_and_near_it() -> None:
    tree, target = llama_70b(AbstractMesh((4, 8), ("copy", "m")))
    source = NamedSharding(AbstractMesh((64,), ("fsdp",)), P("fsdp"))
    plan = hs.plan_transfer(tree, source, target, machine=hs.machines.h100(96))
    assert plan.seconds is not None
    assert plan.bound <= plan.seconds < 1.3 * plan.bound


def test_uneven_tiles_are_planned() -> None:
    """Ten rows in tiles of 3, 3, 3, 1 to tiles of 4, 4, 2 on the same devices, numbered backwards."""
    source = NamedSharding(AbstractMesh((4,), ("x",)), P("x"))
    target = NamedSharding(AbstractMesh((3,), ("y",)), P("y"))
    rows = jax.ShapeDtypeStruct((10,), "int8")
    plan = hs.plan_transfer(rows, source, target, target_devices=(3, 2, 1))
    assert (
        plan.received_bytes == 4 + 2 + 2
    )  # device 2 has rows 6 and 7, device 1 none of 8 and 9, device 3 none of 0 to 3


def test_nothing_to_move() -> None:
    array = jax.device_put(np.arange(8.0), mesh(4))
    plan = hs.plan_transfer(array, mesh(4), mesh(4))
    assert plan.received_bytes == plan.bound == 0
    assert not plan.rounds
    assert (plan.run(array) == array).all()
    assert "0 sends" in str(plan)


def mesh(count: int) -> NamedSharding:
    """The first devices, a row each."""
    return NamedSharding(Mesh(np.array(jax.devices()[:count], dtype=object), ("x",)), P("x"))


@pytest.mark.parametrize(
    ("source", "target", "options", "message"),
    [
        (P("x"), mesh(2), {}, "a P names no mesh"),
        (mesh(2), None, {}, "no sharding names no mesh"),
        (mesh(2), {"a": mesh(2)}, {}, "target do not match"),
        (mesh(2), mesh(4), {"machine": hs.machines.h100(2)}, "has 2 devices, the meshes number 4"),
        (
            NamedSharding(AbstractMesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,)), P(unreduced={"x"})),
            mesh(2),
            {},
            "is partial or manual",
        ),
        (
            mesh(2),
            NamedSharding(AbstractMesh((2,), ("x",)), P()),
            {"target_devices": (1,)},
            "1 numbers for a mesh of 2",
        ),
    ],
)
def test_what_is_refused(source: Any, target: Any, options: Any, message: str) -> None:
    with pytest.raises(hs.HloShardingError, match=message):
        hs.plan_transfer([jax.ShapeDtypeStruct((8,), "float32")], source, target, **options)


def test_random_keys_are_refused() -> None:
    with pytest.raises(hs.ShardingError, match="key_data"):
        hs.plan_transfer(jax.random.split(jax.random.key(0), 4), mesh(2), mesh(4))


def test_runs_that_are_refused() -> None:
    array = jax.device_put(np.arange(8.0, dtype="f4"), mesh(2))
    with pytest.raises(hs.ExecutionError, match="not the arrays of the plan"):
        hs.plan_transfer(array, mesh(2), mesh(4)).run(array[:4])
    with pytest.raises(hs.ExecutionError, match="plan from where it lies"):
        hs.plan_transfer(array, mesh(4), mesh(2)).run(array)
    with pytest.raises(hs.ExecutionError, match="uneven tiles"):
        hs.plan_transfer(array, mesh(2), mesh(3)).run(array)
    with pytest.raises(hs.ExecutionError, match="not there"):
        hs.plan_transfer(array, mesh(2), NamedSharding(AbstractMesh((2,), ("x",)), P())).run(array)
