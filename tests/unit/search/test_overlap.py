"""Each overlap hides what its name says, in steps as people write them."""

from __future__ import annotations

from typing import Any, get_args

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.cost import Overlap, machines
from hlosharding.partitioner import PartitionOptions
from hlosharding.search import Plan, Planner

MACHINE = machines.h100(8)


def step(weights: Any, x: Any) -> Any:
    """Layers in a scan, and an update."""

    def loss(weights: Any) -> Any:
        made, _ = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)
        return jnp.sum(made.astype(jnp.float32) ** 2)

    return weights - 0.1 * jax.grad(loss)(weights)


@pytest.fixture(scope="module")
def planner() -> Planner:
    shape = jax.ShapeDtypeStruct
    return Planner(hs.trace(step)(shape((8, 4096, 4096), jnp.bfloat16), shape((65536, 4096), jnp.bfloat16)), ["x"])


def slower(run: Any) -> set[Overlap]:
    """Which overlaps it cannot do without."""
    whole = run(MACHINE)
    return {case for case in get_args(Overlap) if run(MACHINE.without_overlap(case)) > whole * (1 + 1e-6)}


def test_weights_of_fsdp_are_fetched_ahead(planner: Planner) -> None:
    schedule = planner.schedule(Plan(8, strategy="fsdp"), MACHINE)
    assert "prefetch" in slower(lambda machine: schedule.simulate(machine).time_s) <= {"prefetch", "gradients"}


def test_gradients_of_listed_layers_are_summed_behind_the_backward_pass() -> None:
    def listed(weights: Any, x: Any) -> Any:
        def loss(weights: Any) -> Any:
            made = x
            for w in weights:
                made = jnp.tanh(made @ w)
            return jnp.sum(made.astype(jnp.float32) ** 2)

        return jax.grad(loss)(weights)

    weights, x = (
        [jax.ShapeDtypeStruct((4096, 4096), jnp.bfloat16)] * 8,
        jax.ShapeDtypeStruct((65536, 4096), jnp.bfloat16),
    )
    traced = hs.trace(listed, mesh=AbstractMesh((8,), ("data",)), in_shardings=(P(), P("data")), out_shardings=P())
    local = hs.partition(traced(weights, x), machine=MACHINE)
    assert slower(lambda machine: hs.simulate(local, machine).time_s) == {"gradients"}


def test_a_product_in_tiles_hides_its_permutes() -> None:
    def layer(x: Any, w: Any) -> Any:
        return jnp.tanh(x) @ w

    arrays = (jax.ShapeDtypeStruct(dims, jnp.bfloat16) for dims in ((16384, 8192), (8192, 32768)))
    mesh, specs = AbstractMesh((8,), ("line",)), (P("line"), P(None, "line"))
    traced = hs.trace(layer, mesh=mesh, in_shardings=specs, out_shardings=P(None, "line"))(*arrays)
    local = hs.partition(traced, machine=MACHINE, options=PartitionOptions(overlap="always"))
    assert {one.kind for one in local.collectives} == {"collective-permute"}
    assert slower(lambda machine: hs.simulate(local, machine).time_s) == {"collective matmul"}
