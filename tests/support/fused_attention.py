"""cuDNN's flash attention as `jax.nn.dot_product_attention(implementation="cudnn")` writes it, without cuDNN."""

from __future__ import annotations

import json
from dataclasses import dataclass

import hlosharding as hs


@dataclass(frozen=True)
class Sizes:
    """Of queries, and of keys and values with as many heads or fewer."""

    batch: int = 8
    length: int = 256
    heads: int = 8
    shared: int = 4
    depth: int = 64

    @property
    def scores(self) -> int:
        """Elements of what nobody keeps."""
        return self.batch * self.heads * self.length**2


def attention_step(sizes: Sizes, *, is_causal: bool = True, sharding: str = "") -> hs.Module:
    """Forward and backward pass: (queries, keys, values, cotangent) to the gradients of the first three.

    `sharding` is that of the four inputs.
    """
    b, t, h, k, d = sizes.batch, sizes.length, sizes.heads, sizes.shared, sizes.depth
    q, kv, out = f"bf16[{b},{t},{h},{d}]", f"bf16[{b},{t},{k},{d}]", f"bf16[{b},{h},{t},{d}]"
    sums, grads = f"f32[{b},{h},{t}]", f"bf16[{b},{k},{t},{d}]"
    forward, backward = f"({out}, {sums}, u8[0])", f"({out}, {grads}, {grads}, u8[0])"
    given = f", sharding={sharding}" if sharding else ""
    names = f"{FORWARD}, backend_config={_config(sizes, 'bmm1', is_causal)}"
    backs = f"{BACKWARD}, backend_config={_config(sizes, 'bmm2_grad_gemm2', is_causal)}"
    return hs.load(f"""HloModule m
ENTRY e {{
  q = {q} parameter(0){given}
  k = {kv} parameter(1){given}
  v = {kv} parameter(2){given}
  dout = {q} parameter(3){given}
  there = {forward} custom-call(q, k, v), {names}
  made = {out} get-tuple-element(there), index=0
  sums = {sums} get-tuple-element(there), index=1
  mixed = {q} transpose(made), dimensions={{0,2,1,3}}
  back = {backward} custom-call(q, k, v, sums, dout, mixed), {backs}
  dq = {out} get-tuple-element(back), index=0
  dk = {grads} get-tuple-element(back), index=1
  dv = {grads} get-tuple-element(back), index=2
  ROOT t = ({out}, {grads}, {grads}) tuple(dq, dk, dv)
}}""")


FORWARD = 'custom_call_target="__cudnn$fmhaSoftmax"'
BACKWARD = 'custom_call_target="__cudnn$fmhaSoftmaxBackward"'


def _config(sizes: Sizes, product: str, is_causal: bool) -> str:
    dims = [sizes.batch, sizes.heads, sizes.length, sizes.length]
    config = {
        "intermediate_tensor_shape": {"element_type": "BF16", "dimensions": [str(n) for n in dims]},
        "mask_type": "CAUSAL" if is_causal else "NO_MASK",
        f"{product}_dot_dimension_numbers": {"lhs_batch_dimensions": ["0", "2"]},
    }
    return json.dumps(json.dumps({"cudnn_fmha_backend_config": config}))
