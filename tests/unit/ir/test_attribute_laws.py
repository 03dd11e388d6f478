"""Operands and attributes that no op can have: refused with the law that they break.

XLA refuses each of these, too: most when it reads the module, the rest in its verifier.
"""

# ruff: noqa: E501  (HLO reads best with an instruction on one line)
from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from hlosharding import load, wire
from hlosharding.errors import LoadError, ModuleError
from hlosharding.frontends.hlo import from_hlo_proto, from_hlo_text
from hlosharding.ir import Module, verify
from tests.oracle.opcode_modules import BODIES, opcode_module

Change = Callable[[Any], object]


def changed(opcode: str, change: Change) -> Module:
    """The module that is written for an opcode, with the proto of its `%op` changed."""
    proto = wire.HloModuleProto.FromString(from_hlo_text(opcode_module(opcode)).to_hlo_proto())
    (op,) = [i for c in proto.computations for i in c.instructions if i.name == "op"]
    change(op)
    return from_hlo_proto(proto.SerializeToString())


def operands(*places: int) -> Change:
    def change(op: Any) -> None:
        op.operand_ids[:] = [op.operand_ids[place] for place in places]

    return change


BROKEN: dict[str, tuple[str, Change, str]] = {
    "two operands of a cosine": ("cosine", operands(0, 0), "it has 2 operands and takes 1"),
    "no operand": ("negate", operands(), "it has 0 operands and takes 1"),
    "scatter: an operand more": ("scatter", operands(0, 0, 1, 2), "arrays, indices and as many updates"),
    "scatter: a dim that is none": ("scatter", lambda op: op.scatter_dimension_numbers.scatter_dims_to_operand_dims.__setitem__(0, 1094795585), "addressed dim 1094795585 is not one of"),
    "scatter: a window dim": ("scatter", lambda op: op.scatter_dimension_numbers.inserted_window_dims.pop(), "do not fit"),
    "gather: batching dims": ("gather", lambda op: op.gather_dimension_numbers.operand_batching_dims.append(0), "batching dim"),
    "gather: index_vector_dim": ("gather", lambda op: setattr(op.gather_dimension_numbers, "index_vector_dim", 7), "index_vector_dim 7 is past"),
    "gather: a number too many": ("gather", lambda op: op.gather_dimension_numbers.start_index_map.pop(), " in each index address "),
    "reduce: a dim twice": ("reduce", lambda op: op.dimensions.append(op.dimensions[0]), "hold one twice"),
    "reduce: a dim that is none": ("reduce", lambda op: op.dimensions.append(-1), "dim -1 is not one of the 2 dims"),
    "reverse": ("reverse", lambda op: op.dimensions.__setitem__(0, -(1 << 40)), "is not one of the 2 dims"),
    "convolution: spatial dims": ("convolution", lambda op: op.convolution_dimension_numbers.output_spatial_dimensions.append(1), "do not fit"),
    "dot: batch dims of one side": ("dot", lambda op: op.dot_dimension_numbers.lhs_batch_dimensions.append(0), "other numbers of contracted or batch dims"),
    "window: no stride": ("reduce-window", lambda op: setattr(op.window.dimensions[0], "stride", 0), "below 1"),
    "pad: a dim more": ("pad", lambda op: op.padding_config.dimensions.add(), "it pads 3 dims"),
    "slice: no stride": ("slice", lambda op: setattr(op.slice_dimensions[0], "stride", 0), "a stride is below 1"),
    "dynamic slice: a size less": ("dynamic-slice", lambda op: op.dynamic_slice_sizes.pop(), "it takes ["),
    "dynamic slice: a size below 0": ("dynamic-slice", lambda op: op.dynamic_slice_sizes.__setitem__(0, -1), "it takes [-1"),
    "scan without a dim": ("scan", lambda op: op.dimensions.pop(), "it names no dim"),
    "scan: more carries than operands": ("scan", lambda op: setattr(op, "num_carries", 5), "5 carries of 2 operands"),
    "reduce without a reducer": ("reduce", lambda op: op.called_computation_ids.pop(), "names no computation"),
    "fusion of more than its body takes": ("fusion", operands(0, 0), "the parameters of %flip are f32[8,16]"),
    "start of what takes less": ("async-start", operands(0, 0), "a start makes"),
    "an iota of a tuple": ("iota", lambda op: op.shape.CopyFrom(wire.ShapeProto(element_type=13)), "it is no array"),
    "batch norm: a gradient of features": ("batch-norm-grad", operands(0, 1, 2, 3, 1), "operand %f.1 is f32[16]"),
    "done of no start": ("copy-done", lambda op: setattr(op, "opcode", "all-gather-done"), "is no all-gather-start"),
    "an opcode of nobody": ("tanh", lambda op: setattr(op, "opcode", "tanhh"), "no opcode: 'tanhh'"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_law_is_named(case: str) -> None:
    opcode, change, words = BROKEN[case]
    with pytest.raises(ModuleError) as caught:
        verify(changed(opcode, change))
    assert words in str(caught.value)
    assert "%op" in str(caught.value)


SHAPES: dict[str, tuple[Change, str]] = {
    "an element type that is none": (lambda op: setattr(op.shape, "element_type", 0), "element type 0"),
    "a negative dim": (lambda op: op.shape.dimensions.__setitem__(0, -3), "negative"),
    "a dim too many": (lambda op: op.shape.dimensions.append(3), "3 dims"),
}


@pytest.mark.parametrize("case", SHAPES)
def test_what_is_no_shape_is_not_loaded(case: str) -> None:
    change, words = SHAPES[case]
    with pytest.raises(LoadError, match=r"at %op \(tanh\)") as caught:
        changed("tanh", change)
    assert words in str(caught.value)


@pytest.mark.parametrize("opcode", BODIES)
def test_what_xla_takes_obeys_the_laws(opcode: str) -> None:
    verify(from_hlo_text(opcode_module(opcode)))


CALLEES = """HloModule m
one { p = f32[4] parameter(0)  ROOT r = f32[4] negate(p) }
two { p = f32[4] parameter(0)  q = f32[4] parameter(1)  ROOT r = f32[4] add(p, q) }
three { p = f32[] parameter(0)  q = f32[] parameter(1)  s = f32[] parameter(2)  ROOT r = f32[] add(p, q) }
choose { p = f32[] parameter(0)  ROOT r = pred[] constant(true) }
yes { p = f32[4] parameter(0)  ROOT r = pred[] constant(true) }
ENTRY e {
  x = f32[4] parameter(0)  z = f32[] constant(0)  c = pred[] parameter(1)  t = (f32[4], f32[4]) tuple(x, x)
  n = u32[2] parameter(2)  pair = (u32[2], u32[2]) tuple(n, n)
  i = s32[] constant(0)  at = (s32[]) tuple(i)
"""


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ("f32[4] call(x), to_apply=two", "the parameters of %two are f32[4], f32[4]"),
        ("f32[4] call(x, x), to_apply=one", "the parameters of %one are f32[4]"),
        ("f32[4] while(x), condition=yes, body=two", "%two does not take f32[4]"),
        (
            "f32[4] conditional(c, x, x), true_computation=one, false_computation=two",
            "%two takes f32[4], f32[4], not f32[4]",
        ),
        ("f32[] reduce(x, z), dimensions={0}, to_apply=three", "%three takes 3 values, not 2"),
        ("f32[4] map(x, x), dimensions={0}, to_apply=three", "%three takes 3 values, not 2"),
        ("f32[4] sort(x), dimensions={0}, to_apply=choose", "%choose takes 1 value, not 2"),
        ("u32[96] rng-bit-generator(pair), algorithm=rng_default", "operand %pair is no array"),
        ("f32[4] all-reduce(x), to_apply=three", "%three takes 3 values, not 2"),
        (
            "f32[4] collective-permute(x, x, at, at), source_target_pairs={{0,0}}, slice_sizes={{4}}",
            "it writes into a buffer that it is given",
        ),
    ],
)
def test_a_callee_that_does_not_fit_its_call(op: str, words: str) -> None:
    with pytest.raises(ModuleError) as caught:
        verify(from_hlo_text(f"{CALLEES}  ROOT op = {op}\n}}\n"))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ("all-reduce(x), replica_groups={{0,1},{1,2}}, to_apply=add", "replica 1 twice in its replica groups"),
        ("all-reduce(x), replica_groups={{0,-1}}, to_apply=add", "replica -1 in its replica groups"),
        (
            "all-reduce(x), replica_groups={{0,4}}, channel_id=1, use_global_device_ids=true, to_apply=add",
            "device 4 in its",
        ),
        ("all-to-all(x), replica_groups={{0,1,1,2}}, dimensions={0}", "replica 1 twice in its replica groups"),
        ("collective-permute(x), source_target_pairs={{0,1},{0,2}}", "replica 0 twice among its sources"),
        ("collective-permute(x), source_target_pairs={{0,1},{2,1}}, channel_id=1", "device 1 twice among its targets"),
        (
            "collective-permute(x), source_target_pairs={{0,4}}, channel_id=1",
            "device 4 among its targets; the program is for 4",
        ),
        ("collective-permute(x), source_target_pairs={{0,-1}}", "replica -1 among its targets"),
    ],
)
def test_ids_that_nobody_can_have(op: str, words: str) -> None:
    head = "HloModule m, num_partitions=4\nadd { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }\n"
    with pytest.raises(ModuleError) as caught:
        verify(from_hlo_text(f"{head}ENTRY e {{\n  x = f32[4] parameter(0)\n  ROOT op = f32[4] {op}\n}}\n"))
    assert words in str(caught.value)


@pytest.mark.parametrize("target", ["Sharding", "LayoutConstraint", "MoveToHost", "annotate_device_placement"])
@pytest.mark.parametrize(
    ("result", "taken", "words"),
    [
        ("f32[8]", "", "takes one operand, not 0"),
        ("f32[8]", "p, p", "takes one operand, not 2"),
        ("f32[4]", "p", "hands on %p, f32[8]"),
        ("(f32[8], f32[8])", "p", "hands on %p, f32[8]"),
    ],
)
def test_a_call_that_hands_on_an_operand_has_it(target: str, result: str, taken: str, words: str) -> None:
    """XLA ends its process on some of these, and refuses the rest when it compiles them."""
    call = f'custom-call({taken}), custom_call_target="{target}", sharding={{replicated}}'
    with pytest.raises(LoadError, match=re.escape(words)) as caught:
        load(f"HloModule m\nENTRY e {{\n  p = f32[8] parameter(0)\n  ROOT s = {result} {call}\n}}\n")
    assert "%s" in str(caught.value)


@pytest.mark.parametrize("target", ["SPMDFullToShardShape", "SPMDShardToFullShape"])
def test_the_edge_of_a_manual_region_is_one_value_s(target: str) -> None:
    with pytest.raises(LoadError, match="takes one operand, not 0"):
        load(f'HloModule m\nENTRY e {{\n  ROOT s = f32[8] custom-call(), custom_call_target="{target}"\n}}\n')


SCANS = """HloModule m
carry { c = f32[8] parameter(0)  ROOT r = (f32[8]) tuple(c) }
scalars { s = f32[] parameter(0)  c = f32[] parameter(1)  ROOT r = (f32[], f32[]) tuple(s, c) }
ENTRY e {
  x = f32[8] parameter(0)  y = f32[4] parameter(1)  z = f32[] constant(0)
"""


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ("(f32[8]) scan(x), dimensions={0}, num_carries=1, to_apply=carry", "neither slices nor stacks"),
        ("(f32[4], f32[]) scan(x, z), dimensions={0}, num_carries=1, to_apply=scalars", "a row of f32[4] along dim 0"),
        ("(f32[8,4], f32[]) scan(x, z), dimensions={0}, num_carries=1, to_apply=scalars", "is no f32[]"),
    ],
)
def test_a_scan_says_once_how_often_it_runs(op: str, words: str) -> None:
    with pytest.raises(ModuleError) as caught:
        verify(from_hlo_text(f"{SCANS}  ROOT op = {op}\n}}\n"))
    assert words in str(caught.value)
    assert "%op" in str(caught.value)
