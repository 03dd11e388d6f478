"""One written instance or more of every opcode that has a rule, as one line of HLO each.

`shape name, ... : instruction` makes a module whose parameters are the names and whose root is the instruction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.random import Generator

from hlosharding.ir import ELEMENTWISE, Instruction, Module, Shape
from hlosharding.xla_bridge import hlo_text_to_proto

REDUCERS = """
%add_f32 { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT r = f32[] add(x, y) }
%add_s32 { x = s32[] parameter(0)  y = s32[] parameter(1)  ROOT r = s32[] add(x, y) }
%mul_f32 { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT r = f32[] multiply(y, x) }
%max_f32 { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT r = f32[] maximum(x, y) }
%min_s32 { x = s32[] parameter(0)  y = s32[] parameter(1)  ROOT r = s32[] minimum(x, y) }
%or_pred { x = pred[] parameter(0)  y = pred[] parameter(1)  ROOT r = pred[] or(x, y) }
%and_pred { x = pred[] parameter(0)  y = pred[] parameter(1)  ROOT r = pred[] and(x, y) }
%xor_u32 { x = u32[] parameter(0)  y = u32[] parameter(1)  ROOT r = u32[] xor(x, y) }
%assign { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT r = f32[] copy(y) }
%second { x = f32[] parameter(0)  ROOT y = f32[] parameter(1) }
%ge_f32 { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT r = pred[] compare(x, y), direction=GE }
%lt_f32 { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT r = pred[] compare(x, y), direction=LT }
%lt_pair { x = f32[] parameter(0)  y = f32[] parameter(1)  a = s32[] parameter(2)  b = s32[] parameter(3)
  ROOT r = pred[] compare(x, y), direction=LT }
%argmax { x = f32[] parameter(0)  i = s32[] parameter(1)  y = f32[] parameter(2)  j = s32[] parameter(3)
  p = pred[] compare(x, y), direction=GE  v = f32[] select(p, x, y)  k = s32[] select(p, i, j)
  ROOT r = (f32[], s32[]) tuple(v, k) }
%scatter_pair { x = f32[] parameter(0)  i = s32[] parameter(1)  y = f32[] parameter(2)  j = s32[] parameter(3)
  v = f32[] add(x, y)  k = s32[] maximum(i, j)  ROOT r = (f32[], s32[]) tuple(v, k) }
%scale { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT r = f32[] subtract(x, y) }
"""

CASES = """
broadcast | f32[4] a : f32[6,4,2] broadcast(a), dimensions={1}
broadcast scalar | f32[] a : f32[4,2] broadcast(a), dimensions={}
transpose | f32[4,6,2] a : f32[6,2,4] transpose(a), dimensions={1,2,0}
concatenate | f32[4,6] a, f32[4,2] b, f32[4,6] c : f32[4,14] concatenate(a, b, c), dimensions={1}
reverse | f32[4,6,2] a : f32[4,6,2] reverse(a), dimensions={1,2}
iota | : s32[6,4] iota(), iota_dimension=0
iota f32 | : f32[2,4] iota(), iota_dimension=1
constant | : f32[4,2] constant({ {1, 2}, {3, 4}, {5, 6}, {7, 8} })
constant splat | : f32[4,2] constant({ {3, 3}, {3, 3}, {3, 3}, {3, 3} })
reshape merge | f32[4,6,2] a : f32[24,2] reshape(a)
reshape split | f32[24,2] a : f32[4,6,2] reshape(a)
reshape across | f32[6,4] a : f32[2,12] reshape(a)
reshape from the minor end | f32[4,6] a : f32[3,8] reshape(a)
reshape both ends | f32[2,4,6,2] a : f32[2,3,16] reshape(a)
reshape stuck | f32[4,9] a : f32[9,4] reshape(a)
reshape ones | f32[1,4,1,6] a : f32[4,6,1] reshape(a)
reshape mixed | f32[8,6,10] a : f32[4,12,10] reshape(a)
bitcast-convert narrow | f32[4,6] a : u16[4,6,2] bitcast-convert(a)
bitcast-convert wide | u16[4,6,2] a : u32[4,6] bitcast-convert(a)
pad | f32[4,6,2] a, f32[] v : f32[4,9,4] pad(a, v), padding=0_0x1_2x0_1_1
pad negative | f32[6,4] a, f32[] v : f32[4,4] pad(a, v), padding=-1_-1x0_0
slice | f32[8,6,4] a : f32[3,6,2] slice(a), slice={[1:7:2], [0:6], [0:2]}
map | f32[4,6] a, f32[4,6] b : f32[4,6] map(a, b), dimensions={0,1}, to_apply=%scale
dot | f32[4,6] a, f32[6,8] b : f32[4,8] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
dot batched | f32[2,4,6,8] a, f32[8,2,10,6] b : f32[2,6,4,10] dot(a, b), lhs_batch_dims={0,2}, rhs_batch_dims={1,3}, lhs_contracting_dims={3}, rhs_contracting_dims={0}
dot twice contracted | s32[4,6,8] a, s32[8,6,2] b : s32[4,2] dot(a, b), lhs_contracting_dims={1,2}, rhs_contracting_dims={1,0}
dot outer | f32[4] a, f32[6] b : f32[4,6] dot(a, b), lhs_contracting_dims={}, rhs_contracting_dims={}
convolution | f32[2,6,4,4] a, f32[3,3,4,8] b : f32[2,6,4,8] convolution(a, b), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
convolution strided | f32[2,4,9] a, f32[6,4,3] b : f32[2,6,4] convolution(a, b), window={size=3 stride=2}, dim_labels=bf0_oi0->bf0
convolution dilated | f32[2,4,6] a, f32[6,4,3] b : f32[2,6,9] convolution(a, b), window={size=3 pad=1_1 lhs_dilate=2 rhs_dilate=2 rhs_reversal=1}, dim_labels=bf0_oi0->bf0
convolution groups | f32[2,8,6] a, f32[12,2,3] b : f32[2,12,6] convolution(a, b), window={size=3 pad=1_1}, dim_labels=bf0_oi0->bf0, feature_group_count=4
convolution depthwise | f32[2,8,6] a, f32[8,1,3] b : f32[2,8,6] convolution(a, b), window={size=3 pad=1_1}, dim_labels=bf0_oi0->bf0, feature_group_count=8
convolution batch groups | f32[8,4,6] a, f32[12,4,3] b : f32[2,12,6] convolution(a, b), window={size=3 pad=1_1}, dim_labels=bf0_oi0->bf0, batch_group_count=4
convolution pointwise | f32[2,4,6,4] a, f32[1,1,4,8] b : f32[2,4,6,8] convolution(a, b), window={size=1x1}, dim_labels=b01f_01io->b01f
convolution as batch dot | f32[2,4,6] a, f32[8,4,6] b : f32[2,8,6] convolution(a, b), window={size=6 stride=5 lhs_dilate=6}, dim_labels=bf0_oi0->bf0
convolution as dilated batch dot | f32[2,4,6] a, f32[8,4,6] b : f32[2,8,6] convolution(a, b), window={size=6 lhs_dilate=6 rhs_dilate=5}, dim_labels=bf0_oi0->bf0
convolution as reversed batch dot | f32[2,4,6] a, f32[8,4,6] b : f32[2,8,6] convolution(a, b), window={size=6 stride=6 pad=5_5 lhs_dilate=5 rhs_reversal=1}, dim_labels=bf0_oi0->bf0
convolution contracted | f32[2,4,6] a, f32[8,4,6] b : f32[2,8,1] convolution(a, b), window={size=6}, dim_labels=bf0_oi0->bf0
convolution outer | f32[2,4,1] a, f32[8,4,6] b : f32[2,8,6] convolution(a, b), window={size=6 pad=5_5 rhs_reversal=1}, dim_labels=bf0_oi0->bf0
convolution weight gradient | f32[4,6,2] a, f32[4,6,8] b : f32[3,2,8] convolution(a, b), window={size=6 pad=1_1}, dim_labels=f0b_i0o->0bf
reduce | f32[4,6,8] a, f32[] i : f32[4,8] reduce(a, i), dimensions={1}, to_apply=%add_f32
reduce all | s32[4,6] a, s32[] i : s32[] reduce(a, i), dimensions={0,1}, to_apply=%min_s32
reduce multiply | f32[4,6] a, f32[] i : f32[4] reduce(a, i), dimensions={1}, to_apply=%mul_f32
reduce maximum | f32[4,6] a, f32[] i : f32[6] reduce(a, i), dimensions={0}, to_apply=%max_f32
reduce or | pred[4,6] a, pred[] i : pred[6] reduce(a, i), dimensions={0}, to_apply=%or_pred
reduce and | pred[4,6] a, pred[] i : pred[6] reduce(a, i), dimensions={0}, to_apply=%and_pred
reduce xor | u32[4,6] a, u32[] i : u32[6] reduce(a, i), dimensions={0}, to_apply=%xor_u32
reduce variadic | f32[4,6] a, s32[4,6] b, f32[] i, s32[] j : (f32[4], s32[4]) reduce(a, b, i, j), dimensions={1}, to_apply=%argmax
reduce-window | f32[4,8,6] a, f32[] i : f32[4,4,6] reduce-window(a, i), window={size=1x3x3 stride=1x2x1 pad=0_0x1_1x1_1}, to_apply=%add_f32
reduce-window cumulative | f32[4,6] a, f32[] i : f32[4,6] reduce-window(a, i), window={size=1x6 pad=0_0x5_0}, to_apply=%add_f32
reduce-window dilated | f32[4,6] a, f32[] i : f32[4,7] reduce-window(a, i), window={size=1x3 lhs_dilate=1x2 rhs_dilate=1x2}, to_apply=%max_f32
reduce-window variadic | f32[4,6] a, s32[4,6] b, f32[] i, s32[] j : (f32[4,4], s32[4,4]) reduce-window(a, b, i, j), window={size=1x3}, to_apply=%argmax
select-and-scatter | f32[4,8] a, f32[4,4] s, f32[] i : f32[4,8] select-and-scatter(a, s, i), window={size=1x3 stride=1x2 pad=0_0x0_1}, select=%ge_f32, scatter=%add_f32
sort | f32[4,6] a : f32[4,6] sort(a), dimensions={1}, to_apply=%lt_f32
sort two | f32[6,4] a, s32[6,4] b : (f32[6,4], s32[6,4]) sort(a, b), dimensions={0}, is_stable=true, to_apply=%lt_pair
topk | f32[4,6] a : (f32[4,2], s32[4,2]) topk(a), k=2, largest=true
dynamic-slice | f32[8,6,4] a, s32[] i, s32[] j, s32[] k : f32[1,6,3] dynamic-slice(a, i, j, k), dynamic_slice_sizes={1,6,3}
dynamic-update-slice | f32[8,6,4] a, f32[1,6,3] u, s32[] i, s32[] j, s32[] k : f32[8,6,4] dynamic-update-slice(a, u, i, j, k)
gather rows | f32[8,6] a, s32[4,2] i : f32[4,2,6] gather(a, i), offset_dims={2}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=2, slice_sizes={1,6}
gather points | f32[8,6] a, s32[4,2] i : f32[4] gather(a, i), offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1}, index_vector_dim=1, slice_sizes={1,1}
gather windows | f32[8,6,4] a, s32[10,2] i : f32[3,10,1,4] gather(a, i), offset_dims={0,2,3}, collapsed_slice_dims={}, start_index_map={0,1}, index_vector_dim=1, slice_sizes={3,1,4}
gather batched | f32[4,8,6] a, s32[2,4,1] i : f32[2,4,6] gather(a, i), offset_dims={2}, collapsed_slice_dims={1}, start_index_map={1}, operand_batching_dims={0}, start_indices_batching_dims={1}, index_vector_dim=2, slice_sizes={1,1,6}
gather whole dim | f32[8,6] a, s32[4,2] i : f32[4,6] gather(a, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0,1}, index_vector_dim=1, slice_sizes={1,6}
scatter add | f32[8,6] a, s32[4,1] i, f32[4,6] u : f32[8,6] scatter(a, i, u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%add_f32
scatter assign | f32[8,6] a, s32[4,1] i, f32[4,6] u : f32[8,6] scatter(a, i, u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%second
scatter copy | f32[8,6] a, s32[4,1] i, f32[4,6] u : f32[8,6] scatter(a, i, u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%assign
scatter windows | f32[8,6] a, s32[4,2] i, f32[4,3,1] u : f32[8,6] scatter(a, i, u), update_window_dims={1,2}, inserted_window_dims={}, scatter_dims_to_operand_dims={0,1}, index_vector_dim=1, to_apply=%add_f32
scatter batched | f32[4,8,6] a, s32[2,4,1] i, f32[2,4,6] u : f32[4,8,6] scatter(a, i, u), update_window_dims={2}, inserted_window_dims={1}, scatter_dims_to_operand_dims={1}, input_batching_dims={0}, scatter_indices_batching_dims={1}, index_vector_dim=2, to_apply=%max_f32
scatter two | f32[8,6] a, s32[8,6] b, s32[4,1] i, f32[4,6] u, s32[4,6] v : (f32[8,6], s32[8,6]) scatter(a, b, i, u, v), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%scatter_pair
rng-bit-generator | u64[2] s : (u64[2], u32[4,6]) rng-bit-generator(s), algorithm=rng_three_fry
cholesky | f32[2,4,4] a : f32[2,4,4] cholesky(a), lower=true
triangular-solve | f32[2,4,4] a, f32[2,4,6] b : f32[2,4,6] triangular-solve(a, b), left_side=true, lower=true, transpose_a=NO_TRANSPOSE, unit_diagonal=false
triangular-solve right | f32[2,4,4] a, f32[2,6,4] b : f32[2,6,4] triangular-solve(a, b), left_side=false, lower=true, transpose_a=TRANSPOSE, unit_diagonal=false
fft | c64[2,4,6] a : c64[2,4,6] fft(a), fft_type=FFT, fft_length={6}
fft two dims | c64[2,4,6] a : c64[2,4,6] fft(a), fft_type=IFFT, fft_length={4,6}
fft real | f32[4,6] a : c64[4,4] fft(a), fft_type=RFFT, fft_length={6}
fft to real | c64[4,4] a : f32[4,6] fft(a), fft_type=IRFFT, fft_length={6}
batch-norm-training | f32[4,6] a, f32[6] s, f32[6] o : (f32[4,6], f32[6], f32[6]) batch-norm-training(a, s, o), epsilon=0.1, feature_index=1
batch-norm-inference | f32[4,6] a, f32[6] s, f32[6] o, f32[6] m, f32[6] v : f32[4,6] batch-norm-inference(a, s, o, m, v), epsilon=0.1, feature_index=1
batch-norm-grad | f32[4,6] a, f32[6] s, f32[6] m, f32[6] v, f32[4,6] g : (f32[4,6], f32[6], f32[6]) batch-norm-grad(a, s, m, v, g), epsilon=0.1, feature_index=1
get-dimension-size | f32[4,6] a : s32[] get-dimension-size(a), dimensions={1}
select scalar | pred[] p, f32[4,6] a, f32[4,6] b : f32[4,6] select(p, a, b)
clamp scalars | f32[] l, f32[4,6] a, f32[] h : f32[4,6] clamp(l, a, h)
all-reduce | f32[4,6] a : f32[4,6] all-reduce(a), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%add_f32
all-gather | f32[4,6] a : f32[8,6] all-gather(a), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, dimensions={0}
reduce-scatter | f32[4,6] a : f32[2,6] reduce-scatter(a), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, dimensions={0}, to_apply=%add_f32
all-to-all | f32[4,6] a : f32[4,6] all-to-all(a), channel_id=1, replica_groups={{0,1}}, dimensions={0}
collective-permute | f32[4,6] a : f32[4,6] collective-permute(a), channel_id=1, source_target_pairs={{0,1},{1,0}}
"""

_UNARY_TYPES = {
    "not": ("s32", "s32"), "popcnt": ("s32", "s32"), "count-leading-zeros": ("s32", "s32"), "imag": ("c64", "f32"),
    "real": ("c64", "f32"), "is-finite": ("f32", "pred"), "convert": ("f32", "bf16"), "bitcast-convert": ("f32", "s32"),
}  # fmt: skip
_INTEGER_BINARY = frozenset("and or xor remainder shift-left shift-right-arithmetic shift-right-logical".split())
_ATTRIBUTES = {"compare": ", direction=LT", "reduce-precision": ", exponent_bits=5, mantissa_bits=3"}

# A case that XLA's CPU compiler refuses has no one-device run to compare with.
NOT_COMPILED_ON_CPU = {
    **dict.fromkeys(
        ("acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh"),
        "JAX expands it before XLA sees it; XLA:CPU has no code for it; same rule as all pointwise ops",
    ),
    "ragged-dot": "XLA:CPU has no code for it; tested through JAX's own expansion in test_ragged_dot.py",
    "custom-call": "its meaning is the target's; tested on what JAX emits in test_custom_calls.py",
    "rng": "its values differ from run to run",
    "collective-broadcast": "XLA:CPU has no code for it; same rule as collective-permute",
}


@dataclass(frozen=True)
class Case:
    """A module of one instruction on parameters, and how many devices it runs on."""

    name: str
    text: str
    devices: int = field(default=1)

    @property
    def module(self) -> Module:
        return _module(self.text)

    @property
    def inst(self) -> Instruction:
        return self.module.entry.root

    def arguments(self, rng: Generator) -> list[np.ndarray]:
        """Random values for the parameters, a leading axis of devices before their dims."""
        return [random_values(p.shape, self.inst.opcode, rng, self.devices) for p in self.module.entry.parameters]


@cache
def _module(text: str) -> Module:
    left, _, body = f" {text}".partition(" : ")
    parameters = [part.strip().rsplit(" ", 1) for part in left.split(", ") if part.strip()]
    lines = [f"  {name} = {shape} parameter({n})" for n, (shape, name) in enumerate(parameters)]
    hlo = "\n".join(["HloModule case", REDUCERS, "ENTRY main {", *lines, f"  ROOT result = {body}", "}"])
    return Module.from_proto(hlo_text_to_proto(hlo))


def random_values(shape: Shape, opcode: str, rng: Generator, devices: int) -> np.ndarray:
    dims = (devices, *shape.dims)
    kind = shape.element_type
    if kind == "pred":
        return rng.integers(0, 2, dims).astype(bool)
    if kind == "c64":
        return (rng.normal(size=dims) + 1j * rng.normal(size=dims)).astype(np.complex64)
    if opcode == "cholesky":
        root = rng.normal(size=dims)
        return (root @ root.swapaxes(-1, -2) + 4 * np.eye(dims[-1])).astype(shape.dtype)
    if opcode == "triangular-solve":
        return (rng.normal(size=dims) + (4 * np.eye(dims[-1]) if dims[-1] == dims[-2] else 0)).astype(shape.dtype)
    if shape.is_floating:
        # Few values, so that folding and sorting meet ties; positive, so that logarithms and roots are numbers.
        return (rng.integers(1, 64, dims) / 16).astype(shape.dtype)
    # Indices a little out of bounds on either side.
    return rng.integers(0 if kind.startswith("u") else -2, 10, dims).astype(shape.dtype)


def _elementwise_case(opcode: str) -> Case:
    source, result = _UNARY_TYPES.get(opcode, ("f32", "f32"))
    tail = _ATTRIBUTES.get(opcode, "")
    if opcode == "select":
        text = "pred[4,6] p, f32[4,6] a, f32[4,6] b : f32[4,6] select(p, a, b)"
    elif opcode == "clamp":
        text = "f32[4,6] l, f32[4,6] a, f32[4,6] h : f32[4,6] clamp(l, a, h)"
    elif opcode == "stochastic-convert":
        text = "f32[4,6] a, u32[4,6] b : s32[4,6] stochastic-convert(a, b)"
    elif opcode == "complex":
        text = "f32[4,6] a, f32[4,6] b : c64[4,6] complex(a, b)"
    elif opcode in BINARY:
        kind = "s32" if opcode in _INTEGER_BINARY else "f32"
        out = "pred" if opcode == "compare" else kind
        text = f"{kind}[4,6] a, {kind}[4,6] b : {out}[4,6] {opcode}(a, b){tail}"
    else:
        text = f"{source}[4,6] a : {result}[4,6] {opcode}(a){tail}"
    return Case(opcode, text)


BINARY = frozenset(
    "add and atan2 compare divide maximum minimum multiply or power remainder shift-left"
    " shift-right-arithmetic shift-right-logical subtract xor".split()
)


def all_cases() -> list[Case]:
    """Every case that one device (or two, for collectives) can run."""
    written = [line.partition(" | ") for line in CASES.strip().splitlines()]
    collective = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
    cases = [Case(name, text, 2 if name in collective else 1) for name, _, text in written]
    return cases + [_elementwise_case(op) for op in sorted(ELEMENTWISE) if op not in NOT_COMPILED_ON_CPU]
