"""An annotation that nobody reads as it says is named, with what keeping it would cost; no other one is."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import hlosharding as hs
from hlosharding.report import to_record
from tests.support.split_programs import mark, right

ROWS, BY_OTHERS, WHOLE = mark("[8,1]<=[8]"), mark("[8,1]7,6,5,4,3,2,1,0"), mark("")

BY_ROWS = "{devices=[8,1]<=[8]}"


def program(asked: str) -> hs.Partitioned:
    """x lies by rows; y is annotated, z = sin(y) is by rows again."""
    return right(f"""
        x = f32[64,16] parameter(0){ROWS}
        y = f32[64,16] copy(x){asked}, metadata={{source_file="m.py" source_line=3}}
        z = f32[64,16] sine(y){ROWS}
        ROOT r = (f32[64,16]) tuple(z), sharding={{{BY_ROWS}}}""")


def test_a_whole_that_nobody_reads_is_named_with_the_bytes_of_its_gather() -> None:
    local = program(WHOLE)
    assert not local.collectives
    [found] = local.sharding_overrides
    assert found.is_bypassed
    assert (found.name, str(found.propagated), str(found.chosen)) == ("y", "{replicated}", "{devices=[8,1]<=[8]}")
    received = 64 * 16 * 4 * 7 // 8  # by an all-gather: all but its own eighth; to cut it again is free
    assert f"keeping it would move {received:,} bytes" in found.why


def test_there_and_back_both_count() -> None:
    [found] = program(BY_OTHERS).sharding_overrides
    assert f"keeping it would move {2 * 64 * 16 * 4 // 8:,} bytes" in found.why  # its tile, twice


def test_what_somebody_reads_is_not_named() -> None:
    kept = right(f"""
        x = f32[64,16] parameter(0){ROWS}
        y = f32[64,16] copy(x){WHOLE}
        z = f32[64,16] sine(y){ROWS}
        ROOT r = (f32[64,16], f32[64,16]) tuple(y, z), sharding={{{{replicated}},{BY_ROWS}}}""")
    assert not [one for one in kept.sharding_overrides if one.is_bypassed]
    assert not program(ROWS).sharding_overrides  # it lies so already


def test_a_warning_for_each_line() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))

    def step(x: jax.Array) -> jax.Array:
        for _ in range(3):
            y = jax.lax.with_sharding_constraint(x, jax.NamedSharding(mesh, jax.P("model")))
            x = jax.lax.with_sharding_constraint(jnp.sin(y), jax.NamedSharding(mesh, jax.P("data")))
        return x

    x = jnp.ones((64, 16))
    module = hs.trace(step, in_shardings=(jax.NamedSharding(mesh, jax.P("data")),))(x)
    local = hs.partition(module, machine=hs.machines.h100(8))
    assert not local.collectives
    [line] = {one.location for one in local.sharding_overrides if one.is_bypassed}
    [warning] = local.warnings
    assert warning.startswith(f"{line}, P('model', None), 3 times: the annotation is bypassed")
    np.testing.assert_allclose(local.run(x), step(x), rtol=1e-6)
    worst = to_record(hs.report(local))["findings"]["worst"]
    assert [one["which"] for one in worst if one["what"] == "warnings"] == [warning]
    # XLA is told what the source says: the plan is no other for it.
    assert not hs.export_plan(local).unsaid


def test_in_the_body_of_a_loop() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))

    def body(x: jax.Array, _: None) -> tuple[jax.Array, None]:
        y = jax.lax.with_sharding_constraint(x, jax.NamedSharding(mesh, jax.P("model")))
        return jax.lax.with_sharding_constraint(jnp.sin(y), jax.NamedSharding(mesh, jax.P("data"))), None

    module = hs.trace(
        lambda x: jax.lax.scan(body, x, length=5)[0], in_shardings=(jax.NamedSharding(mesh, jax.P("data")),)
    )(jnp.ones((64, 16)))
    assert [one.is_bypassed for one in hs.partition(module).sharding_overrides if one.opcode == "copy"] == [True]
