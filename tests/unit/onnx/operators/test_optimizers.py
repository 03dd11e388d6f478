"""Two tensors at once, each by the formulas that ONNX gives."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.onnx_node import run_node

_TRAINING = "ai.onnx.preview.training"
_RNG = np.random.default_rng(0)
_PAIR = [_RNG.random((2, 3)).astype(np.float32), _RNG.random(4).astype(np.float32)]


def _groups(count: int) -> list[np.ndarray]:
    return [tensor + n for n in range(count) for tensor in _PAIR]


@pytest.mark.parametrize("updates", [0, 3])
def test_adam(updates) -> None:
    rate, attributes = np.float32(0.1), {"alpha": 0.8, "beta": 0.9, "epsilon": 1e-3, "norm_coefficient": 0.1}
    found = run_node("Adam", rate, np.int64(updates), *_groups(4), outputs=6, domain=_TRAINING, **attributes)
    for n, x in enumerate(_PAIR):
        g, v, h = 0.1 * x + (x + 1), x + 2, x + 3
        v, h = 0.8 * v + 0.2 * g, 0.9 * h + 0.1 * g * g
        corrected = 0.1 * np.sqrt(1 - 0.9**updates) / (1 - 0.8**updates) if updates else 0.1
        expected = x - corrected * v / (np.sqrt(h) + 1e-3), v, h
        for got, want in zip(found[n::2], expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("mode", ["standard", "nesterov"])
@pytest.mark.parametrize("updates", [0, 3])
def test_momentum(mode, updates) -> None:
    attributes = {"alpha": 0.8, "beta": 0.5, "norm_coefficient": 0.1, "mode": mode}
    found = run_node(
        "Momentum", np.float32(0.1), np.int64(updates), *_groups(3), outputs=4, domain=_TRAINING, **attributes
    )
    for n, x in enumerate(_PAIR):
        g = 0.1 * x + (x + 1)
        v = 0.8 * (x + 2) + (0.5 if updates else 1) * g
        np.testing.assert_allclose(found[n], x - 0.1 * (g + 0.8 * v if mode == "nesterov" else v), rtol=1e-5)
        np.testing.assert_allclose(found[2 + n], v, rtol=1e-5)


def test_adagrad() -> None:
    attributes = {"decay_factor": 0.5, "epsilon": 1e-3, "norm_coefficient": 0.1}
    found = run_node("Adagrad", np.float32(0.1), np.int64(3), *_groups(3), outputs=4, domain=_TRAINING, **attributes)
    for n, x in enumerate(_PAIR):
        g = 0.1 * x + (x + 1)
        h = (x + 2) + g * g
        np.testing.assert_allclose(found[n], x - 0.1 / 2.5 * g / (np.sqrt(h) + 1e-3), rtol=1e-5)
        np.testing.assert_allclose(found[2 + n], h, rtol=1e-5)
