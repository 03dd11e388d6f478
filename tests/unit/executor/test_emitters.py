"""Every emitter against a one-device run of the same op by XLA."""

from __future__ import annotations

import numpy as np
import pytest

from hlosharding import xla_bridge
from hlosharding.executor import Program
from hlosharding.executor.emit import EMITTERS, REFUSED
from hlosharding.ir import ALL_OPCODES, Module
from tests.unit.executor.op_cases import CASES, module_of, values

SPECIAL = frozenset({"compare", "maximum", "minimum", "convert", "divide", "remainder", "sign", "abs", "is-finite", "clamp",
                     "round-nearest-afz", "round-nearest-even", "reduce-precision", "sort", "negate", "shift-left",
                     "shift-right-arithmetic", "shift-right-logical", "floor", "ceil", "select"})  # fmt: skip


def inputs_of(module: Module, special: bool) -> list[np.ndarray]:
    leaves = [leaf for p in module.entry.parameters for leaf in p.shape.leaves]
    return [values(leaf, seed, special) for seed, leaf in enumerate(leaves)]


def flat_outputs(module: Module, arguments: list[np.ndarray]) -> list[np.ndarray]:
    return [output[0] for output in xla_bridge.run_proto(module.to_hlo_proto(), [[a] for a in arguments])]


def assert_same(ours: np.ndarray, theirs: np.ndarray) -> None:
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    if ours.dtype.kind in "biu":
        np.testing.assert_array_equal(ours, theirs)
        return
    wide = np.complex128 if ours.dtype.kind == "c" else np.float64
    step = 1e-6 if ours.dtype.name in ("float32", "complex64") else 1e-12 if ours.dtype.itemsize >= 8 else 1e-2
    np.testing.assert_allclose(ours.astype(wide), theirs.astype(wide), rtol=4 * step, atol=4 * step)


@pytest.mark.parametrize("opcode", sorted(CASES))
def test_emitter_equals_one_device_run(opcode: str) -> None:
    for body in CASES[opcode]:
        module = module_of(body)
        arguments = inputs_of(module, opcode in SPECIAL)
        theirs = flat_outputs(module, arguments)
        program = Program(module)
        ours = program.run(*arguments)
        assert len(ours) == len(theirs), body
        for mine, other in zip(ours, theirs, strict=True):
            try:
                assert_same(mine, other)
            except AssertionError as error:
                raise AssertionError(f"{body}\n{program.source}\n{error}") from None
