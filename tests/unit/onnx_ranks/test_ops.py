"""Every op that is written, by ONNX's evaluator against XLA's one-device run of the same op; what is not is refused."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest

import hlosharding as hs
from hlosharding.errors import ModuleError
from hlosharding.ir import ALL_OPCODES, Module
from hlosharding.onnx_ranks.program import write_program
from hlosharding.onnx_ranks.table import WRITERS
from tests.support.onnx_rank_runs import run_together
from tests.unit.executor.op_cases import CASES, module_of
from tests.unit.executor.test_emitters import assert_same, flat_outputs, inputs_of

IN_THE_WALK = {"call", "conditional", "get-tuple-element", "parameter", "tuple", "while"}
NONE = {
    "add-dependency", "after-all", "all-gather-done", "all-gather-start", "all-reduce-done", "all-reduce-start",
    "async-done", "async-start", "async-update", "atan2", "batch-norm-grad", "batch-norm-inference",
    "batch-norm-training", "bitcast-convert", "cbrt", "cholesky", "collective-permute-done",
    "collective-permute-start", "complex", "copy-done", "copy-start", "count-leading-zeros", "custom-call",
    "dynamic-reshape", "fft", "fusion", "get-dimension-size", "imag", "infeed", "map", "mulhi", "outfeed", "popcnt",
    "ragged-all-to-all", "ragged-dot", "real", "recv", "recv-done", "reduce-precision", "rng",
    "rng-bit-generator", "rng-get-and-update-state", "round-nearest-afz", "scan", "select-and-scatter", "send",
    "send-done", "set-dimension-size", "shift-right-arithmetic", "sort", "stochastic-convert", "topk",
    "triangular-solve",
}  # fmt: skip
"""What has no writer."""
REFUSED = r"cannot be written as ONNX; at %\w+"
PARTLY = {
    "compare": 2, "convolution": 1, "get-tuple-element": 1, "parameter": 1, "reduce": 5, "reduce-window": 3,
    "scatter": 2, "shift-left": 1, "shift-right-logical": 1,
}  # fmt: skip
"""Of other opcodes how many cases are refused: reducers that are no single op, several arrays at once, signed shifts,
groups of the batch, parameters that are tuples."""
OPEN = {"divide", "remainder", "power"}
"""Of integers ONNX leaves open what a zero divisor or a negative exponent makes."""


def run_ranks(module: Module, arguments: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    """Per rank the outputs; `arguments` per rank."""
    names = [p.name for p in module.entry.parameters]
    outputs = [f"out{n}" for n, _ in enumerate(module.entry.root.shape.leaves)]
    models = [
        write_program(module, rank, inputs=names, outputs=outputs, weights={}, metadata={})
        for rank in range(len(arguments))
    ]
    for each in models:
        onnx.checker.check_model(each, full_check=True)
    runs = [lambda e, given=given: e.run(None, dict(zip(names, given, strict=True))) for given in arguments]
    return run_together(runs, models)


def lawful(module: Module, arguments: list[np.ndarray], opcode: str) -> list[np.ndarray]:
    """Arguments for which ONNX says what comes out."""
    if opcode in OPEN and module.entry.root.shape.is_integral:
        return [arguments[0], np.where(arguments[1] == 0, 1, np.abs(arguments[1].astype(np.int64)) % 5 + 1).astype(
            arguments[1].dtype)]  # fmt: skip
    if opcode == "convert" and module.entry.root.shape.element_type == "u8":
        return [np.abs(a) for a in arguments]
    return arguments


def is_judged(module: Module) -> bool:
    """ONNX's evaluator computes `Erf` of doubles as of floats."""
    return not any(i.opcode == "erf" and i.shape.element_type == "f64" for i in module.instructions)


def is_complex(module: Module) -> bool:
    """Does it hold complex numbers?  ONNX has the type, and no operators for it."""
    return any(leaf.is_complex for inst in module.entry.instructions for leaf in inst.shape.leaves)


@pytest.mark.parametrize("opcode", sorted(set(CASES) - NONE))
def test_an_op_equals_one_device_run(opcode: str) -> None:
    refused = 0
    for body in CASES[opcode]:
        module = module_of(body)
        arguments = lawful(module, inputs_of(module, special=False), opcode)
        try:
            found = run_ranks(module, [arguments])[0]
        except ModuleError:
            refused += not is_complex(module)
            continue
        for ours, theirs in zip(found, flat_outputs(module, arguments), strict=True):
            if is_judged(module):
                assert_same(np.asarray(ours), theirs)
    assert refused == PARTLY.get(opcode, 0)


FOREIGN = {
    "a sum of s8": "x = s8[3,40] parameter(0) i = s8[] constant(0) ROOT r = s8[3] reduce(x, i), dimensions={1},"
    " to_apply=add_s8",
    "the largest u16": "x = u16[3,4] parameter(0) i = u16[] constant(0) ROOT r = u16[3] reduce(x, i), dimensions={1},"
    " to_apply=max_u16",
    "a product of s8": "x = s8[3,40] parameter(0) y = s8[40,5] parameter(1) ROOT r = s8[3,5] dot(x, y),"
    " lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "a batched product of bf16": "x = bf16[2,3,4] parameter(0) y = bf16[5,2,4] parameter(1) ROOT r = bf16[2,3,5]"
    " dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={1}, lhs_contracting_dims={2}, rhs_contracting_dims={2}",
    "a number without a sign": "x = u8[4] parameter(0) ROOT r = u8[4] negate(x)",
}
"""In element types that ONNX's operator does not take."""
_REDUCERS = """
add_s8 { a = s8[] parameter(0) b = s8[] parameter(1) ROOT r = s8[] add(a, b) }
max_u16 { a = u16[] parameter(0) b = u16[] parameter(1) ROOT r = u16[] maximum(a, b) }
"""


@pytest.mark.parametrize("body", FOREIGN.values(), ids=FOREIGN)
def test_what_onnx_does_not_take_is_computed_in_another_type(body: str) -> None:
    module = module_of(body, more=_REDUCERS)
    arguments = inputs_of(module, special=False)
    (ours,), (theirs,) = run_ranks(module, [arguments])[0], flat_outputs(module, arguments)
    assert_same(np.asarray(ours), theirs)


def test_a_comparison_in_the_total_order_is_refused() -> None:
    module = module_of("x = f32[4] parameter(0) ROOT r = pred[4] compare(x, x), direction=GT, type=TOTALORDER")
    with pytest.raises(ModuleError, match=f"in the total order.*{REFUSED}"):
        write_program(module, 0, inputs=["x"], outputs=["y"], weights={}, metadata={})


@pytest.mark.parametrize("opcode", sorted(set(CASES) & NONE))
def test_what_has_no_form_is_refused_with_its_place(opcode: str) -> None:
    for body in CASES[opcode]:
        module = module_of(body)
        with pytest.raises(ModuleError, match=REFUSED):
            write_program(
                module, 0, inputs=[p.name for p in module.entry.parameters], outputs=[], weights={}, metadata={}
            )


def test_every_opcode_is_written_or_refused() -> None:
    written = {opcode for opcode in ALL_OPCODES if opcode in WRITERS} | IN_THE_WALK
    assert not written & NONE
    assert set(ALL_OPCODES) == written | NONE


def test_a_collective_of_some_where_others_go_elsewhere_is_refused() -> None:
    text = """HloModule m, num_partitions=4
      add { a = f32[] parameter(0)
        b = f32[] parameter(1)
        ROOT r = f32[] add(a, b) }
      yes { x = f32[4] parameter(0)
        ROOT r = f32[4] all-reduce(x), replica_groups={{0,1},{2,3}}, channel_id=1, use_global_device_ids=true, to_apply=add }
      no { ROOT x = f32[4] parameter(0) }
      ENTRY e { c = pred[] parameter(0)
        x = f32[4] parameter(1)
        ROOT r = f32[4] conditional(c, x, x), true_computation=yes, false_computation=no }"""  # noqa: E501
    with pytest.raises(ModuleError, match="all-reduce of some ranks, where others may take another way"):
        write_program(hs.load(text), 0, inputs=["c", "x"], outputs=["y"], weights={}, metadata={})
