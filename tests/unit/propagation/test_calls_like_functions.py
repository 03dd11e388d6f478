"""Custom calls that are split like a function: shardings pass as they pass through that function."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import hlosharding as hs

HEAD = "HloModule m, num_partitions=8\nENTRY e {"
ROWS, COLUMNS = (
    "{devices=[2,1,4]<=[8] last_tile_dim_replicate}",
    "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
)


def both(target: str, function: Any, lines: str, call: str, plain: str) -> list[dict[str, str]]:
    """Shardings of all values, of the call and of what it stands for."""
    hs.register_rule(target, like=function)
    written = (f'{call}, custom_call_target="{target}"', plain)
    found = [
        hs.propagate(hs.load(f"{HEAD}\n{lines.replace('OP', op)}\n}}"), to_outputs=True, to_parameters=True)
        for op in written
    ]
    return [{name: str(s) for name, s in one.shardings.items()} for one in found]


@pytest.mark.parametrize(("x", "y"), [(ROWS, "{replicated}"), ("{replicated}", COLUMNS), (COLUMNS, ROWS)])
def test_forward(x: str, y: str) -> None:
    lines = f"""x = f32[16,64] parameter(0), sharding={x}
    y = f32[64,32] parameter(1), sharding={y}
    z = f32[16,32] OP
    ROOT r = f32[16,32] negate(z)"""
    plain = "dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    call, product = both(f"propagated_{x}_{y}", jnp.matmul, lines, "custom-call(x, y)", plain)
    assert call == product


def test_backward() -> None:
    lines = f"""x = f32[16,64] parameter(0)
    z = f32[64,16] OP
    ROOT r = f32[64,16] negate(z), sharding={ROWS}"""
    call, plain = both("propagated_back", lambda x: x.T, lines, "custom-call(x)", "transpose(x), dimensions={1,0}")
    assert call == plain
    assert call["x"] == COLUMNS.replace("[1,4,2]<=[2,4]T(1,0)", "[1,2,4]<=[8]")


def test_each_of_several_results() -> None:
    lines = f"""x = f32[16,64] parameter(0), sharding={ROWS}
    z = (f32[16,64], f32[16]) custom-call(x), custom_call_target="propagated_two"
    a = f32[16,64] get-tuple-element(z), index=0
    ROOT b = f32[16] get-tuple-element(z), index=1"""
    hs.register_rule("propagated_two", like=lambda x: (jax.nn.softmax(x), x.sum(1)))
    found = hs.propagate(hs.load(f"{HEAD}\n{lines}\n}}"), to_outputs=True)
    assert str(found.shardings["a"]) == ROWS
    assert str(found.shardings["b"]) == "{devices=[2,4]<=[8] last_tile_dim_replicate}"


def test_calls_of_one_target_are_told_apart_by_their_kernels() -> None:
    kernel = 'custom-call({of}), custom_call_target="tpu_custom_call", metadata={{op_name="jit(f)/{name}/pallas_call"}}'
    lines = f"""x = f32[8,8] parameter(0), sharding={ROWS}
    a = f32[8,8] {kernel.format(of="x", name="told_apart_same")}
    b = f32[8,8] {kernel.format(of="x", name="told_apart_turned")}
    ROOT t = (f32[8,8], f32[8,8]) tuple(a, b)"""
    hs.register_rule("told_apart_same", like=jnp.sin)
    hs.register_rule("told_apart_turned", like=lambda x: x.T)
    found = hs.propagate(hs.load(f"{HEAD}\n{lines}\n}}"), to_outputs=True)
    assert str(found.shardings["a"]) == ROWS
    assert str(found.shardings["b"]) == "{devices=[1,2,4]<=[8] last_tile_dim_replicate}"
