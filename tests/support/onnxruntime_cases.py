"""Single ONNX nodes that ONNX Runtime was asked about, and the answers it gave.

`python -m tests.support.onnxruntime_cases` asks anew, where onnxruntime is installed (it is none of our dependencies);
the answers stand in `onnxruntime_answers.npz` beside this file, with the version that gave them.
Weights of eight bits are small, since ONNX Runtime's products of uint8 and int8 saturate on older x86 processors.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

_ANSWERS = Path(__file__).with_name("onnxruntime_answers.npz")
_MICROSOFT = "com.microsoft"
_OPSET = 22


@dataclass(frozen=True)
class RuntimeCase:
    """One node: its inputs (None: left out), attributes and outputs ("": not wanted)."""

    name: str
    operator: str
    inputs: tuple[Any, ...]
    outputs: tuple[str, ...]
    domain: str
    opset: int
    attributes: dict[str, Any]

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        """The inputs by name."""
        return {f"x{n}": value for n, value in enumerate(self.inputs) if value is not None}

    @property
    def model(self) -> Any:
        """As an `onnx.ModelProto`; inputs that decide shapes are graph inputs, too."""
        from onnx import helper

        names = ["" if value is None else f"x{n}" for n, value in enumerate(self.inputs)]
        node = helper.make_node(self.operator, names, self.outputs, domain=self.domain, **self.attributes)
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in self.feeds.items()
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in self.outputs if name]
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(_MICROSOFT, 1)]
        return helper.make_model(
            helper.make_graph([node], self.name, inputs, outputs), opset_imports=opsets, ir_version=10
        )


class Draw:
    """Random tensors of one case; the legacy generator gives the same numbers in every numpy."""

    def __init__(self, name: str) -> None:
        self._random = np.random.RandomState(zlib.crc32(name.encode()))

    def f(self, *shape: int) -> np.ndarray:
        """Numbers around zero."""
        return self._random.standard_normal(shape).astype(np.float32)

    def positive(self, *shape: int) -> np.ndarray:
        """Numbers from 0 to 0.02: scales."""
        return (self._random.random_sample(shape) * 0.02).astype(np.float32)

    def u8(self, *shape: int) -> np.ndarray:
        """All of uint8."""
        return self._random.randint(0, 256, shape).astype(np.uint8)

    def i8(self, *shape: int) -> np.ndarray:
        """The middle half of int8."""
        return self._random.randint(-63, 64, shape).astype(np.int8)

    def i32(self, low: int, high: int, *shape: int) -> np.ndarray:
        """Whole numbers from `low` to below `high`."""
        return self._random.randint(low, high, shape).astype(np.int32)


Inputs = Callable[[Draw], Sequence[Any]]


def _case(
    name: str, operator: str, inputs: Inputs, outputs: str = "y", domain: str = "", opset: int = _OPSET, **attrs: Any
) -> RuntimeCase:
    values = tuple(None if value is None else np.asarray(value) for value in inputs(Draw(name)))
    return RuntimeCase(name, operator, values, tuple(outputs.split(",")), domain, opset, attrs)


def _microsoft(name: str, operator: str, inputs: Inputs, outputs: str = "y", **attrs: Any) -> RuntimeCase:
    return _case(name, operator, inputs, outputs, _MICROSOFT, **attrs)


F, U8, I8 = np.float32, np.uint8, np.int8


def _quantized() -> Iterator[RuntimeCase]:
    yield _microsoft("qadd", "QLinearAdd", lambda d: [d.u8(4, 60), F(0.03), U8(120), d.u8(4, 60), F(0.05), U8(7), F(0.06), U8(100)])
    yield _microsoft("qadd_wide", "QLinearAdd", lambda d: [d.i8(4, 60), F(0.03), I8(-3), d.i8(60), F(0.05), I8(7), F(0.06), I8(10)])
    yield _microsoft("qmul", "QLinearMul", lambda d: [d.u8(4, 60), F(0.03), U8(120), d.u8(4, 60), F(0.05), U8(7), F(0.06), U8(100)])
    yield _microsoft("qsigmoid", "QLinearSigmoid", lambda d: [np.arange(256, dtype=U8), F(0.05), U8(128), F(1 / 256), U8(0)])
    yield _microsoft("qleaky", "QLinearLeakyRelu", lambda d: [np.arange(256, dtype=U8), F(0.05), U8(128), F(0.03), U8(40)], alpha=0.1)
    yield _microsoft("qconcat", "QLinearConcat", lambda d: [F(0.04), U8(10), d.u8(3, 4), F(0.03), U8(3), d.u8(3, 5), F(0.05), U8(9)], axis=1)
    yield _microsoft("qwhere", "QLinearWhere", lambda d: [d.i32(0, 2, 2, 30).astype(bool), d.u8(2, 30), F(0.03), U8(3), d.u8(2, 30), F(0.05), U8(30), F(0.04), U8(10)])
    yield _microsoft("qglobal", "QLinearGlobalAveragePool", lambda d: [d.u8(2, 30, 5, 7), F(0.03), U8(3), F(0.02), U8(100)], channels_last=0)
    yield _microsoft("qglobal_last", "QLinearGlobalAveragePool", lambda d: [d.i8(2, 5, 7, 30), F(0.03), I8(3), F(0.02), I8(10)], channels_last=1)
    for padded in (0, 1):
        for ceil in (0, 1):
            yield _microsoft(
                f"qaverage_{padded}{ceil}", "QLinearAveragePool", lambda d: [d.u8(2, 3, 8, 9), F(0.03), U8(3), F(0.02), U8(100)],
                kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=padded, ceil_mode=ceil,
            )
    yield _microsoft(
        "qaverage_last", "QLinearAveragePool", lambda d: [d.u8(2, 8, 9, 3), F(0.03), U8(3), F(0.02), U8(100)],
        kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], channels_last=1,
    )
    for name, attrs in (("", {"axis": 1, "softmax_opset": 13}), ("_flat", {"axis": 1, "softmax_opset": 12})):
        yield RuntimeCase(
            f"qsoftmax{name}", "QLinearSoftmax",
            tuple(map(np.asarray, (Draw("qsoftmax").u8(4, 5, 6), F(0.05), U8(128), F(1 / 256), U8(0)))),
            ("y",), _MICROSOFT, _OPSET, {"axis": attrs["axis"], "opset": attrs["softmax_opset"]},
        )
    yield _microsoft("quantize_16", "QuantizeLinear", lambda d: [d.f(4, 20) * 10, F(0.001), np.uint16(30000)])
    yield _microsoft("dequantize_16", "DequantizeLinear", lambda d: [d.i32(-32768, 32768, 9, 5).astype(np.int16), d.positive(5), np.int16([1, 2, 3, 4, 5])], axis=1)
    yield _case("dynamic", "DynamicQuantizeLinear", lambda d: [d.f(4, 20)], "y,s,z")
    yield _case("dynamic_positive", "DynamicQuantizeLinear", lambda d: [np.abs(d.f(4, 20)) + 1], "y,s,z")
    yield _case("dynamic_zero", "DynamicQuantizeLinear", lambda d: [np.zeros((3, 4), F)], "y,s,z")


def _quantized_products() -> Iterator[RuntimeCase]:
    yield _microsoft("qgemm", "QGemm", lambda d: [d.u8(6, 40), F(0.02), U8(100), d.i8(40, 9), F(0.01), I8(3), d.i32(-9000, 9000, 9), F(0.5), U8(120)])
    yield _microsoft("qgemm_columns", "QGemm", lambda d: [d.u8(6, 40), F(0.02), U8(100), d.i8(9, 40), d.positive(9), np.zeros(9, I8), d.i32(-9000, 9000, 9), F(0.5), U8(120)], transB=1)
    yield _microsoft("qgemm_real", "QGemm", lambda d: [d.u8(6, 40), F(0.02), U8(100), d.u8(40, 9), F(0.01), U8(3), d.i32(-9000, 9000, 9)], alpha=0.5)
    yield _microsoft("to_float", "MatMulIntegerToFloat", lambda d: [d.u8(2, 6, 40), d.i8(40, 9), F(0.02), d.positive(9), U8(7), np.zeros(9, I8), d.f(9)])
    yield _microsoft("dynamic_product", "DynamicQuantizeMatMul", lambda d: [d.f(6, 40), d.i8(40, 9), F([0.02]), I8([3]), d.f(9)])
    yield _microsoft("dynamic_columns", "DynamicQuantizeMatMul", lambda d: [d.f(2, 6, 40), d.u8(40, 9), d.positive(9), d.u8(9)])
    yield _case("qmatmul_columns", "QLinearMatMul", lambda d: [d.u8(2, 6, 40), F(0.02), U8(100), d.i8(40, 9), d.positive(9), np.zeros(9, I8), F(0.5), U8(120)])
    bias = {"group": 2, "pads": [1, 0, 1, 2], "strides": [2, 1]}
    yield _case("qconv", "QLinearConv", lambda d: [d.u8(2, 4, 8, 9), F(0.02), U8(100), d.i8(6, 2, 3, 3), F(0.02), I8(0), F(0.3), U8(120), d.i32(-9000, 9000, 6)], **bias)
    yield _case("qconv_channels", "QLinearConv", lambda d: [d.u8(2, 4, 8, 9), F(0.02), U8(100), d.i8(6, 2, 3, 3), d.positive(6), np.zeros(6, I8), F(0.3), U8(120), d.i32(-9000, 9000, 6)], **bias)
    yield _microsoft("qconv_last", "QLinearConv", lambda d: [d.u8(2, 8, 9, 4), F(0.02), U8(100), d.i8(6, 4, 3, 3), F(0.02), I8(0), F(0.3), U8(120)], channels_last=1, auto_pad="SAME_UPPER")
    for bits in (2, 4, 8):
        sizes = {"K": 70, "N": 9, "bits": bits, "block_size": 32}
        yield _microsoft(f"bits_{bits}", "MatMulNBits", lambda d, bits=bits: [d.f(3, 70), d.u8(9, 3, 4 * bits), d.positive(27)], **sizes)
        yield _microsoft(
            f"bits_{bits}_zero", "MatMulNBits",
            lambda d, bits=bits: [d.f(2, 3, 70), d.u8(9, 3, 4 * bits), d.positive(27), d.u8(9 * -(-3 * bits // 8)), None, d.f(9)], **sizes,
        )


def _fused() -> Iterator[RuntimeCase]:
    yield _microsoft("gelu", "Gelu", lambda d: [d.f(3, 8)])
    yield _microsoft("fast_gelu", "FastGelu", lambda d: [d.f(3, 8), d.f(8)])
    yield _microsoft("quick_gelu", "QuickGelu", lambda d: [d.f(3, 8)], alpha=1.5)
    yield _microsoft("bias_gelu", "BiasGelu", lambda d: [d.f(3, 8), d.f(8)])
    yield _microsoft("matmul", "FusedMatMul", lambda d: [d.f(3, 8, 5), d.f(3, 4, 8)], alpha=0.3, transA=1, transB=1)
    yield _microsoft("matmul_batch", "FusedMatMul", lambda d: [d.f(5, 3, 8), d.f(8, 3, 4)], transBatchA=1, transBatchB=1)
    yield _microsoft("matmul_both", "FusedMatMul", lambda d: [d.f(8, 2, 3, 5), d.f(2, 3, 4, 8)], transBatchA=1, transA=1, transB=1)
    for activation, parameters in (("Relu", None), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.5]), ("HardSigmoid", [0.1, 0.4])):
        more = {} if parameters is None else {"activation_params": parameters}
        yield _microsoft(f"conv_{activation}", "FusedConv", lambda d: [d.f(1, 2, 5, 5), d.f(3, 2, 3, 3), d.f(3)], activation=activation, pads=[1, 1, 1, 1], **more)
    yield _microsoft("conv_sum", "FusedConv", lambda d: [d.f(1, 2, 5, 5), d.f(3, 2, 3, 3), d.f(3), d.f(1, 3, 5, 5)], activation="Relu", pads=[1, 1, 1, 1])
    yield _microsoft("gemm", "FusedGemm", lambda d: [d.f(3, 4), d.f(5, 4), d.f(5)], activation="LeakyRelu", activation_alpha=0.3, transB=1, alpha=0.5, beta=2.0)
    yield _microsoft("skip", "SkipLayerNormalization", lambda d: [d.f(3, 5, 8), d.f(3, 5, 8), d.f(8), d.f(8), d.f(8)], "y,,,s", epsilon=1e-5)
    yield _microsoft("skip_simplified", "SkipSimplifiedLayerNormalization", lambda d: [d.f(3, 5, 8), d.f(3, 5, 8), d.f(8), d.f(8)], "y,,,s", epsilon=1e-5)
    yield _microsoft(
        "embed", "EmbedLayerNormalization",
        lambda d: [d.i32(0, 11, 2, 5), d.i32(0, 2, 2, 5), d.f(11, 8), d.f(6, 8), d.f(2, 8), d.f(8), d.f(8), np.int32([[1, 1, 1, 0, 0], [1] * 5])], "y,m,s", epsilon=1e-5,
    )


def _attention() -> Iterator[RuntimeCase]:
    mask = np.int32([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    masks: dict[str, Any] = {"none": None, "rows": mask, "lengths": np.int32([3, 5]), "full": Draw("full").i32(0, 2, 2, 5, 5)}
    for name, given in masks.items():
        yield _microsoft(f"attention_{name}", "Attention", lambda d, given=given: [d.f(2, 5, 8), d.f(8, 24), d.f(24), given], num_heads=2)
    yield _microsoft("attention_causal", "Attention", lambda d: [d.f(2, 5, 8), d.f(8, 24), d.f(24), mask], num_heads=2, unidirectional=1)
    yield _microsoft("attention_bias", "Attention", lambda d: [d.f(2, 5, 8), d.f(8, 24), d.f(24), None, None, d.f(2, 2, 5, 5)], num_heads=2)
    yield _microsoft("attention_sizes", "Attention", lambda d: [d.f(2, 5, 8), d.f(8, 28), d.f(28)], num_heads=2, qkv_hidden_sizes=[8, 8, 12], scale=0.2)


_TIME, _BATCH, _IN, _HIDDEN = 6, 3, 4, 5
_GATES = {"RNN": (1, "y,h"), "GRU": (3, "y,h"), "LSTM": (4, "y,h,c")}


def _layer(name: str, operator: str, ways: int, *, lengths: bool = False, states: bool = False, peep: bool = False, **attrs: Any) -> RuntimeCase:
    gates, outputs = _GATES[operator]

    def inputs(d: Draw) -> list[Any]:
        weights = [d.f(ways, gates * _HIDDEN, _IN), d.f(ways, gates * _HIDDEN, _HIDDEN), d.f(ways, 2 * gates * _HIDDEN)]
        start = [d.f(ways, _BATCH, _HIDDEN) if states else None for _ in outputs.split(",")[1:]]
        return [
            d.f(_TIME, _BATCH, _IN), *weights, np.int32([6, 2, 4]) if lengths else None, *start,
            *([d.f(ways, 3 * _HIDDEN)] if peep else []),
        ]

    return _case(name, operator, inputs, outputs, hidden_size=_HIDDEN, **attrs)


def _recurrent() -> Iterator[RuntimeCase]:
    for operator in _GATES:
        for direction, ways in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
            yield _layer(f"{operator}_{direction}", operator, ways, lengths=True, states=True, direction=direction)
        yield _layer(f"{operator}_clip", operator, 2, states=True, direction="bidirectional", clip=0.3)
    yield _layer("GRU_linear", "GRU", 2, lengths=True, states=True, direction="bidirectional", linear_before_reset=1)
    yield _layer(
        "GRU_activations", "GRU", 2, states=True, direction="bidirectional",
        activations=["HardSigmoid", "ScaledTanh", "Sigmoid", "LeakyRelu"], activation_alpha=[0.3, 1.2, 0.05], activation_beta=[0.4, 0.7],
    )
    yield _layer(
        "RNN_activations", "RNN", 2, direction="bidirectional", activations=["Affine", "ThresholdedRelu"], activation_alpha=[0.3, 0.2],
        activation_beta=[0.1],
    )
    for activation in ("Relu", "Softplus", "Softsign", "Elu", "LeakyRelu", "HardSigmoid", "Sigmoid"):
        yield _layer(f"RNN_{activation}", "RNN", 1, activations=[activation])
    yield _layer("LSTM_peep", "LSTM", 2, lengths=True, states=True, peep=True, direction="bidirectional")
    yield _layer("LSTM_coupled", "LSTM", 1, states=True, peep=True, input_forget=1)
    yield _layer("LSTM_activations", "LSTM", 1, activations=["HardSigmoid", "Softsign", "Affine"], activation_alpha=[0.3, 0.5], activation_beta=[0.4, 0.1])


def _windows() -> Iterator[RuntimeCase]:
    for pad in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        yield _case(f"conv_{pad}", "Conv", lambda d: [d.f(1, 4, 6, 7), d.f(6, 2, 3, 2), d.f(6)], group=2, strides=[2, 1], auto_pad=pad)
        yield _case(f"transposed_{pad}", "ConvTranspose", lambda d: [d.f(1, 4, 4, 5), d.f(4, 3, 3, 4), d.f(6)], group=2, strides=[2, 3], auto_pad=pad)
        yield _case(f"maximum_{pad}", "MaxPool", lambda d: [d.f(1, 2, 6, 7)], "y,i", kernel_shape=[3, 2], strides=[2, 1], auto_pad=pad)
        yield _case(f"average_{pad}", "AveragePool", lambda d: [d.f(1, 2, 6, 7)], kernel_shape=[3, 2], strides=[2, 3], auto_pad=pad, count_include_pad=1)
        yield _case(f"norm_{pad}", "LpPool", lambda d: [d.f(1, 2, 6, 7)], kernel_shape=[3, 2], strides=[2, 3], auto_pad=pad, p=3)
    yield _case("conv_1d", "Conv", lambda d: [d.f(2, 4, 9), d.f(6, 4, 3)], pads=[2, 0], strides=[2], dilations=[2])
    yield _case("conv_3d", "Conv", lambda d: [d.f(1, 4, 4, 5, 6), d.f(8, 1, 3, 2, 2), d.f(8)], group=4, pads=[1, 0, 1, 0, 1, 1])
    yield _case("transposed_padded", "ConvTranspose", lambda d: [d.f(1, 4, 4, 5), d.f(4, 3, 3, 2)], strides=[3, 2], output_padding=[2, 1], pads=[1, 0, 0, 1])
    yield _case("transposed_shape", "ConvTranspose", lambda d: [d.f(1, 4, 5, 6), d.f(4, 3, 3, 2)], strides=[3, 2], output_shape=[14, 13])
    yield _case("transposed_upper", "ConvTranspose", lambda d: [d.f(1, 4, 5, 6), d.f(4, 3, 3, 2)], strides=[3, 2], output_shape=[14, 11], auto_pad="SAME_UPPER")
    yield _case("transposed_1d", "ConvTranspose", lambda d: [d.f(2, 4, 5), d.f(4, 3, 4)], strides=[3], dilations=[2], pads=[4, 3])
    yield _case("transposed_3d", "ConvTranspose", lambda d: [d.f(1, 2, 3, 2, 3), d.f(2, 2, 2, 3, 2)], strides=[2, 1, 2], group=2)
    yield _case("maximum_ceil", "MaxPool", lambda d: [d.f(1, 2, 9, 10)], "y,i", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 0, 0, 1], ceil_mode=1)
    yield _case("maximum_order", "MaxPool", lambda d: [d.f(1, 2, 5, 6, 7)], "y,i", kernel_shape=[2, 3, 2], strides=[1, 2, 2], pads=[1, 1, 0, 0, 1, 1], storage_order=1)
    yield _case("maximum_ties", "MaxPool", lambda d: [np.ones((1, 2, 5, 6), F)], "y,i", kernel_shape=[2, 3], pads=[1, 1, 0, 0], dilations=[2, 1])
    yield _case("maximum_whole", "MaxPool", lambda d: [d.i8(1, 2, 5, 6)], kernel_shape=[2, 3], pads=[1, 1, 0, 0])
    for padded in (0, 1):
        yield _case(
            f"average_ceil_{padded}", "AveragePool", lambda d: [d.f(1, 2, 9, 11)], kernel_shape=[3, 2], strides=[3, 3], pads=[1, 1, 1, 1],
            dilations=[2, 3], ceil_mode=1, count_include_pad=padded,
        )
    yield _case("norm_ceil", "LpPool", lambda d: [d.f(1, 2, 9, 10)], kernel_shape=[3, 4], strides=[2, 3], pads=[1, 0, 0, 1], ceil_mode=1)
    yield _case("to_image", "Col2Im", lambda d: [d.f(2, 18, 12), np.int64([5, 6]), np.int64([2, 3])], dilations=[2, 1], pads=[0, 1, 1, 0], strides=[1, 2])


def _images() -> Iterator[RuntimeCase]:
    for mode in ("nearest", "linear", "cubic"):
        for where in ("half_pixel", "pytorch_half_pixel", "asymmetric", "half_pixel_symmetric"):
            for scales in ([1, 1, 0.6, 1.7], [1, 1, 2.0, 0.35]):
                yield _case(
                    f"{mode}_{where}_{scales[2]}", "Resize", lambda d, scales=scales: [d.f(1, 1, 9, 10), None, F(scales)], mode=mode, coordinate_transformation_mode=where
                )
        yield _case(f"{mode}_align_corners", "Resize", lambda d: [d.f(1, 1, 5, 4), None, None, np.int64([1, 1, 3, 9])], mode=mode, coordinate_transformation_mode="align_corners")
        for padding in ("zeros", "border", "reflection"):
            for corners in (0, 1):
                yield _case(
                    f"grid_{mode}_{padding}_{corners}", "GridSample", lambda d: [d.f(1, 2, 5, 6), d.f(1, 4, 7, 2) * F(1.5)], mode=mode, padding_mode=padding, align_corners=corners
                )
    yield _case("cubic_inside", "Resize", lambda d: [d.f(1, 1, 9, 10), None, F([1, 1, 0.6, 1.7])], mode="cubic", exclude_outside=1, cubic_coeff_a=-0.5)
    for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        yield _case(
            f"nearest_{rounding}", "Resize", lambda d: [d.f(1, 1, 9, 10), None, F([1, 1, 0.6, 1.7])], mode="nearest", nearest_mode=rounding, coordinate_transformation_mode="asymmetric"
        )
    for mode in ("linear", "cubic"):
        yield _case(f"{mode}_antialias", "Resize", lambda d: [d.f(1, 1, 9, 10), None, F([1, 1, 0.6, 0.35])], mode=mode, antialias=1, exclude_outside=1)
    yield _case("linear_3d", "Resize", lambda d: [d.f(1, 1, 4, 5, 6), None, F([1, 1, 2, 0.5, 1.5])], mode="linear")
    yield _case(
        "linear_crop", "Resize", lambda d: [d.f(1, 2, 9, 10), F([0, 0, 0.1, -0.2, 1, 1, 0.9, 1.3]), None, np.int64([1, 2, 5, 7])], mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=7.0,
    )
    yield _case("grid_3d", "GridSample", lambda d: [d.f(1, 2, 4, 5, 6), d.f(1, 4, 3, 2, 3) * F(1.5)], mode="linear", padding_mode="reflection")
    yield _case("upsample_9", "Upsample", lambda d: [d.f(1, 1, 4, 5), F([1, 1, 2, 3])], opset=9, mode="linear")
    yield _case("resize_10", "Resize", lambda d: [d.f(1, 1, 4, 5), F([1, 1, 2, 1.5])], opset=10, mode="linear")
    yield _case("resize_10_nearest", "Resize", lambda d: [d.f(1, 1, 4, 5), F([1, 1, 2.4, 1.5])], opset=10, mode="nearest")


def _signals_and_losses() -> Iterator[RuntimeCase]:
    yield _case("dft", "DFT", lambda d: [d.f(3, 20, 2), np.int64(32), np.int64(1)])
    yield _case("dft_half", "DFT", lambda d: [d.f(3, 20, 1), np.int64(16), np.int64(1)], onesided=1)
    yield _case("dft_back", "DFT", lambda d: [d.f(3, 20, 2), np.int64(12), np.int64(-2)], inverse=1)
    yield _case("stft", "STFT", lambda d: [d.f(2, 50, 1), np.int64(7), d.f(16), np.int64(16)])
    yield _case("mel", "MelWeightMatrix", lambda d: [np.int64(20), np.int64(256), np.int64(16000), F(20), F(7000)])
    for window in ("Hann", "Hamming", "Blackman"):
        for periodic in (0, 1):
            yield _case(f"{window}_{periodic}", f"{window}Window", lambda d: [np.int64(15)], periodic=periodic)
    yield _case("likelihood", "NegativeLogLikelihoodLoss", lambda d: [d.f(3, 5, 4), d.i32(0, 5, 3, 4).astype(np.int64), d.positive(5)], ignore_index=2, reduction="mean")
    yield _case("entropy", "SoftmaxCrossEntropyLoss", lambda d: [d.f(3, 5, 4), np.int64([[0, -1, 2, 3], [1, 1, 1, -1], [4, 4, -1, 0]]), d.positive(5)], "y,p", ignore_index=-1)


@cache
def runtime_cases() -> dict[str, RuntimeCase]:
    """By name."""
    families = (
        _quantized, _quantized_products, _fused, _attention, _recurrent, _windows, _images, _signals_and_losses,
    )  # fmt: skip
    cases = [case for family in families for case in family()]
    assert len({case.name for case in cases}) == len(cases)
    return {case.name: case for case in cases}


@cache
def answers() -> dict[str, list[np.ndarray]]:
    """The outputs that ONNX Runtime gave, by case."""
    with np.load(_ANSWERS) as found:
        return {
            name: [found[f"{name}/{n}"] for n in range(sum(map(bool, case.outputs)))]
            for name, case in runtime_cases().items()
        }


def _record() -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    found: dict[str, np.ndarray] = {"onnxruntime": np.array(onnxruntime.__version__)}
    for name, case in runtime_cases().items():
        session = onnxruntime.InferenceSession(case.model.SerializeToString(), options, ["CPUExecutionProvider"])
        found |= {f"{name}/{n}": np.asarray(array) for n, array in enumerate(session.run(None, case.feeds))}
    np.savez_compressed(_ANSWERS, **found)


if __name__ == "__main__":
    _record()
