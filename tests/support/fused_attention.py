"""cuDNN's flash attention as `jax.nn.dot_product_attention(implementation="cudnn")` writes it, without cuDNN."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hlosharding as hs
from hlosharding.ir import Shape


@dataclass(frozen=True)
class Sizes:
    """Of queries, and of keys and values with as many heads or fewer."""

    batch: int = 8
    length: int = 256
    heads: int = 8
    shared: int = 4
    depth: int = 64
    dtype: str = "bf16"
    are_heads_first: bool = False
    """Do they come before positions, or behind?"""

    @property
    def scores(self) -> int:
        """Elements of what nobody keeps."""
        return self.batch * self.heads * self.length**2

    def operand(self, heads: int) -> tuple[int, ...]:
        """Dims of queries, or of keys."""
        middle = (heads, self.length) if self.are_heads_first else (self.length, heads)
        return self.batch, *middle, self.depth


def attention_step(sizes: Sizes, *, is_causal: bool = True, sharding: str = "", made: str = "") -> hs.Module:
    """Forward and backward pass: (queries, keys, values, cotangent) to the gradients of the first three and the result.

    `sharding` is that of the four inputs, `made` that of the four outputs.
    """
    b, t, h, k, d = sizes.batch, sizes.length, sizes.heads, sizes.shared, sizes.depth
    q, kv = (f"{sizes.dtype}[{','.join(map(str, sizes.operand(heads)))}]" for heads in (h, k))
    out, grads, sums = f"{sizes.dtype}[{b},{h},{t},{d}]", f"{sizes.dtype}[{b},{k},{t},{d}]", f"f32[{b},{h},{t}]"
    forward, backward = f"({out}, {sums}, u8[0])", f"({out}, {grads}, {grads}, u8[0])"
    given = f", sharding={sharding}" if sharding else ""
    taken = f", sharding={{{', '.join([made] * 4)}}}" if made else ""
    names = f"{FORWARD}, backend_config={_config(sizes, 'bmm1', is_causal)}"
    backs = f"{BACKWARD}, backend_config={_config(sizes, 'bmm2_grad_gemm2', is_causal)}"
    order = "0,1,2,3" if sizes.are_heads_first else "0,2,1,3"
    text = f"""HloModule m
ENTRY e {{
  q = {q} parameter(0){given}
  k = {kv} parameter(1){given}
  v = {kv} parameter(2){given}
  dout = {q} parameter(3){given}
  there = {forward} custom-call(q, k, v), {names}
  made = {out} get-tuple-element(there), index=0
  sums = {sums} get-tuple-element(there), index=1
  mixed = {q} transpose(made), dimensions={{{order}}}
  back = {backward} custom-call(q, k, v, sums, dout, mixed), {backs}
  dq = {out} get-tuple-element(back), index=0
  dk = {grads} get-tuple-element(back), index=1
  dv = {grads} get-tuple-element(back), index=2
  ROOT t = ({out}, {grads}, {grads}, {out}) tuple(dq, dk, dv, made){taken}
}}"""
    return hs.load(text, custom_calls=["__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward"])


def attentions_forward(sizes: Sizes, *, sharding: str, wanted: Sequence[str]) -> hs.Module:
    """One forward pass for each result that is wanted, under a causal mask, of queries, keys and values of its own."""
    b, t, h, d = sizes.batch, sizes.length, sizes.heads, sizes.depth
    q, kv = (f"{sizes.dtype}[{','.join(map(str, sizes.operand(heads)))}]" for heads in (h, sizes.shared))
    out, sums = f"{sizes.dtype}[{b},{h},{t},{d}]", f"f32[{b},{h},{t}]"
    names = f"{FORWARD}, backend_config={_config(sizes, 'bmm1', is_causal=True)}"
    lines = [
        f"""  q{n} = {q} parameter({3 * n}), sharding={sharding}
  k{n} = {kv} parameter({3 * n + 1}), sharding={sharding}
  v{n} = {kv} parameter({3 * n + 2}), sharding={sharding}
  there{n} = ({out}, {sums}, u8[0]) custom-call(q{n}, k{n}, v{n}), {names}
  made{n} = {out} get-tuple-element(there{n}), index=0, sharding={place}
"""
        for n, place in enumerate(wanted)
    ]
    made, types = (", ".join(each) for each in ([f"made{n}" for n in range(len(wanted))], [out] * len(wanted)))
    root = f"  ROOT t = ({types}) tuple({made}), sharding={{{', '.join(wanted)}}}"
    text = f"HloModule m\nENTRY e {{\n{''.join(lines)}{root}\n}}"
    return hs.load(text, custom_calls=["__cudnn$fmhaSoftmax"])


FORWARD = 'custom_call_target="__cudnn$fmhaSoftmax"'
BACKWARD = 'custom_call_target="__cudnn$fmhaSoftmaxBackward"'
SCALE = 0.5


def _config(sizes: Sizes, product: str, is_causal: bool) -> str:
    dims = [sizes.batch, sizes.heads, sizes.length, sizes.length]
    heads = "1" if sizes.are_heads_first else "2"
    config = {
        "fmha_scale": SCALE,
        "intermediate_tensor_shape": {"element_type": "BF16", "dimensions": [str(n) for n in dims]},
        "mask_type": "CAUSAL" if is_causal else "NO_MASK",
        f"{product}_dot_dimension_numbers": {"lhs_batch_dimensions": ["0", heads]},
    }
    return json.dumps(json.dumps({"cudnn_fmha_backend_config": config}))


def drawn_operands(sizes: Sizes) -> list[Any]:
    """Of `attention_step`."""
    random = np.random.default_rng(0)
    each = [sizes.operand(heads) for heads in (sizes.heads, sizes.shared, sizes.shared, sizes.heads)]
    return [random.normal(size=dims).astype(Shape.array(sizes.dtype).dtype) for dims in each]


def on_one_device(sizes: Sizes, operands: list[Any], *, is_causal: bool) -> list[Any]:
    """What `attention_step` computes, by JAX's own attention in f32."""
    order = (0, 2, 1, 3)

    def turned(x: Any) -> Any:
        return jnp.transpose(x, order) if sizes.are_heads_first else x

    def attention(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.dot_product_attention(*map(turned, (q, k, v)), is_causal=is_causal, scale=SCALE)

    *inputs, given = (jnp.asarray(x, jnp.float32) for x in operands)
    made, backward = jax.vjp(attention, *inputs)
    gradients = backward(turned(given))
    return [*(x if sizes.are_heads_first else jnp.transpose(x, order) for x in gradients), jnp.transpose(made, order)]
