"""Operators that ONNX Runtime's optimiser writes into the ONNX domain, which has them not or not yet: against numpy."""

from __future__ import annotations

import numpy as np
import pytest

import hlosharding as hs
from tests.support.onnx_models import model, node, port, run

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((4, 3, 16), np.float32)
SCALE, BIAS = RANDOM.standard_normal((2, 16), np.float32)


@pytest.mark.parametrize("opset", [11, 17, 23, 28])
@pytest.mark.parametrize("domain", ["", "ai.onnx"])
@pytest.mark.parametrize("axis", [-1, 2, 1])
def test_normalized_without_the_mean(opset: int, domain: str, axis: int) -> None:
    scale = np.broadcast_to(SCALE, X.shape[axis:]).copy()
    names = {"epsilon": 1e-3, "stash_type": 1, "axis": axis}
    inner = node("SimplifiedLayerNormalization", ["a", "scale"], ["y", "inverse"], name="norm", domain=domain, **names)
    nodes = [node("Neg", ["x"], ["a"]), inner, node("Neg", ["y"], ["z"])]
    outputs = [port("z", None), port("inverse", None)]
    found, inverse = run(model(nodes, [port("x", X.shape)], outputs, {"scale": scale}, opset=opset), x=X)
    axes = tuple(range(axis % 3, 3))
    expected = 1 / np.sqrt(np.mean(X.astype(np.float64) ** 2, axes, keepdims=True) + 1e-3)
    np.testing.assert_allclose(found, X * expected * scale, rtol=1e-5)
    np.testing.assert_allclose(inverse, expected, rtol=1e-5)


@pytest.mark.parametrize("opset", [11, 16, 17])
def test_normalized_before_onnx_had_it(opset: int) -> None:
    nodes = [node("LayerNormalization", ["x", "scale", "bias"], ["y"], axis=-1, epsilon=1e-3)]
    proto = model(nodes, [port("x", X.shape)], [port("y", None)], {"scale": SCALE, "bias": BIAS}, opset=opset)
    wide = X.astype(np.float64)
    centred = wide - wide.mean(-1, keepdims=True)
    expected = centred / np.sqrt(np.mean(centred**2, -1, keepdims=True) + 1e-3) * SCALE + BIAS
    np.testing.assert_allclose(run(proto, x=X)[0], expected, rtol=1e-4, atol=1e-5)


def test_with_half_precision_the_sum_is_not() -> None:
    x, scale = (X * 300).astype(np.float16), SCALE.astype(np.float16)  # whose squares are too large for float16
    nodes = [node("SimplifiedLayerNormalization", ["x", "scale"], ["y"])]
    proto = model(nodes, [port("x", X.shape, 10)], [port("y", None, 10)], {"scale": scale}, opset=14)
    (found,) = run(proto, x=x)
    wide = x.astype(np.float64)
    expected = wide / np.sqrt(np.mean(wide**2, -1, keepdims=True) + 1e-5) * scale
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, expected, rtol=5e-3, atol=1e-3)


def test_what_nobody_has_is_refused_by_name() -> None:
    proto = model([node("FancyNorm", ["x"], ["y"], name="n")], [port("x", [4])], [port("y", None)], opset=28)
    with pytest.raises(hs.LoadError, match="FancyNorm"):
        hs.load(proto)
