"""Public Pallas kernels, each partitioned like a plain JAX function: they move no more than that function does.

JAX lowers them for GPUs and TPUs that need not be here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.pallas.ops.gpu import attention, layer_norm, rms_norm, softmax
from jax.experimental.pallas.ops.tpu import flash_attention, matmul
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.partitioner import PartitionOptions

MESH = AbstractMesh((2, 4), ("data", "model"))
Array = jax.ShapeDtypeStruct


def plain_layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return plain_rms_norm(centred, weight, bias)


def plain_rms_norm(x: Any, weight: Any, bias: Any) -> Any:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight + bias


def plain_attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bqhc,bkhc->bhqk", q, k).astype(jnp.float32)
    return jnp.einsum("bhqk,bkhc->bqhc", jax.nn.softmax(scores).astype(v.dtype), v)


def plain_flash_attention(q: Any, k: Any, v: Any) -> Any:
    scores = jax.nn.softmax(jnp.einsum("bhqc,bhkc->bhqk", q, k).astype(jnp.float32))
    return jnp.einsum("bhqk,bhkc->bhqc", scores.astype(v.dtype), v)


@dataclass(frozen=True)
class Case:
    """A kernel, what it computes, on which arrays, and how these may lie: no row that it needs whole is split."""

    name: str
    platform: str
    kernel: Callable[..., Any]
    plain: Callable[..., Any]
    arrays: tuple[Array, ...]
    layouts: tuple[tuple[Any, ...], ...]
    interpreted: Callable[..., Any] | None = None


X, ROW = Array((8, 64, 512), jnp.float32), Array((512,), jnp.float32)
HEADS = Array((4, 256, 8, 64), jnp.float16)
BLOCKS = Array((4, 8, 512, 128), jnp.bfloat16)
SQUARE = Array((1024, 1024), jnp.bfloat16)
NORM = ((P("data"), None, None), (P("data", "model"), None, None), (P(("model", "data")), None, P("data")))
ATTENTION = (
    (P("data", None, "model"),) * 3,
    (P("data", "model"), P("data"), P("data")),
    (P(None, "model"), P(None, "model"), None),
    (P(None, None, None, "model"),) * 3,
)
CASES = [
    Case(
        "rms_norm", "cuda", rms_norm.rms_norm, plain_rms_norm, (X, ROW, ROW), NORM,
        lambda *a: rms_norm.rms_norm(*a, interpret=True),
    ),
    Case("layer_norm", "cuda", layer_norm.layer_norm, plain_layer_norm, (X, ROW, ROW), NORM),
    Case(
        "softmax", "cuda", softmax.softmax, jax.nn.softmax, (Array((64, 512), jnp.float32),),
        ((P("data"),), (P(("data", "model")),)),
        lambda x: softmax.softmax(x, interpret=True),
    ),
    Case("mha_forward", "cuda", lambda q, k, v: attention.mha(q, k, v, None), plain_attention, (HEADS,) * 3, ATTENTION),
    Case(
        "flash_attention", "tpu", flash_attention.flash_attention, plain_flash_attention, (BLOCKS,) * 3,
        ((P("data", "model"),) * 3, (P("data", None, "model"), P("data"), P("data")), (P(None, None, "model"),) * 3),
    ),
    Case(
        "matmul", "tpu", lambda x, y: matmul.matmul(x, y, block_shape=(256, 256)), jnp.matmul, (SQUARE, SQUARE),
        ((P("data"), P(None, "model")), (P("data", "model"), P("model")), (P(None, "model"), None)),
    ),
]  # fmt: skip


@pytest.mark.usefixtures("no_rules_stay")
@pytest.mark.parametrize("objective", ["time", "bytes"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_kernel_moves_no_more_than_its_twin(case: Case, objective: Any) -> None:
    hs.register_rule(case.name, like=case.plain, kernel=case.interpreted)
    for layout in case.layouts:
        kernel, plain = (received(f, case, layout, objective) for f in (case.kernel, case.plain))
        assert kernel <= plain, layout


def received(function: Callable[..., Any], case: Case, layout: tuple[Any, ...], objective: Any) -> float:
    """Bytes a device, of a function on arrays that lie so, its result as its first argument."""
    trace = hs.trace(function, mesh=MESH, in_shardings=layout, out_shardings=layout[0], platform=case.platform)
    options = PartitionOptions(objective=objective)
    local = hs.partition(trace(*case.arrays), machine=hs.machines.h100(8), options=options)
    assert local.warnings == ()
    return local.comm_bytes_per_device
