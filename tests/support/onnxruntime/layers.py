"""ONNX Runtime's fused operators, and recurrent layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.support.onnxruntime.cases import Draw, RuntimeCase, case, microsoft


def fused() -> Iterator[RuntimeCase]:
    """Cases."""
    yield microsoft("gelu", "Gelu", lambda d: [d.f(3, 8)])
    yield microsoft("fast_gelu", "FastGelu", lambda d: [d.f(3, 8), d.f(8)])
    yield microsoft("quick_gelu", "QuickGelu", lambda d: [d.f(3, 8)], alpha=1.5)
    yield microsoft("bias_gelu", "BiasGelu", lambda d: [d.f(3, 8), d.f(8)])
    yield microsoft("matmul", "FusedMatMul", lambda d: [d.f(3, 8, 5), d.f(3, 4, 8)], alpha=0.3, transA=1, transB=1)
    yield microsoft("matmul_batch", "FusedMatMul", lambda d: [d.f(5, 3, 8), d.f(8, 3, 4)], transBatchA=1, transBatchB=1)
    yield microsoft(
        "matmul_both", "FusedMatMul", lambda d: [d.f(8, 2, 3, 5), d.f(2, 3, 4, 8)], transBatchA=1, transA=1, transB=1
    )
    for activation, parameters in (
        ("Relu", None),
        ("LeakyRelu", [0.2]),
        ("Clip", [-0.5, 0.5]),
        ("HardSigmoid", [0.1, 0.4]),
    ):
        more = {} if parameters is None else {"activation_params": parameters}
        yield microsoft(
            f"conv_{activation}",
            "FusedConv",
            lambda d: [d.f(1, 2, 5, 5), d.f(3, 2, 3, 3), d.f(3)],
            activation=activation,
            pads=[1, 1, 1, 1],
            **more,
        )
    yield microsoft(
        "conv_sum",
        "FusedConv",
        lambda d: [d.f(1, 2, 5, 5), d.f(3, 2, 3, 3), d.f(3), d.f(1, 3, 5, 5)],
        activation="Relu",
        pads=[1, 1, 1, 1],
    )
    yield microsoft(
        "gemm",
        "FusedGemm",
        lambda d: [d.f(3, 4), d.f(5, 4), d.f(5)],
        activation="LeakyRelu",
        activation_alpha=0.3,
        transB=1,
        alpha=0.5,
        beta=2.0,
    )
    yield microsoft(
        "skip",
        "SkipLayerNormalization",
        lambda d: [d.f(3, 5, 8), d.f(3, 5, 8), d.f(8), d.f(8), d.f(8)],
        "y,,,s",
        epsilon=1e-5,
    )
    yield microsoft(
        "skip_simplified",
        "SkipSimplifiedLayerNormalization",
        lambda d: [d.f(3, 5, 8), d.f(3, 5, 8), d.f(8), d.f(8)],
        "y,,,s",
        epsilon=1e-5,
    )
    yield microsoft(
        "embed",
        "EmbedLayerNormalization",
        lambda d: [
            d.i32(0, 11, 2, 5),
            d.i32(0, 2, 2, 5),
            d.f(11, 8),
            d.f(6, 8),
            d.f(2, 8),
            d.f(8),
            d.f(8),
            np.int32([[1, 1, 1, 0, 0], [1] * 5]),
        ],
        "y,m,s",
        epsilon=1e-5,
    )


def attention() -> Iterator[RuntimeCase]:
    """Cases."""
    mask = np.int32([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    masks: dict[str, Any] = {
        "none": None,
        "rows": mask,
        "lengths": np.int32([3, 5]),
        "full": Draw("full").i32(0, 2, 2, 5, 5),
    }
    for name, given in masks.items():
        yield microsoft(
            f"attention_{name}",
            "Attention",
            lambda d, given=given: [d.f(2, 5, 8), d.f(8, 24), d.f(24), given],
            num_heads=2,
        )
    yield microsoft(
        "attention_causal",
        "Attention",
        lambda d: [d.f(2, 5, 8), d.f(8, 24), d.f(24), mask],
        num_heads=2,
        unidirectional=1,
    )
    yield microsoft(
        "attention_bias",
        "Attention",
        lambda d: [d.f(2, 5, 8), d.f(8, 24), d.f(24), None, None, d.f(2, 2, 5, 5)],
        num_heads=2,
    )
    yield microsoft(
        "attention_sizes",
        "Attention",
        lambda d: [d.f(2, 5, 8), d.f(8, 28), d.f(28)],
        num_heads=2,
        qkv_hidden_sizes=[8, 8, 12],
        scale=0.2,
    )


_TIME, _BATCH, _IN, _HIDDEN = 6, 3, 4, 5
_GATES = {"RNN": (1, "y,h"), "GRU": (3, "y,h"), "LSTM": (4, "y,h,c")}


def _layer(
    name: str,
    operator: str,
    ways: int,
    *,
    lengths: bool = False,
    states: bool = False,
    peep: bool = False,
    **attrs: Any,
) -> RuntimeCase:
    gates, outputs = _GATES[operator]

    def inputs(d: Draw) -> list[Any]:
        weights = [d.f(ways, gates * _HIDDEN, _IN), d.f(ways, gates * _HIDDEN, _HIDDEN), d.f(ways, 2 * gates * _HIDDEN)]
        start = [d.f(ways, _BATCH, _HIDDEN) if states else None for _ in outputs.split(",")[1:]]
        return [
            d.f(_TIME, _BATCH, _IN),
            *weights,
            np.int32([6, 2, 4]) if lengths else None,
            *start,
            *([d.f(ways, 3 * _HIDDEN)] if peep else []),
        ]

    return case(name, operator, inputs, outputs, hidden_size=_HIDDEN, **attrs)


def recurrent() -> Iterator[RuntimeCase]:
    """Cases."""
    for operator in _GATES:
        for direction, ways in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
            yield _layer(f"{operator}_{direction}", operator, ways, lengths=True, states=True, direction=direction)
        yield _layer(f"{operator}_clip", operator, 2, states=True, direction="bidirectional", clip=0.3)
    yield _layer("GRU_linear", "GRU", 2, lengths=True, states=True, direction="bidirectional", linear_before_reset=1)
    yield _layer(
        "GRU_activations",
        "GRU",
        2,
        states=True,
        direction="bidirectional",
        activations=["HardSigmoid", "ScaledTanh", "Sigmoid", "LeakyRelu"],
        activation_alpha=[0.3, 1.2, 0.05],
        activation_beta=[0.4, 0.7],
    )
    yield _layer(
        "RNN_activations",
        "RNN",
        2,
        direction="bidirectional",
        activations=["Affine", "ThresholdedRelu"],
        activation_alpha=[0.3, 0.2],
        activation_beta=[0.1],
    )
    for activation in ("Relu", "Softplus", "Softsign", "Elu", "LeakyRelu", "HardSigmoid", "Sigmoid"):
        yield _layer(f"RNN_{activation}", "RNN", 1, activations=[activation])
    yield _layer("LSTM_peep", "LSTM", 2, lengths=True, states=True, peep=True, direction="bidirectional")
    yield _layer("LSTM_coupled", "LSTM", 1, states=True, peep=True, input_forget=1)
    yield _layer(
        "LSTM_activations",
        "LSTM",
        1,
        activations=["HardSigmoid", "Softsign", "Affine"],
        activation_alpha=[0.3, 0.5],
        activation_beta=[0.4, 0.1],
    )
