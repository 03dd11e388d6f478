"""Formulas keep all digits, near zero and far from it: by ONNX's evaluator, and by XLA, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlosharding as hs
from hlosharding.onnx_ranks.program import write_program
from tests.support.onnx_models import run
from tests.unit.onnx_ranks.test_ops import run_ranks

FORMULAS = {"exponential-minus-one": np.expm1, "log-plus-one": np.log1p}
TYPES = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


def arguments(dtype: Any) -> np.ndarray:
    """Of each size that the type has, of both signs, and what is no number of any size."""
    sizes = np.logspace(np.log10(np.finfo(dtype).tiny) + 1, np.log10(np.finfo(dtype).max) - 1, 400)
    around = np.linspace(-3, 3, 401)
    return np.concatenate([sizes, -sizes, around, [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan]]).astype(dtype)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("opcode", FORMULAS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_digit_is_lost(opcode: str, name: str) -> None:
    x = arguments(TYPES[name])
    kind = f"{name}[{x.size}]"
    module = hs.load(f"HloModule m\nENTRY e {{\n  x = {kind} parameter(0)\n  ROOT y = {kind} {opcode}(x)\n}}")
    want = FORMULAS[opcode](x.astype(np.longdouble)).astype(x.dtype)
    written = write_program(module, 0, inputs=["x"], outputs=["y"], weights={}, metadata={})
    for found in (run_ranks(module, [[x]])[0][0], run(written, x=x)[0]):
        np.testing.assert_allclose(found, want, rtol=4 * np.finfo(x.dtype).eps, atol=0)
