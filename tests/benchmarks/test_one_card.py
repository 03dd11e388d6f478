"""A rank of a plan without the others is a program for one device, and what was measured is priced."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

import benchmarks.card
import hlosharding as hs
from benchmarks.card.cases import cases
from hlosharding.executor import run_reference
from hlosharding.ir import COLLECTIVES, verify
from hlosharding.schedule.ranks.stubs import stub_module


def test_a_rank_alone_has_the_same_shapes_and_talks_to_nobody() -> None:
    x, w = jax.ShapeDtypeStruct((8, 4), jnp.float32), jax.ShapeDtypeStruct((4, 8), jnp.float32)
    mesh = AbstractMesh((4,), ("d",))

    def step(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
        return x @ w, (x @ w).sum()

    traced = hs.trace(step, mesh=mesh, in_shardings=(P("d"), P("d")), out_shardings=(P(None, "d"), P()))
    module = hs.partition(traced(x, w)).module
    assert any(i.opcode in COLLECTIVES for i in module.instructions)
    lonely = stub_module(module, 0)
    verify(lonely)
    assert not any(i.opcode in COLLECTIVES for i in lonely.instructions)
    assert [i.shape for i in lonely.entry.root.operands] == [i.shape for i in module.entry.root.operands]
    # Its own rows of the weights stand for those of the other three.
    own_x, own_w = (
        np.random.default_rng(n).random(p.shape.dims, np.float32) for n, p in enumerate(lonely.entry.parameters)
    )
    assert all(np.isfinite(found).all() for found in run_reference(lonely, [own_x, own_w]))


def test_every_case_that_was_measured_is_still_there() -> None:
    names = {case.name for case in cases()}
    for path in Path(benchmarks.card.__file__).parent.glob("*.json"):
        assert set(json.loads(path.read_text())["rows"]) <= names
