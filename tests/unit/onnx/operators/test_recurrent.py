"""What ONNX Runtime cannot say: batches first, and what is refused.  Its answers are in test_against_onnxruntime.py."""

from __future__ import annotations

import numpy as np
import pytest

from hlosharding.errors import LoadError
from tests.support.onnx_node import run_node

_RNG = np.random.default_rng(0)


def _random(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("operator", "gates", "states"), [("RNN", 1, 1), ("GRU", 3, 1), ("LSTM", 4, 2)])
def test_with_the_batch_first_everything_is_transposed(operator, gates, states) -> None:
    x, starts = _random(6, 3, 4), [_random(2, 3, 5) for _ in range(states)]
    fixed = [_random(2, gates * 5, 4), _random(2, gates * 5, 5), _random(2, 2 * gates * 5), np.int32([6, 1, 3])]
    attributes = {"hidden_size": 5, "direction": "bidirectional"}
    plain = run_node(operator, x, *fixed, *starts, outputs=1 + states, **attributes)
    turned = run_node(
        operator,
        x.swapaxes(0, 1),
        *fixed,
        *(s.swapaxes(0, 1) for s in starts),
        outputs=1 + states,
        layout=1,
        **attributes,
    )
    np.testing.assert_allclose(turned[0], plain[0].transpose(2, 0, 1, 3), rtol=1e-5)
    for got, want in zip(turned[1:], plain[1:], strict=True):
        np.testing.assert_allclose(got, want.swapaxes(0, 1), rtol=1e-5)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"activations": ["Sinus"]}, "activation 'Sinus'"),
        ({"activations": ["ScaledTanh"], "activation_alpha": [1.0]}, "without alpha and beta"),
        ({"direction": "sideways"}, "sideways|contradicts"),
    ],
)
def test_what_is_not_said_in_full_is_refused(attributes, message) -> None:
    with pytest.raises(LoadError, match=message):
        run_node("RNN", _random(2, 1, 1), _random(1, 1, 1), _random(1, 1, 1), hidden_size=1, **attributes)


def test_eight_bit_weights_stay_close_to_the_layer_they_stand_for() -> None:
    x, scale = _random(4, 2, 3), np.float32([0.01])
    w, r = (_RNG.integers(-60, 60, (1, n, 20)).astype(np.int8) for n in (3, 5))
    zero = np.int8([0])
    small = run_node(
        "DynamicQuantizeLSTM", x, w, r, None, None, None, None, None, scale, zero, scale, zero, outputs=3,
        domain="com.microsoft", hidden_size=5,
    )  # fmt: skip
    wide = [(m.astype(np.float32) * 0.01).swapaxes(1, 2) for m in (w, r)]
    exact = run_node("LSTM", x, *wide, outputs=3, hidden_size=5)
    # One step of x's eight bits, times the largest sum of weights, is the size of an error.
    step = float(np.ptp(x)) / 255 * 0.6 * 3
    for got, want in zip(small, exact, strict=True):
        np.testing.assert_allclose(got, want, atol=2 * step)
