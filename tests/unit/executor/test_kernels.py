"""Pallas kernels that are split: traced for GPUs, run on CPU devices by a user's function that interprets them."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas.ops.gpu import attention, softmax
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.errors import ExecutionError

pytestmark = pytest.mark.usefixtures("no_rules_stay")

MESH = AbstractMesh((2, 4), ("data", "model"))


def drawn(*dims: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=dims).astype(np.float32)


def turned(x: Any, *, interpret: bool = False) -> Any:
    """Sine and cosine, one program for all of the array."""

    def kernel(x_ref: Any, sine_ref: Any, cosine_ref: Any) -> None:
        sine_ref[...], cosine_ref[...] = jnp.sin(x_ref[...]), jnp.cos(x_ref[...])

    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(kernel, out_shape=(shape, shape), interpret=interpret, name="turned")(x)


def mha(q: Any, k: Any, v: Any, *, interpret: bool = False) -> Any:
    return attention.mha(q, k, v, None, interpret=interpret)


def plain_attention(q: Any, k: Any, v: Any) -> Any:
    return jnp.einsum("bhqk,bkhc->bqhc", jax.nn.softmax(jnp.einsum("bqhc,bkhc->bhqk", q, k)), v)


# A kernel, its name, what it computes, how its operands lie, and what these are.
CASES: list[tuple[Any, str, Any, P, list[np.ndarray]]] = [
    (softmax.softmax, "softmax", jax.nn.softmax, P("data", "model"), [drawn(64, 128)]),
    (mha, "mha_forward", plain_attention, P("data", None, "model"), [drawn(2, 128, 4, 32)] * 3),
    (turned, "turned", lambda x: (jnp.sin(x), jnp.cos(x)), P("data", "model"), [drawn(16, 64)]),
]


def traced(kernel: Any, layout: P, arrays: list[np.ndarray], mesh: Any = MESH) -> hs.Module:
    return hs.trace(lambda *a: kernel(*a), mesh=mesh, in_shardings=layout, platform="cuda")(*arrays)  # noqa: PLW0108


@pytest.mark.parametrize(("kernel", "name", "plain", "layout", "arrays"), CASES, ids=[case[1] for case in CASES])
def test_each_device_calls_the_kernel_on_its_pieces(
    kernel: Any, name: str, plain: Any, layout: P, arrays: list[np.ndarray]
) -> None:
    hs.register_rule(name, like=plain, kernel=partial(kernel, interpret=True))
    local = hs.partition(traced(kernel, layout, arrays), machine=hs.machines.h100(8))
    assert f'KERNELS["{name}"]' in local.as_python()
    for found in (local.run(*arrays), local.run_reference(*arrays)):
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(plain(*arrays)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_code_for_other_shapes_is_not_run() -> None:
    hs.register_rule("softmax", like=jax.nn.softmax)
    local = hs.partition(traced(softmax.softmax, P("data"), [drawn(64, 128)]))
    for run in (local.run, local.run_reference):
        with pytest.raises(ExecutionError, match="code of Pallas kernel 'softmax' is for the shapes it"):
            run(drawn(64, 128))


def test_on_one_device_its_own_code_runs() -> None:
    hs.register_rule("softmax", like=jax.nn.softmax)
    local = hs.partition(traced(softmax.softmax, P(), [drawn(64, 128)], AbstractMesh((1,), ("data",))))
    assert "KERNELS" not in local.as_python()


def test_in_a_shard_map_it_was_traced_for_pieces() -> None:
    hs.register_rule("softmax", like=jax.nn.softmax)
    rows = P("data")
    mapped = jax.shard_map(softmax.softmax, mesh=MESH, in_specs=rows, out_specs=rows, check_vma=False)
    local = hs.partition(traced(mapped, rows, [drawn(64, 128)]))
    assert "KERNELS" not in local.as_python()
    [call] = [inst for inst in local.module.instructions if inst.opcode == "custom-call"]
    assert call.shape.dims == (32, 128)
