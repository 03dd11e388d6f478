"""Dims of size 0, split: every op is partitioned, and computes what one device computes."""

# ruff: noqa: E501  (HLO reads best with an instruction on one line)
from __future__ import annotations

import numpy as np
import pytest

from hlosharding import load, partition, propagate, verify_partitioned
from hlosharding.xla_bridge import run_proto, without_shardings

SPLITS = {
    "first": ("{devices=[4,1]<=[4]}", "{devices=[4,1,1,1]<=[4]}"),
    "second": ("{devices=[1,4]<=[4]}", "{devices=[1,1,1,4]<=[4]}"),
    "both": ("{devices=[2,2]<=[4]}", "{devices=[2,1,1,2]<=[4]}"),
}
HEAD = """HloModule m, num_partitions=4
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
more { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = pred[] compare(a, b), direction=GE }
less { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = pred[] compare(a, b), direction=LT }
pick { a = f32[] parameter(0)  c = s32[] parameter(1)  b = f32[] parameter(2)  d = s32[] parameter(3)  l = pred[] compare(a, b), direction=GT
  v = f32[] select(l, a, b)  i = s32[] select(l, c, d)  ROOT r = (f32[], s32[]) tuple(v, i) }
ENTRY e {
"""
ROWS, COLUMNS, FULL = (
    "  x = f32[0,8] parameter(0), SPLIT\n",
    "  x = f32[8,0] parameter(0), SPLIT\n",
    "  x = f32[8,8] parameter(0), SPLIT\n",
)
ZERO = "  z = f32[] constant(0)\n"
OPS = {
    "elementwise": ROWS + "  ROOT r = f32[0,8] add(x, x)",
    "transpose": ROWS + "  ROOT r = f32[8,0] transpose(x), dimensions={1,0}",
    "reshape": ROWS + "  ROOT r = f32[0,2,4] reshape(x)",
    "reshape of nothing": ROWS + "  ROOT r = f32[8,0] reshape(x)",
    "broadcast": "  v = f32[8] parameter(0)\n  ROOT r = f32[0,8] broadcast(v), dimensions={1}, SPLIT",
    "iota": "  ROOT r = f32[0,8] iota(), iota_dimension=0, SPLIT",
    "constant": "  ROOT r = f32[0,4] constant({}), SPLIT",
    "reduce of nothing": ROWS + ZERO + "  ROOT r = f32[8] reduce(x, z), dimensions={0}, to_apply=add",
    "reduce": ROWS + ZERO + "  ROOT r = f32[0] reduce(x, z), dimensions={1}, to_apply=add",
    "arg-max": ROWS + ZERO + "  i = s32[0,8] iota(), iota_dimension=0\n  k = s32[] constant(0)\n  ROOT r = (f32[8], s32[8]) reduce(x, i, z, k), dimensions={0}, to_apply=pick",
    "dot over nothing": COLUMNS + "  y = f32[0,8] parameter(1), SPLIT\n  ROOT r = f32[8,8] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "dot": ROWS + "  y = f32[8,8] parameter(1), SPLIT\n  ROOT r = f32[0,8] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "concatenate": ROWS + "  y = f32[8,8] parameter(1), SPLIT\n  ROOT r = f32[8,8] concatenate(x, y), dimensions={0}",
    "slice": FULL + "  ROOT r = f32[0,8] slice(x), slice={[3:3],[0:8]}",
    "pad": ROWS + ZERO + "  ROOT r = f32[5,8] pad(x, z), padding=2_3_1x0_0",
    "reverse": ROWS + "  ROOT r = f32[0,8] reverse(x), dimensions={0}",
    "sort": ROWS + "  ROOT r = f32[0,8] sort(x), dimensions={0}, to_apply=less",
    "sort rows": ROWS + "  ROOT r = f32[0,8] sort(x), dimensions={1}, to_apply=less",
    "dynamic-slice": FULL + "  n = s32[] parameter(1)\n  ROOT r = f32[0,8] dynamic-slice(x, n, n), dynamic_slice_sizes={0,8}",
    "dynamic-slice of nothing": ROWS + "  n = s32[] parameter(1)\n  ROOT r = f32[0,2] dynamic-slice(x, n, n), dynamic_slice_sizes={0,2}",
    "dynamic-update-slice": FULL + "  u = f32[0,8] parameter(1)\n  n = s32[] parameter(2)\n  ROOT r = f32[8,8] dynamic-update-slice(x, u, n, n)",
    "gather": FULL + "  i = s32[0,1] parameter(1)\n  ROOT r = f32[0,8] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,8}",
    "gather nothing": ROWS + "  i = s32[3] parameter(1)\n  ROOT r = f32[3,8] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={0,8}",
    "scatter": FULL + "  i = s32[0,1] parameter(1)\n  u = f32[0,8] parameter(2)\n  ROOT r = f32[8,8] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add",
    "scatter into nothing": ROWS + "  i = s32[3,1] parameter(1)\n  u = f32[3,8] parameter(2)\n  ROOT r = f32[0,8] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add",
    "reduce-window": ROWS + ZERO + "  ROOT r = f32[2,8] reduce-window(x, z), window={size=2x1 pad=1_2x0_0}, to_apply=add",
    "select-and-scatter": "  x = f32[0,8] parameter(0), SPLIT\n  s = f32[0,4] parameter(1), SPLIT\n" + ZERO + "  ROOT r = f32[0,8] select-and-scatter(x, s, z), window={size=1x2 stride=1x2}, select=less, scatter=add",
    "select-and-scatter of no rows": ROWS + "  s = f32[0,8] parameter(1), SPLIT\n" + ZERO + "  ROOT r = f32[0,8] select-and-scatter(x, s, z), window={size=2x1 stride=2x1}, select=more, scatter=add, SPLIT",
    "select-and-scatter of padding": ROWS + "  s = f32[2,8] parameter(1), SPLIT\n" + ZERO + "  ROOT r = f32[0,8] select-and-scatter(x, s, z), window={size=2x1 pad=1_2x0_0}, select=more, scatter=add, SPLIT",
    "cholesky": "  x = f32[0,4,4] parameter(0)\n  ROOT r = f32[0,4,4] cholesky(x), lower=true, sharding={devices=[4,1,1]<=[4]}",
    "triangular-solve": "  a = f32[8,8] parameter(0), SPLIT\n  x = f32[8,0] parameter(1), SPLIT\n  ROOT r = f32[8,0] triangular-solve(a, x), left_side=true, lower=true, transpose_a=NO_TRANSPOSE",
    "fft": "  x = c64[0,8] parameter(0), SPLIT\n  ROOT r = c64[0,8] fft(x), fft_type=FFT, fft_length={8}",
    "batch-norm": ROWS + "  f = f32[8] parameter(1)\n  ROOT r = f32[0,8] batch-norm-inference(x, f, f, f, f), epsilon=0.001, feature_index=1",
    "top-k": ROWS + '  ROOT r = (f32[0,2], s32[0,2]) custom-call(x), custom_call_target="TopK", called_computations={less}',
    "topk": ROWS + "  ROOT r = (f32[0,2], s32[0,2]) topk(x), k=2, largest=true",
    "topk of none": FULL + "  ROOT r = (f32[8,0], s32[8,0]) topk(x), k=0, largest=true",
    "map": ROWS + "  ROOT r = f32[0,8] map(x, x), dimensions={0,1}, to_apply=add",
    "convolution": "  a = f32[0,8,8,4] parameter(0), WIDE\n  k = f32[3,3,4,8] parameter(1), WIDE\n  ROOT r = f32[0,8,8,8] convolution(a, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, WIDE",
    "convolution of no features": "  a = f32[4,8,8,0] parameter(0), WIDE\n  k = f32[3,3,0,8] parameter(1), WIDE\n  b = f32[4,8,8,8] parameter(2), WIDE\n  c = f32[4,8,8,8] convolution(a, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, WIDE\n  ROOT r = f32[4,8,8,8] add(b, c), WIDE",
    "convolution to no features": "  a = f32[4,8,8,4] parameter(0), WIDE\n  k = f32[3,3,4,0] parameter(1), WIDE\n  ROOT r = f32[4,8,8,0] convolution(a, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, WIDE",
    "convolution of no rows": "  a = f32[4,0,8,4] parameter(0), WIDE\n  k = f32[3,3,4,8] parameter(1), WIDE\n  ROOT r = f32[4,1,8,8] convolution(a, k), window={size=3x3 pad=2_1x1_1}, dim_labels=b01f_01io->b01f, WIDE",
    "grouped convolution": "  a = f32[0,8,8,4] parameter(0), WIDE\n  k = f32[3,3,2,8] parameter(1), WIDE\n  ROOT r = f32[0,8,8,8] convolution(a, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, feature_group_count=2, WIDE",
    "batch-grouped convolution": "  a = f32[0,8,8,4] parameter(0), WIDE\n  k = f32[3,3,4,8] parameter(1), WIDE\n  ROOT r = f32[0,8,8,8] convolution(a, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, batch_group_count=2, WIDE",
}  # fmt: skip
NOT_ON_CPU = {"top-k", "topk", "topk of none"}
"""XLA's CPU compiler has no code for these as they stand: they are partitioned only."""


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("op", OPS)
def test_an_empty_dim_is_split_like_any_other(op: str, split: str) -> None:
    narrow, wide = SPLITS[split]
    text = f"{HEAD}{OPS[op]}\n}}\n".replace("SPLIT", f"sharding={narrow}").replace("WIDE", f"sharding={wide}")
    module = load(text, format="hlo")
    local = partition(propagate(module, to_outputs=True))
    verify_partitioned(local.module)
    assert local.to_hlo_text()
    assert local.cost.flops >= 0
    if op in NOT_ON_CPU:
        return
    given = [np.ones(p.shape.dims, p.shape.dtype) for p in module.entry.parameters]
    expected = [o[0] for o in run_proto(without_shardings(module.to_hlo_proto()), [[a] for a in given])]
    result = local.run_reference(*given)
    for ours, right in zip(result if isinstance(result, tuple) else (result,), expected, strict=True):
        np.testing.assert_allclose(ours, right, rtol=1e-5)
    ran = local.run(*given)
    for ours, right in zip(ran if isinstance(ran, tuple) else (ran,), expected, strict=True):
        np.testing.assert_allclose(ours, right, rtol=1e-5)
