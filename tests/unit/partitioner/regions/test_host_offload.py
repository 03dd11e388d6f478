"""Values that lie on the host for a while: moves are kept, no device talks while they are away; the rest is said."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compute_on import compute_on
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from tests.support.split_programs import mark, opcodes, right, split

X = np.arange(64, dtype=np.float32).reshape(8, 8)


def away(first: str, second: str, target: str = "MoveToDevice") -> str:
    return f"""
        x = f32[8,8] parameter(0){mark("[8,1]<=[8]")}
        out = f32[8,8] custom-call(x), custom_call_target="MoveToHost"{mark(first)}
        back = f32[8,8] custom-call(out), custom_call_target="{target}"{mark(second)}
        ROOT y = f32[8,8] tanh(back){mark(second)}"""


@pytest.mark.parametrize(("first", "second"), [("[8,1]<=[8]", "[1,8]<=[8]"), ("[1,8]<=[8]", "[1,8]<=[8]"), ("", "")])
def test_devices_talk_before_a_value_leaves_or_after_it_is_back(first: str, second: str) -> None:
    local = right(away(first, second))
    targets = [i.custom_call_target for i in local.module.entry.instructions]
    assert targets.index("MoveToDevice") == targets.index("MoveToHost") + 1
    assert local.warnings == ()
    assert len(opcodes(local)) > 3  # there was something to say between devices


def lowered_for_gpus(function: object, mesh: Mesh) -> hs.Module:
    """What JAX lowers for devices that have a host's memory beside their own."""
    shardings = NamedSharding(mesh, P("data")), NamedSharding(mesh, P(None, "model"))
    traced = jax.jit(function, in_shardings=shardings).trace(X, X)  # type: ignore[call-overload]
    return hs.load(traced.lower(lowering_platforms=("cuda",)).as_text(), format="stablehlo")


def test_jax_device_put_inside_a_program_is_kept_and_runs(mesh_2x4: Mesh) -> None:
    def step(x: jax.Array, w: jax.Array) -> jax.Array:
        hidden = jax.device_put(jnp.sin(x @ w), jax.memory.Space.Host)
        return jnp.cos(jax.device_put(hidden, jax.memory.Space.Device)).sum(0)

    local = hs.partition(lowered_for_gpus(step, mesh_2x4))
    source = local.as_python()
    assert source.index("jax.memory.Space.Host") < source.index("jax.memory.Space.Device")
    np.testing.assert_allclose(local.run(X, X), step(jnp.asarray(X), jnp.asarray(X)), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(local.run_reference(X, X), step(jnp.asarray(X), jnp.asarray(X)), rtol=1e-4, atol=1e-4)
    again = jax.jit(local.program.build(local.program.compile().mesh)).trace(X, X)
    text = again.lower(lowering_platforms=("cuda",)).as_text()
    assert [text.count(f'_xla_buffer_placement = "{kind}"') for kind in ("pinned_host", "device")] == [1, 1]


def test_ops_for_the_hosts_processor_stay_there_and_their_collectives_do_not(mesh_2x4: Mesh) -> None:
    @compute_on("device_host")
    @jax.jit
    def on_host(x: jax.Array) -> jax.Array:
        return jnp.sin(x) @ x.T

    def step(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.sin(on_host(x @ w) + 1)

    local = hs.partition(lowered_for_gpus(step, mesh_2x4))
    assert local.warnings == ()
    for run in (local.run, local.run_reference):
        np.testing.assert_allclose(run(X / 64, X / 64), step(X / 64, X / 64), rtol=1e-4, atol=1e-4)
    again = jax.jit(local.program.build(local.program.compile().mesh)).trace(X, X)
    text = again.lower(lowering_platforms=("cuda",)).as_text()
    marked = [line for line in text.split("\n") if '_xla_compute_type = "host"' in line]
    here = {op for line in marked for op in re.findall(r"stablehlo\.(\w+)", line)}
    assert {"sine", "dot_general"} <= here
    assert not here & {"all_gather", "all_reduce", "collective_permute", "all_to_all", "add"}


def test_equal_ops_for_both_processors_do_not_become_one_function(mesh_2x4: Mesh) -> None:
    def block(x: jax.Array) -> jax.Array:
        for _ in range(6):
            x = jnp.sin(x) * 2 + jnp.cos(x)
        return x

    def step(x: jax.Array, w: jax.Array) -> jax.Array:
        return block(compute_on("device_host")(jax.jit(block))(block(x)))

    local = hs.partition(lowered_for_gpus(step, mesh_2x4))
    marked = [line for line in local.as_python().split("\n") if line.startswith("        ") and "lax.sin(" in line]
    assert len(marked) == 6


def test_an_op_for_another_processor_is_named() -> None:
    local = split(
        """x = f32[8] parameter(0)
        ROOT y = f32[8] sine(x), frontend_attributes={_xla_compute_type="sparse"},
          metadata={source_file="m.py" source_line=3}"""
    )
    [warning] = local.warnings
    assert warning.startswith("sine %y at m.py:3 is to run on processor 'sparse'")


def test_a_memory_that_nobody_can_name_in_jax_is_named() -> None:
    local = split(
        """x = f32[8] parameter(0)
        ROOT y = f32[8] custom-call(x), custom_call_target="annotate_device_placement",
          frontend_attributes={_xla_buffer_placement="device_sram"}, metadata={source_file="m.py" source_line=3}"""
    )
    [warning] = local.warnings
    assert "at m.py:3 is to lie in memory 'device_sram'" in warning
