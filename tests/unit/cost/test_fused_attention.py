"""cuDNN's flash attention: what it computes, and that nobody keeps its scores."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import hlosharding as hs
from hlosharding.cost import op_work
from tests.support.fused_attention import Sizes, attention_step

SIZES = Sizes()


@pytest.mark.parametrize("is_causal", [True, False])
def test_two_products_forward_and_five_backward(is_causal: bool) -> None:
    module = attention_step(SIZES, is_causal=is_causal)
    product = 2.0 * SIZES.scores * SIZES.depth * (0.5 if is_causal else 1.0)
    forward, backward = (op_work(module.by_name(name)) for name in ("there", "back"))
    assert (forward.flops, backward.flops) == (2 * product, 5 * product)
    rows = SIZES.batch * SIZES.length * SIZES.depth * 2
    queries, keys, sums = rows * SIZES.heads, rows * SIZES.shared, SIZES.batch * SIZES.heads * SIZES.length * 4
    assert forward.bytes == 2 * queries + 2 * keys + sums
    assert backward.bytes == 4 * queries + 4 * keys + sums


def test_scores_are_not_kept() -> None:
    """Four inputs, three gradients, the result and its sums: however long the sequence."""
    for length in (256, 4096):
        sizes = Sizes(length=length)
        queries = sizes.batch * length * sizes.heads * sizes.depth * 2
        keys, sums = queries * sizes.shared // sizes.heads, sizes.batch * sizes.heads * length * 4
        peak = hs.cost(attention_step(sizes)).peak_memory_bytes
        assert peak <= (2 * queries + 2 * keys) + (queries + 2 * keys) + 2 * queries + sums


@pytest.mark.gpu_compiler
def test_what_jax_writes_takes_what_xla_allocates() -> None:
    def loss(q, k, v):
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")
        return jnp.sum(mixed.astype(jnp.float32))

    q, k = (jax.ShapeDtypeStruct((16, 1024, heads, 64), jnp.bfloat16) for heads in (8, 4))
    step = jax.value_and_grad(loss, argnums=(0, 1, 2))
    place = jax.sharding.SingleDeviceSharding(hs.topology("h100", 8).devices[0])
    stats = jax.jit(step, in_shardings=place, out_shardings=place).lower(q, k, k).compile().memory_analysis()
    theirs = stats.argument_size_in_bytes + stats.output_size_in_bytes + stats.temp_size_in_bytes
    report = hs.cost(hs.trace(step, platform="cuda")(q, k, k))
    assert report.flops == pytest.approx(7 * 16 * 8 * 1024**2 * 64, rel=0.05)
    assert theirs <= report.peak_memory_bytes <= theirs + 16 * 1024 * 8 * 64 * 2  # a gradient that XLA makes transposed
