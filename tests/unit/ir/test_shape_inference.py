"""Shapes that follow: XLA's parser infers those that a text leaves out, and ours are the same."""

# ruff: noqa: E501  (HLO reads best with an instruction on one line)
from __future__ import annotations

import pytest

from hlosharding.errors import ModuleError
from hlosharding.frontends.hlo import from_hlo_text
from hlosharding.ir import Builder, Instruction, Module, PaddingDim, Shape, SliceDim, infer_shape, verify
from hlosharding.ir.shape_inference import SHAPE_RULES

HEAD = """HloModule m, num_partitions=4
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
less { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = pred[] compare(a, b), direction=LT }
two { a = f32[] parameter(0)  c = s32[] parameter(1)  b = f32[] parameter(2)  d = s32[] parameter(3)
  e = f32[] add(a, b)  f = s32[] add(c, d)  ROOT r = (f32[], s32[]) tuple(e, f) }
twice { a = f32[4,8] parameter(0)  ROOT r = f32[4,8] add(a, a) }
more { a = f32[4,8] parameter(0)  ROOT r = pred[] constant(true) }
ENTRY e {
  x = f32[4,8] parameter(0)  y = f32[8,16] parameter(1)  square = f32[8,8] parameter(12)  k = s32[4,8] parameter(2)  p = pred[4,8] parameter(3)
  z = f32[] constant(0)  n = s32[] constant(0)  c = c64[4,8] parameter(4)  q = pred[] constant(true)
  image = f32[2,9,9,6] parameter(5)  kernel = f32[3,3,3,10] parameter(6)  at = s32[5,1] parameter(7)
  rows = f32[5,8] parameter(8)  u = u32[4] parameter(9)  h = bf16[4,8] parameter(10)
"""
GROUPS = "replica_groups={{0,1},{2,3}}, channel_id=1, use_global_device_ids=true"
OPS = [
    "tanh(x)", "add(x, x)", "select(p, x, x)", "select(q, x, x)", "clamp(z, x, z)", "compare(x, x), direction=LT",
    "is-finite(x)", "real(c)", "imag(c)", "abs(c)", "complex(x, x)", "abs(x)", "not(p)", "atan2(x, x)",
    "transpose(x), dimensions={1,0}", "reverse(x), dimensions={1}", "concatenate(x, x), dimensions={1}",
    "pad(x, z), padding=1_2_3x-1_0",
    "reduce(x, z), dimensions={0}, to_apply=add",
    "reduce(x, k, z, n), dimensions={1}, to_apply=two",
    "reduce-window(x, z), window={size=2x3 stride=2x1 pad=0_0x1_1}, to_apply=add",
    "dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "convolution(image, kernel), window={size=3x3 stride=2x1 pad=1_1x0_0}, dim_labels=b01f_01io->b01f, feature_group_count=2",
    "gather(x, at), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,8}",
    "scatter(x, at, rows), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0},"
    " index_vector_dim=1, to_apply=add",
    "sort(x), dimensions={1}, to_apply=less", "tuple(x, n)", "call(x), to_apply=twice", "while(x), condition=more, body=twice",
    "conditional(q, x, x), true_computation=twice, false_computation=twice", "get-dimension-size(x), dimensions={0}",




    "partition-id()", "replica-id()", "cholesky(square)",
]  # fmt: skip
# XLA leaves the type, or the whole shape, to the text.
STATED = [
    "f32[2,8] slice(x), slice={[1:4:2],[0:8]}",
    "f32[2,8] dynamic-slice(x, n, n), dynamic_slice_sizes={2,8}",
    "f32[4,8] dynamic-update-slice(x, x, n, n)",
    "f32[4,8] opt-barrier(x)",
    f"f32[4,8] all-reduce(x), {GROUPS}, to_apply=add",
    f"(f32[4,8], f32[4,8]) all-reduce(x, x), {GROUPS}, to_apply=add",
    f"f32[8,8] all-gather(x), dimensions={{0}}, {GROUPS}",
    f"f32[4,4] reduce-scatter(x), dimensions={{1}}, {GROUPS}, to_apply=add",
    "f32[4,8] all-to-all(x), dimensions={0}, replica_groups={{0,1},{2,3}}, channel_id=1",
    "(f32[4,8], f32[4,8]) all-to-all(x, x), replica_groups={{0,1},{2,3}}, channel_id=1",
    "f32[4,8] collective-permute(x), source_target_pairs={{0,1}}, channel_id=1",
    "f32[4,8] collective-broadcast(x), replica_groups={{0,1}}, channel_id=1",
    "f32[4,8] reduce-precision(x), exponent_bits=5, mantissa_bits=3",
    "bf16[4,8] convert(x)", "s32[4,8] bitcast-convert(x)", "u16[4,8,2] bitcast-convert(x)", "u64[4] bitcast-convert(pairs)",
    "f32[4,16] dot(h, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "f32[] get-tuple-element(both), index=1", "f32[4,8] fusion(x), kind=kLoop, calls=twice",
    "f32[4,8] map(x, x), dimensions={0,1}, to_apply=add", "f32[8,16] triangular-solve(square, y), left_side=true",
    "f32[2,9,9,6] select-and-scatter(image, part, z), window={size=1x3x3x1 stride=1x3x3x1}, select=less, scatter=add",
    "f32[4,8] ragged-all-to-all(x, x, at4, at4, at4, at4), replica_groups={{0,1,2,3}}",
    "token[] after-all()", "token[] send-done(sent), channel_id=9", "f32[4,8] copy-done(copying)",
    "((f32[4,8]), f32[4,8], u32[]) call-update(started)", "f32[4,8] call-done(started)",
    "f32[8,8] all-gather-done(gathering)", "f32[4,8] all-reduce-done(reducing)",
    "f32[4,8] collective-permute-done(permuting)",
]  # fmt: skip


def read(op: str) -> Instruction:
    more = f"""pairs = u32[4,2] parameter(11)  both = (f32[4,8], f32[]) tuple(x, z)
  part = f32[2,3,3,6] parameter(13)  at4 = s32[4] parameter(14)  order = token[] after-all()
  sent = (f32[4,8], u32[], token[]) send(x, order), channel_id=9
  copying = (f32[4,8], f32[4,8], u32[]) copy-start(x)
  started = ((f32[4,8]), f32[4,8], u32[]) call-start(x), to_apply=twice
  gathering = (f32[4,8], f32[8,8]) all-gather-start(x), dimensions={{0}}, {GROUPS}
  reducing = f32[4,8] all-reduce-start(x), {GROUPS}, to_apply=add
  permuting = (f32[4,8], f32[4,8], u32[], u32[]) collective-permute-start(x), source_target_pairs={{{{0,1}}}}"""
    return from_hlo_text(f"{HEAD}  {more}\n  result = {op}\n  ROOT root = f32[] constant(0)\n}}").by_name("result")


@pytest.mark.parametrize("op", OPS)
def test_a_shape_left_out_is_what_xla_infers(op: str) -> None:
    inst = read(op)
    assert infer_shape(inst) is inst.shape


@pytest.mark.parametrize("op", STATED)
def test_a_shape_that_xla_wants_stated_follows_all_the_same(op: str) -> None:
    inst = read(op)
    assert infer_shape(inst) is inst.shape


def test_every_rule_is_tested() -> None:
    from hlosharding.ir import ELEMENTWISE

    tested = {read(op).opcode for op in (*OPS, *STATED)}
    missing = set(SHAPE_RULES) - tested - ELEMENTWISE - {"add-dependency", "domain"}
    assert not missing


WRONG = {
    "transpose": ("f32[4,8] transpose(x), dimensions={1,0}", "the operands make f32[8,4]"),
    "elementwise": ("f32[4,9] tanh(x)", "operand %x is f32[4,8]"),
    "types": ("f32[4,8] add(x, k)", "operand %k is s32[4,8], operand %x is f32[4,8]"),
    "slice": ("f32[4,8] slice(x), slice={[0:5],[0:8]}", "it reaches over the end of [4, 8]"),
    "concatenate": ("f32[12,8] concatenate(x, y), dimensions={0}", "its parts differ in another dim"),
    "dot": ("f32[4,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "contracted or batch dims of [4, 8] and"),
    "scatter": ("f32[4,3] reduce-scatter(x), dimensions={1}, replica_groups={{0,1,2}}, to_apply=add", "has no 3 equal parts along dim 1"),
    "call": ("f32[8,16] call(y), to_apply=twice", "the parameters of %twice are f32[4,8]"),
    "tuple": ("(s32[4,8], f32[4,8]) tuple(x, k)", "the operands make (f32[4,8], s32[4,8])"),
    "result": ("f32[4] call(x), to_apply=twice", "operand %x is f32[4,8]"),
    "broadcast": ("f32[8,4] broadcast(x), dimensions={0,1}", "do not broadcast to it by [0, 1]"),
    "bounded": ("f32[4,8] clamp(x, y, x)", "operand %x is f32[4,8], operand %y is f32[8,16]"),
    "chosen by numbers": ("f32[4,8] select(x, x, x)", "operand %x is f32[4,8], and select chooses by pred"),
    "chosen": ("pred[4,8] select(p, q, p)", "operand %p is pred[4,8], operand %q is pred[]"),
    "truth": ("f32[4,8] is-finite(x)", "the operands make pred[4,8]"),
    "whole": ("f32[4,8] complex(x, x)", "the operands make c64[4,8]"),
    "part": ("c64[4,8] real(c)", "the operands make f32[4,8]"),
    "tuples": ("(f32[4,8], f32[]) add(both, both)", "operand %both is no array"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_clashes_is_named(case: str) -> None:
    op, words = WRONG[case]
    with pytest.raises(ModuleError) as caught:
        verify(read(op).module)
    assert words in str(caught.value)
    assert "%result" in str(caught.value)


def test_a_builder_infers_shapes() -> None:
    builder = Builder("m", num_partitions=2)
    main = builder.computation("main")
    x = main.parameter(0, Shape.parse("bf16[4,8]"))
    wide = main.op("convert", (x,), element_type="f32")
    zero = main.constant(0.0 * wide.shape.dtype.type(0))
    padded = main.op("pad", (wide, zero), padding=(PaddingDim(0, 1), PaddingDim()))
    part = main.op("slice", (padded,), slice_dims=(SliceDim(0, 5, 2), SliceDim(0, 8)))
    whole = main.op("all-gather", (part,), dimensions=(1,), replica_groups=((0, 1),))
    pair = main.root(main.op("tuple", (whole, main.op("partition-id"))))
    assert str(pair.shape) == "(f32[3,16], u32[])"
    module = builder.finish(main)
    verify(Module.from_proto(module.to_hlo_proto()))


def test_a_builder_names_the_op_whose_shape_does_not_follow() -> None:
    main = Builder("m").computation("main")
    x = main.parameter(0, Shape.parse("f32[4]"))
    with pytest.raises(ModuleError, match="the shape of a broadcast does not follow"):
        main.op("broadcast", (x,), dimensions=(1,))
