"""Nodes as ONNX Runtime computes them: its own operators, and attributes that ONNX's node tests leave out."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.onnx_node import loaded_and_run
from tests.support.onnxruntime.answers import answers, runtime_cases

_TIES = frozenset("qadd qadd_wide qleaky qwhere qaverage_00 qaverage_01 qaverage_10 qaverage_11 qaverage_last".split())
"""Cases whose sums lie between two whole numbers, more often than not: ONNX Runtime forms them in another order."""


@pytest.mark.parametrize("name", runtime_cases())
def test_a_node_gives_what_onnx_runtime_gives(name: str) -> None:
    case = runtime_cases()[name]
    found = loaded_and_run(case.model, case.feeds)
    expected = answers()[name]
    assert [(f.dtype, f.shape) for f in found] == [(e.dtype, e.shape) for e in expected]
    for got, want in zip(found, expected, strict=True):
        if want.dtype.kind == "f":
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * max(1.0, float(np.abs(want).max())))
            continue
        apart = np.abs(got.astype(int) - want.astype(int))
        assert apart.max() <= (name in _TIES)
        assert np.count_nonzero(apart) <= apart.size / 10
