"""Small HLO programs, one or more for each opcode: what the emitters and the reference executor are judged by.

A case is the body of an entry computation, with the computations that it calls before it.
"""

# ruff: noqa: E501  (HLO reads best with an instruction on one line)
from __future__ import annotations

import re

import numpy as np

from hlosharding import xla_bridge
from hlosharding.ir import Module, Shape

COMPUTATIONS = """
add_f32 { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
max_f32 { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }
max_c64 { a = c64[] parameter(0) b = c64[] parameter(1) ROOT r = c64[] maximum(a, b) }
min_f32 { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] minimum(a, b) }
mul_f32 { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] multiply(a, b) }
sub_f32 { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] subtract(a, b) }
set_f32 { a = f32[] parameter(0) ROOT b = f32[] parameter(1) }
add_s32 { a = s32[] parameter(0) b = s32[] parameter(1) ROOT r = s32[] add(a, b) }
mul_s32 { a = s32[] parameter(0) b = s32[] parameter(1) ROOT r = s32[] multiply(a, b) }
max_s32 { a = s32[] parameter(0) b = s32[] parameter(1) ROOT r = s32[] maximum(a, b) }
and_s32 { a = s32[] parameter(0) b = s32[] parameter(1) ROOT r = s32[] and(a, b) }
xor_s32 { a = s32[] parameter(0) b = s32[] parameter(1) ROOT r = s32[] xor(a, b) }
or_pred { a = pred[] parameter(0) b = pred[] parameter(1) ROOT r = pred[] or(a, b) }
and_pred { a = pred[] parameter(0) b = pred[] parameter(1) ROOT r = pred[] and(a, b) }
add_c64 { a = c64[] parameter(0) b = c64[] parameter(1) ROOT r = c64[] add(a, b) }
hypot_f32 { a = f32[] parameter(0) b = f32[] parameter(1) aa = f32[] multiply(a, a) bb = f32[] multiply(b, b)
  s = f32[] add(aa, bb) ROOT r = f32[] sqrt(s) }
argmax { av = f32[] parameter(0) ai = s32[] parameter(1) bv = f32[] parameter(2) bi = s32[] parameter(3)
  g = pred[] compare(av, bv), direction=GE v = f32[] select(g, av, bv) i = s32[] select(g, ai, bi)
  ROOT r = (f32[], s32[]) tuple(v, i) }
lt_s32 { a = s32[] parameter(0) b = s32[] parameter(1) ROOT r = pred[] compare(a, b), direction=LT }
gt_f32 { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=GT }
lt_key { a = f32[] parameter(0) b = f32[] parameter(1) c = s32[] parameter(2) d = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT, type=TOTALORDER }
ge_f32 { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=GE }
axpy { a = f32[] parameter(0) b = f32[] parameter(1) two = f32[] constant(2) t = f32[] multiply(a, two)
  ROOT r = f32[] add(t, b) }
double { x = f32[4] parameter(0) ROOT y = f32[4] add(x, x) }
negate { x = f32[4] parameter(0) ROOT y = f32[4] negate(x) }
square { x = f32[4] parameter(0) ROOT y = f32[4] multiply(x, x) }
count_cond { s = (s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(s), index=0 n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT }
count_body { s = (s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1 one = s32[] constant(1) j = s32[] add(i, one) y = f32[4] add(x, x)
  ROOT t = (s32[], f32[4]) tuple(j, y) }
bare_cond { i = s32[] parameter(0) n = s32[] constant(7) ROOT c = pred[] compare(i, n), direction=LT }
bare_body { i = s32[] parameter(0) two = s32[] constant(2) ROOT j = s32[] add(i, two) }
"""

_FLOATS = ("f32", "bf16", "f64")
_INTS = ("s32", "u8", "u64")
_KINDS = {
    "float": _FLOATS, "int": _INTS, "complex": ("c64", "c128"), "pred": ("pred",), "signed": ("s32", "s8", "s64"),
}  # fmt: skip
_UNARY = {
    "abs": "float signed",     "cbrt": "float", "ceil": "float", "copy": "float int pred", "cosine": "float complex",     "count-leading-zeros": "int", "erf": "float", "exponential": "float complex", "exponential-minus-one": "float complex",
    "floor": "float", "log": "float complex", "log-plus-one": "float complex", "logistic": "float",
    "negate": "float signed complex", "not": "int pred", "popcnt": "int", "round-nearest-afz": "float",
    "round-nearest-even": "float", "rsqrt": "float", "sign": "float signed", "sine": "float complex",     "sqrt": "float complex", "tan": "float", "tanh": "float complex",
}  # fmt: skip
_BINARY = {
    "add": "float int complex pred", "and": "int pred", "atan2": "float", "divide": "float int complex",
    "maximum": "float int complex pred", "minimum": "float int complex pred", "multiply": "float int complex pred", "or": "int pred",
    "power": "float int", "remainder": "float int", "shift-left": "int", "shift-right-arithmetic": "int",
    "shift-right-logical": "int", "subtract": "float int complex", "xor": "int pred",
}  # fmt: skip


def _types(kinds: str) -> list[str]:
    return [t for kind in kinds.split() for t in _KINDS[kind]]


def _elementwise() -> dict[str, list[str]]:
    cases: dict[str, list[str]] = {}
    for opcode, kinds in _UNARY.items():
        cases[opcode] = [f"x = {t}[64] parameter(0) ROOT r = {t}[64] {opcode}(x)" for t in _types(kinds)]
    for opcode, kinds in _BINARY.items():
        cases[opcode] = [
            f"x = {t}[64] parameter(0) y = {t}[64] parameter(1) ROOT r = {t}[64] {opcode}(x, y)" for t in _types(kinds)
        ]
    cases["abs"].append("x = c64[64] parameter(0) ROOT r = f32[64] abs(x)")
    cases["real"] = [f"x = {t}[64] parameter(0) ROOT r = f32[64] real(x)" for t in ("c64", "f32")]
    cases["imag"] = [f"x = {t}[64] parameter(0) ROOT r = f32[64] imag(x)" for t in ("c64", "f32")]
    cases["complex"] = ["x = f32[64] parameter(0) y = f32[64] parameter(1) ROOT r = c64[64] complex(x, y)"]
    cases["is-finite"] = [f"x = {t}[64] parameter(0) ROOT r = pred[64] is-finite(x)" for t in _FLOATS]
    cases["compare"] = [
        f"x = {t}[64] parameter(0) y = {t}[64] parameter(1) ROOT r = pred[64] compare(x, y), direction={d}"
        for t in ("f32", "bf16", "s32", "u8", "pred")
        for d in ("EQ", "NE", "GE", "GT", "LE", "LT")
    ]
    cases["compare"] += [
        f"x = {t}[64] parameter(0) y = {t}[64] parameter(1) ROOT r = pred[64] compare(x, y), direction={d}{more}"
        for t, d, more in (("f32", "LT", ", type=TOTALORDER"), ("f32", "EQ", ", type=TOTALORDER"), ("c64", "NE", ""))
    ]
    pairs = (
        "f32 s32, f32 u8, f32 pred, s32 f32, pred f32, f32 bf16, bf16 f32, s32 s8, s64 s32, f64 f32, c64 f32, u32 f32"
    )
    pairs += ", f32 c64, s8 u32, f16 s16, s32 pred, f32 f8e4m3fn, f8e5m2 f32, s32 u64"
    cases["convert"] = [
        f"x = {a}[64] parameter(0) ROOT r = {b}[64] convert(x)" for a, b in (p.split() for p in pairs.split(", "))
    ]
    cases["bitcast-convert"] = [
        "x = f32[64] parameter(0) ROOT r = s32[64] bitcast-convert(x)",
        "x = f32[8] parameter(0) ROOT r = u8[8,4] bitcast-convert(x)",
        "x = u16[8,2] parameter(0) ROOT r = f32[8] bitcast-convert(x)",
    ]
    cases["reduce-precision"] = [
        "x = f32[64] parameter(0) ROOT r = f32[64] reduce-precision(x), exponent_bits=5, mantissa_bits=10",
        "x = f32[64] parameter(0) ROOT r = f32[64] reduce-precision(x), exponent_bits=8, mantissa_bits=7",
    ]
    cases["clamp"] = [
        "a = f32[] parameter(0) x = f32[64] parameter(1) b = f32[] parameter(2) ROOT r = f32[64] clamp(a, x, b)",
        "a = s32[64] parameter(0) x = s32[64] parameter(1) b = s32[64] parameter(2) ROOT r = s32[64] clamp(a, x, b)",
    ]
    cases["select"] = [
        "p = pred[64] parameter(0) x = f32[64] parameter(1) y = f32[64] parameter(2) ROOT r = f32[64] select(p, x, y)",
        "p = pred[] parameter(0) x = s32[64] parameter(1) y = s32[64] parameter(2) ROOT r = s32[64] select(p, x, y)",
        "p = pred[8] parameter(0) x = pred[8] parameter(1) y = pred[8] parameter(2) ROOT r = pred[8] select(p, x, y)",
    ]
    return cases


_STRUCTURE = {
    "parameter": ["x = (f32[4], (s32[], pred[2])) parameter(0) y = (s32[], pred[2]) get-tuple-element(x), index=1"
                  " ROOT r = pred[2] get-tuple-element(y), index=1"],
    "constant": ["ROOT r = f32[] constant(0.1)", "ROOT r = f32[2,2] constant({{1, -inf}, {nan, 0.3}})",
                 "ROOT r = s32[3] constant({1, -2, 3})", "ROOT r = bf16[] constant(0.1)", "ROOT r = pred[] constant(true)",
                 "ROOT r = c64[] constant((1.5, -2))", "ROOT r = f32[] constant(-inf)", "ROOT r = f64[] constant(0.1)",
                 "ROOT r = s64[] constant(-9223372036854775808)", "ROOT r = f32[4,4] broadcast(c), dimensions={}".replace(
                     "ROOT", "c = f32[] constant(2) ROOT"), "ROOT r = f16[2] constant({0.1, 65504})"],
    "tuple": ["x = f32[4] parameter(0) y = s32[] parameter(1) t = (f32[4], s32[]) tuple(x, y)"
              " u = f32[4] get-tuple-element(t), index=0 ROOT r = (f32[4], s32[], f32[4]) tuple(u, y, u)"],
    "broadcast": ["x = f32[] parameter(0) ROOT r = f32[2,3] broadcast(x), dimensions={}",
                  "x = f32[3] parameter(0) ROOT r = f32[2,3,4] broadcast(x), dimensions={1}",
                  "x = s8[2,4] parameter(0) ROOT r = s8[2,3,4] broadcast(x), dimensions={0,2}"],
    "reshape": ["x = f32[2,6] parameter(0) ROOT r = f32[3,4] reshape(x)", "x = f32[1,1] parameter(0) ROOT r = f32[] reshape(x)"],
    "transpose": ["x = f32[2,3,4] parameter(0) ROOT r = f32[4,2,3] transpose(x), dimensions={2,0,1}"],
    "concatenate": ["x = f32[2,3] parameter(0) y = f32[2,1] parameter(1) ROOT r = f32[2,7] concatenate(x, y, x), dimensions={1}"],
    "slice": ["x = f32[8,9] parameter(0) ROOT r = f32[3,4] slice(x), slice={[1:7:2], [5:9]}"],
    "pad": ["x = f32[3,4] parameter(0) v = f32[] parameter(1) ROOT r = f32[6,7] pad(x, v), padding=1_2x0_0_1",
            "x = s32[6] parameter(0) v = s32[] parameter(1) ROOT r = s32[5] pad(x, v), padding=-2_1"],
    "reverse": ["x = f32[3,4] parameter(0) ROOT r = f32[3,4] reverse(x), dimensions={1}"],
    "iota": ["ROOT r = s32[3,4] iota(), iota_dimension=1", "ROOT r = f32[5] iota(), iota_dimension=0",
             "ROOT r = bf16[300] iota(), iota_dimension=0", "ROOT r = c64[3] iota(), iota_dimension=0"],
    "opt-barrier": ["x = f32[4] parameter(0) y = s32[] parameter(1) t = (f32[4], s32[]) tuple(x, y)"
                             " ROOT r = (f32[4], s32[]) opt-barrier(t)"],
    "get-dimension-size": ["x = f32[4,7] parameter(0) ROOT r = s32[] get-dimension-size(x), dimensions={1}"],
    "rng-bit-generator": ["s = u64[2] parameter(0) ROOT r = (u64[2], u32[5]) rng-bit-generator(s), algorithm=rng_three_fry",
                          "s = u64[3] parameter(0) ROOT r = (u64[3], u32[2,3]) rng-bit-generator(s), algorithm=rng_philox",
                          "s = u64[2] parameter(0) ROOT r = (u64[2], u16[5]) rng-bit-generator(s), algorithm=rng_default"],
    "add-dependency": ["x = f32[4] parameter(0) t = token[] after-all() ROOT r = f32[4] add-dependency(x, t)"],
    "stochastic-convert": ["x = f32[64] parameter(0) y = u32[64] parameter(1) ROOT r = s8[64] stochastic-convert(x, y)"],
    "after-all": ["x = f32[4] parameter(0) t = token[] after-all() ROOT r = f32[4] negate(x)"],
    "get-tuple-element": ["x = (f32[4], s32[]) parameter(0) ROOT r = f32[4] get-tuple-element(x), index=0"],
}  # fmt: skip

_CONTRACTIONS = {
    "dot": ["x = f32[3,4] parameter(0) y = f32[4,5] parameter(1) ROOT r = f32[3,5] dot(x, y),"
            " lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            "x = f32[2,3,4] parameter(0) y = f32[5,2,4] parameter(1) ROOT r = f32[2,3,5] dot(x, y), lhs_batch_dims={0},"
            " rhs_batch_dims={1}, lhs_contracting_dims={2}, rhs_contracting_dims={2}, operand_precision={highest,highest}",
            "x = bf16[3,4] parameter(0) y = bf16[4,5] parameter(1) ROOT r = f32[3,5] dot(x, y),"
            " lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            "x = s8[3,4] parameter(0) y = s8[4,5] parameter(1) ROOT r = s32[3,5] dot(x, y),"
            " lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            "x = f32[4] parameter(0) y = f32[4] parameter(1) ROOT r = f32[] dot(x, y),"
            " lhs_contracting_dims={0}, rhs_contracting_dims={0}",
            "x = c64[3,4] parameter(0) y = c64[4,5] parameter(1) ROOT r = c64[3,5] dot(x, y),"
            " lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            "x = f32[3,4] parameter(0) y = f32[4,5] parameter(1) ROOT r = f32[3,5] dot(x, y), lhs_contracting_dims={1},"
            " rhs_contracting_dims={0}, operand_precision={high,default}",
            "x = f32[3,4] parameter(0) y = f32[4,5] parameter(1) ROOT r = f32[3,5] dot(x, y), lhs_contracting_dims={1},"
            " rhs_contracting_dims={0}, algorithm=dot_f32_f32_f32"],
    "convolution": ["x = f32[2,8,8,3] parameter(0) k = f32[3,3,3,4] parameter(1) ROOT r = f32[2,4,4,4] convolution(x, k),"
                    " window={size=3x3 stride=2x2 pad=1_1x0_1}, dim_labels=b01f_01io->b01f",
                    "x = f32[2,4,9] parameter(0) k = f32[6,2,3] parameter(1) ROOT r = f32[2,6,9] convolution(x, k),"
                    " window={size=3 pad=2_2 rhs_dilate=2}, dim_labels=bf0_oi0->bf0, feature_group_count=2",
                    "x = f32[2,5,3] parameter(0) k = f32[3,3,4] parameter(1) ROOT r = f32[2,9,4] convolution(x, k),"
                    " window={size=3 pad=1_1 lhs_dilate=2 rhs_reversal=1}, dim_labels=b0f_0io->b0f",
                    "x = f32[4,5,3] parameter(0) k = f32[3,3,4] parameter(1) ROOT r = f32[2,5,4] convolution(x, k),"
                    " window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f, batch_group_count=2"],
    "fft": ["x = c64[2,8] parameter(0) ROOT r = c64[2,8] fft(x), fft_type=FFT, fft_length={8}",
            "x = c64[2,8] parameter(0) ROOT r = c64[2,8] fft(x), fft_type=IFFT, fft_length={8}",
            "x = f32[2,8] parameter(0) ROOT r = c64[2,5] fft(x), fft_type=RFFT, fft_length={8}",
            "x = c64[2,5] parameter(0) ROOT r = f32[2,8] fft(x), fft_type=IRFFT, fft_length={8}"],
    "triangular-solve": ["x = f32[2,3,3] parameter(0) y = f32[2,3,4] parameter(1) ROOT r = f32[2,3,4] triangular-solve(x, y),"
                         " left_side=true, lower=true, unit_diagonal=true, transpose_a=NO_TRANSPOSE"],
    "cholesky": ["x = f32[3,3] constant({{4, 1, 0.5}, {1, 3, 0.2}, {0.5, 0.2, 2}}) ROOT r = f32[3,3] cholesky(x), lower=true"],
    "batch-norm-training": ["x = f32[4,3] parameter(0) s = f32[3] parameter(1) o = f32[3] parameter(2) ROOT r = (f32[4,3],"
                            " f32[3], f32[3]) batch-norm-training(x, s, o), epsilon=0.001, feature_index=1"],
    "batch-norm-inference": ["x = f32[4,3] parameter(0) s = f32[3] parameter(1) v = f32[3] constant({1, 2, 3}) ROOT r ="
                             " f32[4,3] batch-norm-inference(x, s, s, s, v), epsilon=0.001, feature_index=1"],
    "batch-norm-grad": ["x = f32[4,3] parameter(0) s = f32[3] parameter(1) v = f32[3] constant({1, 2, 3}) ROOT r = (f32[4,3],"
                        " f32[3], f32[3]) batch-norm-grad(x, s, s, v, x), epsilon=0.001, feature_index=1"],
}  # fmt: skip


def _reduce(kind: str, name: str, init: str) -> str:
    return (
        f"x = {kind}[3,4,5] parameter(0) i = {kind}[] constant({init})"
        f" ROOT r = {kind}[3,5] reduce(x, i), dimensions={{1}}, to_apply={name}"
    )


_WINDOWS = {
    "reduce": [_reduce("f32", "add_f32", "0"), _reduce("f32", "max_f32", "-inf"), _reduce("f32", "min_f32", "inf"),
               _reduce("f32", "mul_f32", "1"), _reduce("s32", "add_s32", "0"), _reduce("s32", "max_s32", "-2147483648"),
               _reduce("s32", "and_s32", "-1"), _reduce("s32", "xor_s32", "0"), _reduce("pred", "or_pred", "false"),
               _reduce("pred", "and_pred", "true"), _reduce("f32", "add_f32", "3"), _reduce("f32", "max_f32", "0"),
               _reduce("f32", "axpy", "0").replace("3,4,5", "3,1,5"), _reduce("f32", "hypot_f32", "0"),
               "x = f32[3,4] parameter(0) y = f32[] parameter(1) ROOT r = f32[] reduce(x, y), dimensions={0,1}, to_apply=add_f32",
               "x = f32[3,4] parameter(0) n = s32[3,4] iota(), iota_dimension=1 i = f32[] constant(-inf) z = s32[] constant(0)"
               " ROOT r = (f32[3], s32[3]) reduce(x, n, i, z), dimensions={1}, to_apply=argmax",
               "x = c64[3,4] parameter(0) i = c64[] constant((0, 0)) ROOT r = c64[3] reduce(x, i), dimensions={1}, to_apply=add_c64"],
    "reduce-window": ["x = f32[6,8] parameter(0) i = f32[] constant(0) ROOT r = f32[3,8] reduce-window(x, i),"
                      " window={size=2x3 stride=2x1 pad=0_0x1_1}, to_apply=add_f32",
                      "x = f32[6,8] parameter(0) i = f32[] constant(-inf) ROOT r = f32[3,4] reduce-window(x, i),"
                      " window={size=2x2 stride=2x2}, to_apply=max_f32",
                      "x = f32[8] parameter(0) i = f32[] constant(0) ROOT r = f32[8] reduce-window(x, i),"
                      " window={size=8 pad=7_0}, to_apply=add_f32",
                      "x = f32[6] parameter(0) i = f32[] constant(1) ROOT r = f32[9] reduce-window(x, i),"
                      " window={size=2 pad=0_0 lhs_dilate=2 rhs_dilate=2}, to_apply=mul_f32",
                      "x = f32[6] parameter(0) i = f32[] constant(0) ROOT r = f32[5] reduce-window(x, i),"
                      " window={size=2}, to_apply=hypot_f32",
                      "x = f32[6] parameter(0) n = s32[6] iota(), iota_dimension=0 i = f32[] constant(-inf) z = s32[] constant(0)"
                      " ROOT r = (f32[5], s32[5]) reduce-window(x, n, i, z), window={size=2}, to_apply=argmax"],
    "select-and-scatter": ["x = f32[6,6] parameter(0) s = f32[3,3] parameter(1) i = f32[] constant(0) ROOT r = f32[6,6]"
                           " select-and-scatter(x, s, i), window={size=2x2 stride=2x2}, select=ge_f32, scatter=add_f32"],
    "map": ["x = f32[5] parameter(0) y = f32[5] parameter(1) ROOT r = f32[5] map(x, y), dimensions={0}, to_apply=axpy"],
}  # fmt: skip


def _scatter(name: str, unique: str = "") -> str:
    return (
        "x = f32[6,3] parameter(0) i = s32[4,1] constant({{1}, {5}, {-1}, {6}}) u = f32[4,3] parameter(1)"
        " ROOT r = f32[6,3] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0},"
        f" scatter_dims_to_operand_dims={{0}}, index_vector_dim=1{unique}, to_apply={name}"
    )


_INDEXING = {
    "gather": ["x = f32[6,3] parameter(0) i = s32[2] constant({99, -7}) ROOT r = f32[1,1] gather(x, i),"
               " offset_dims={0,1}, collapsed_slice_dims={}, start_index_map={1,0}, index_vector_dim=0, slice_sizes={1,1}",
               "i = f32[2,6,3] parameter(0) x = s32[1,1,2] constant({{{1, 7}}}) ROOT r = f32[1,1,6] gather(i, x),"
               " offset_dims={2}, collapsed_slice_dims={0,2}, start_index_map={0,2}, index_vector_dim=2, slice_sizes={1,6,1}",
               "x = f32[6,3] parameter(0) i = s32[4,1] constant({{1}, {5}, {-7}, {99}}) ROOT r = f32[4,3] gather(x, i),"
               " offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,3}",
               "x = f32[6,3] parameter(0) i = s32[4] constant({1, 5, -7, 99}) ROOT r = f32[4,2,3] gather(x, i),"
               " offset_dims={1,2}, collapsed_slice_dims={}, start_index_map={0}, index_vector_dim=1, slice_sizes={2,3}",
               "x = f32[6,3] parameter(0) i = s32[2,4] constant({{1, 5, -7, 99}, {0, 1, 2, 3}}) ROOT r = f32[4] gather(x, i),"
               " offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1}, index_vector_dim=0, slice_sizes={1,1}",
               "x = f32[2,6] parameter(0) i = s32[2,4,1] constant({{{1},{5},{-7},{99}}, {{0},{1},{2},{3}}}) ROOT r ="
               " f32[2,4] gather(x, i), offset_dims={}, collapsed_slice_dims={1}, start_index_map={1},"
               " operand_batching_dims={0}, start_indices_batching_dims={0}, index_vector_dim=2, slice_sizes={1,1}"],
    "scatter": [_scatter("add_f32"), _scatter("set_f32", ", unique_indices=true"), _scatter("max_f32"), _scatter("min_f32"),
                _scatter("mul_f32"), _scatter("sub_f32"), _scatter("hypot_f32"),
                "x = f32[6] parameter(0) i = s32[3] constant({1, 1, 4}) u = f32[3] parameter(1) ROOT r = f32[6]"
                " scatter(x, i, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0},"
                " index_vector_dim=1, to_apply=add_f32",
                "x = f32[2,6] parameter(0) i = s32[2,2,1] constant({{{1},{5}}, {{0},{1}}}) u = f32[2,2] parameter(1) ROOT r ="
                " f32[2,6] scatter(x, i, u), update_window_dims={}, inserted_window_dims={1},"
                " scatter_dims_to_operand_dims={1}, input_batching_dims={0}, scatter_indices_batching_dims={0},"
                " index_vector_dim=2, to_apply=add_f32"],
    "dynamic-slice": ["x = f32[6,5] parameter(0) i = s32[] constant(@) j = s32[] constant(1) ROOT r = f32[3,2]"
                      " dynamic-slice(x, i, j), dynamic_slice_sizes={3,2}".replace("@", str(i)) for i in (-4, 2, 77)],
    "dynamic-update-slice": ["x = f32[6,5] parameter(0) u = f32[3,2] parameter(1) i = s32[] constant(@) j = s32[] constant(1)"
                             " ROOT r = f32[6,5] dynamic-update-slice(x, u, i, j)".replace("@", str(i)) for i in (-4, 2, 77)],
    "sort": ["x = s32[5,4] parameter(0) ROOT r = s32[5,4] sort(x), dimensions={0}, is_stable=true, to_apply=lt_s32",
             "x = f32[5,4] parameter(0) ROOT r = f32[5,4] sort(x), dimensions={1}, to_apply=gt_f32",
             "x = f32[8] parameter(0) n = s32[8] iota(), iota_dimension=0 ROOT r = (f32[8], s32[8]) sort(x, n),"
             " dimensions={0}, is_stable=true, to_apply=lt_key"],
    "topk": ["x = f32[3,8] parameter(0) ROOT r = (f32[3,2], s32[3,2]) topk(x), k=2, largest=true",
             "x = f32[3,8] parameter(0) ROOT r = (f32[3,2], s32[3,2]) topk(x), k=2, largest=false"],
}  # fmt: skip

_CONTROL = {
    "call": ["x = f32[4] parameter(0) y = f32[4] call(x), to_apply=double ROOT r = f32[4] call(y), to_apply=double"],
    "fusion": ["x = f32[4] parameter(0) ROOT r = f32[4] fusion(x), kind=kLoop, calls=double"],
    "while": ["x = f32[4] parameter(0) z = s32[] constant(0) t = (s32[], f32[4]) tuple(z, x)"
              " ROOT w = (s32[], f32[4]) while(t), condition=count_cond, body=count_body",
              "x = s32[] parameter(0) ROOT w = s32[] while(x), condition=bare_cond, body=bare_body"],
    "conditional": ["x = f32[4] parameter(0) p = pred[] constant(@) ROOT r = f32[4] conditional(p, x, x),"
                    " true_computation=double, false_computation=negate".replace("@", str(p)) for p in ("true", "false")]
                   + ["x = f32[4] parameter(0) y = f32[4] negate(x) i = s32[] constant(@) ROOT r = f32[4] conditional(i, x, y, x),"
                      " branch_computations={double, negate, square}".replace("@", str(i)) for i in (-3, 0, 1, 2, 9)]
                   + ["x = f32[4] parameter(0) i = s32[] parameter(1) ROOT r = f32[4] conditional(i, x, x, x),"
                      " branch_computations={double, negate, square}"],
    "custom-call": ['x = f32[4] parameter(0) ROOT r = f32[4] custom-call(x), custom_call_target="Sharding"'],
    "domain": [],
}  # fmt: skip

_COLLECTIVES_ALONE = {
    "all-gather": ["x = f32[4] parameter(0) ROOT r = f32[4] all-gather(x), dimensions={0}, replica_groups={{0}}"],
    "all-reduce": ["x = f32[4] parameter(0) ROOT r = f32[4] all-reduce(x), replica_groups={}, to_apply=add_f32"],
    "reduce-scatter": ["x = f32[4] parameter(0) ROOT r = f32[4] reduce-scatter(x), dimensions={0}, replica_groups={{0}},"
                       " to_apply=add_f32"],
    "all-to-all": ["x = f32[4] parameter(0) ROOT r = f32[4] all-to-all(x), dimensions={0}, replica_groups={{0}}"],
    "collective-permute": ["x = f32[4] parameter(0) ROOT r = f32[4] collective-permute(x), source_target_pairs={{0,0}}"],
    "partition-id": ["ROOT r = u32[] partition-id()"],
    "replica-id": ["ROOT r = u32[] replica-id()"],
}  # fmt: skip

CASES: dict[str, list[str]] = {
    **_elementwise(), **_STRUCTURE, **_CONTRACTIONS, **_WINDOWS, **_INDEXING, **_CONTROL, **_COLLECTIVES_ALONE,
}  # fmt: skip


def module_of(body: str, num_partitions: int = 1, more: str = "") -> Module:
    """A module with that entry; `more` computations."""
    called = _newlines(COMPUTATIONS + more)
    text = f"HloModule case, num_partitions={num_partitions}\n{called}\nENTRY main {{\n{_newlines(body)}\n}}\n"
    module = Module.from_proto(xla_bridge.hlo_text_to_proto(text))
    module.num_partitions = num_partitions
    return module


def _newlines(text: str) -> str:
    """One instruction a line: XLA's parser wants it so."""
    return re.sub(r"(?<=[\w)}\]]) (?=(ROOT )?\w+ = )", "\n", text)


def programs(opcode: str) -> list[str]:
    """The cases of an opcode in few programs: those with an array result in one, each of the others alone."""
    arrays = [b for b in CASES[opcode] if not re.search(r"ROOT \w+ = \(", b)]
    return ([_joined(arrays)] if arrays else []) + [b for b in CASES[opcode] if b not in arrays]


def _joined(bodies: list[str]) -> str:
    parts, roots, shapes, parameters = [], [], [], 0
    for number, body in enumerate(bodies):
        names = re.findall(r"(\w+) = ", body)
        renamed = re.sub(rf"\b({'|'.join(set(names))})\b(?! *[=\[{{]\S)", rf"\1_{number}", body)
        renamed = re.sub(r"parameter\((\d+)\)", lambda m, first=parameters: f"parameter({first + int(m[1])})", renamed)
        parameters += body.count("parameter(")
        root = re.search(r"ROOT (\w+) = (\S+)", renamed)
        assert root is not None
        roots.append(root[1])
        shapes.append(root[2])
        parts.append(renamed.replace("ROOT ", ""))
    return f"{' '.join(parts)} ROOT all = ({', '.join(shapes)}) tuple({', '.join(roots)})"


def values(shape: Shape, seed: int, special: bool = False) -> np.ndarray:
    """Random values; `special`: zeros of both signs, infinities, NaN, extremes among them."""
    rng = np.random.default_rng(seed)
    kind, dims = shape.element_type, shape.dims
    if kind == "pred":
        return rng.integers(0, 2, dims).astype(bool)
    if shape.is_integral:
        import ml_dtypes

        info = ml_dtypes.iinfo(shape.dtype)
        small = rng.integers(max(int(info.min), -9), min(int(info.max), 9) + 1, dims).astype(shape.dtype)
        return _with(small, [info.min, info.max, 0, 1]) if special else small
    real = rng.normal(size=dims)
    if shape.is_complex:
        return (real + 1j * rng.normal(size=dims)).astype(shape.dtype)
    out = (real * 2).astype(shape.dtype)
    return _with(out, [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, -2.5, 1.0]) if special else out


def _with(array: np.ndarray, extremes: list[float]) -> np.ndarray:
    flat = array.reshape(-1).copy()
    if len(flat) >= 2 * len(extremes):
        flat[: len(extremes)] = np.array(extremes, array.dtype)
    return flat.reshape(array.shape)
