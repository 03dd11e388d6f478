"""Numbers of few bits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.support.onnxruntime.cases import I8, MICROSOFT, OPSET, U8, Draw, F, RuntimeCase, case, microsoft


def quantized() -> Iterator[RuntimeCase]:
    """Cases."""
    yield microsoft(
        "qadd", "QLinearAdd", lambda d: [d.u8(4, 60), F(0.03), U8(120), d.u8(4, 60), F(0.05), U8(7), F(0.06), U8(100)]
    )
    yield microsoft(
        "qadd_wide", "QLinearAdd", lambda d: [d.i8(4, 60), F(0.03), I8(-3), d.i8(60), F(0.05), I8(7), F(0.06), I8(10)]
    )
    yield microsoft(
        "qmul", "QLinearMul", lambda d: [d.u8(4, 60), F(0.03), U8(120), d.u8(4, 60), F(0.05), U8(7), F(0.06), U8(100)]
    )
    yield microsoft(
        "qsigmoid", "QLinearSigmoid", lambda d: [np.arange(256, dtype=U8), F(0.05), U8(128), F(1 / 256), U8(0)]
    )
    yield microsoft(
        "qleaky", "QLinearLeakyRelu", lambda d: [np.arange(256, dtype=U8), F(0.05), U8(128), F(0.03), U8(40)], alpha=0.1
    )
    yield microsoft(
        "qconcat",
        "QLinearConcat",
        lambda d: [F(0.04), U8(10), d.u8(3, 4), F(0.03), U8(3), d.u8(3, 5), F(0.05), U8(9)],
        axis=1,
    )
    yield microsoft(
        "qwhere",
        "QLinearWhere",
        lambda d: [
            d.i32(0, 2, 2, 30).astype(bool),
            d.u8(2, 30),
            F(0.03),
            U8(3),
            d.u8(2, 30),
            F(0.05),
            U8(30),
            F(0.04),
            U8(10),
        ],
    )
    yield microsoft(
        "qglobal",
        "QLinearGlobalAveragePool",
        lambda d: [d.u8(2, 30, 5, 7), F(0.03), U8(3), F(0.02), U8(100)],
        channels_last=0,
    )
    yield microsoft(
        "qglobal_last",
        "QLinearGlobalAveragePool",
        lambda d: [d.i8(2, 5, 7, 30), F(0.03), I8(3), F(0.02), I8(10)],
        channels_last=1,
    )
    for padded in (0, 1):
        for ceil in (0, 1):
            yield microsoft(
                f"qaverage_{padded}{ceil}",
                "QLinearAveragePool",
                lambda d: [d.u8(2, 3, 8, 9), F(0.03), U8(3), F(0.02), U8(100)],
                kernel_shape=[3, 3],
                strides=[2, 2],
                pads=[1, 1, 1, 1],
                count_include_pad=padded,
                ceil_mode=ceil,
            )
    yield microsoft(
        "qaverage_last",
        "QLinearAveragePool",
        lambda d: [d.u8(2, 8, 9, 3), F(0.03), U8(3), F(0.02), U8(100)],
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        channels_last=1,
    )
    for name, attrs in (("", {"axis": 1, "softmax_opset": 13}), ("_flat", {"axis": 1, "softmax_opset": 12})):
        yield RuntimeCase(
            f"qsoftmax{name}",
            "QLinearSoftmax",
            tuple(map(np.asarray, (Draw("qsoftmax").u8(4, 5, 6), F(0.05), U8(128), F(1 / 256), U8(0)))),
            ("y",),
            MICROSOFT,
            OPSET,
            {"axis": attrs["axis"], "opset": attrs["softmax_opset"]},
        )
    yield microsoft("quantize_16", "QuantizeLinear", lambda d: [d.f(4, 20) * 10, F(0.001), np.uint16(30000)])
    yield microsoft(
        "dequantize_16",
        "DequantizeLinear",
        lambda d: [d.i32(-32768, 32768, 9, 5).astype(np.int16), d.positive(5), np.int16([1, 2, 3, 4, 5])],
        axis=1,
    )
    yield case("dynamic", "DynamicQuantizeLinear", lambda d: [d.f(4, 20)], "y,s,z")
    yield case("dynamic_positive", "DynamicQuantizeLinear", lambda d: [np.abs(d.f(4, 20)) + 1], "y,s,z")
    yield case("dynamic_zero", "DynamicQuantizeLinear", lambda d: [np.zeros((3, 4), F)], "y,s,z")


def quantized_products() -> Iterator[RuntimeCase]:
    """Cases."""
    yield microsoft(
        "qgemm",
        "QGemm",
        lambda d: [d.u8(6, 40), F(0.02), U8(100), d.i8(40, 9), F(0.01), I8(3), d.i32(-9000, 9000, 9), F(0.5), U8(120)],
    )
    yield microsoft(
        "qgemm_columns",
        "QGemm",
        lambda d: [
            d.u8(6, 40),
            F(0.02),
            U8(100),
            d.i8(9, 40),
            d.positive(9),
            np.zeros(9, I8),
            d.i32(-9000, 9000, 9),
            F(0.5),
            U8(120),
        ],
        transB=1,
    )
    yield microsoft(
        "qgemm_real",
        "QGemm",
        lambda d: [d.u8(6, 40), F(0.02), U8(100), d.u8(40, 9), F(0.01), U8(3), d.i32(-9000, 9000, 9)],
        alpha=0.5,
    )
    yield microsoft(
        "to_float",
        "MatMulIntegerToFloat",
        lambda d: [d.u8(2, 6, 40), d.i8(40, 9), F(0.02), d.positive(9), U8(7), np.zeros(9, I8), d.f(9)],
    )
    yield microsoft(
        "dynamic_product", "DynamicQuantizeMatMul", lambda d: [d.f(6, 40), d.i8(40, 9), F([0.02]), I8([3]), d.f(9)]
    )
    yield microsoft(
        "dynamic_columns", "DynamicQuantizeMatMul", lambda d: [d.f(2, 6, 40), d.u8(40, 9), d.positive(9), d.u8(9)]
    )
    yield case(
        "qmatmul_columns",
        "QLinearMatMul",
        lambda d: [d.u8(2, 6, 40), F(0.02), U8(100), d.i8(40, 9), d.positive(9), np.zeros(9, I8), F(0.5), U8(120)],
    )
    bias = {"group": 2, "pads": [1, 0, 1, 2], "strides": [2, 1]}
    yield case(
        "qconv",
        "QLinearConv",
        lambda d: [
            d.u8(2, 4, 8, 9),
            F(0.02),
            U8(100),
            d.i8(6, 2, 3, 3),
            F(0.02),
            I8(0),
            F(0.3),
            U8(120),
            d.i32(-9000, 9000, 6),
        ],
        **bias,
    )
    yield case(
        "qconv_channels",
        "QLinearConv",
        lambda d: [
            d.u8(2, 4, 8, 9),
            F(0.02),
            U8(100),
            d.i8(6, 2, 3, 3),
            d.positive(6),
            np.zeros(6, I8),
            F(0.3),
            U8(120),
            d.i32(-9000, 9000, 6),
        ],
        **bias,
    )
    yield microsoft(
        "qconv_last",
        "QLinearConv",
        lambda d: [d.u8(2, 8, 9, 4), F(0.02), U8(100), d.i8(6, 4, 3, 3), F(0.02), I8(0), F(0.3), U8(120)],
        channels_last=1,
        auto_pad="SAME_UPPER",
    )
    for bits in (2, 4, 8):
        sizes = {"K": 70, "N": 9, "bits": bits, "block_size": 32}
        yield microsoft(
            f"bits_{bits}",
            "MatMulNBits",
            lambda d, bits=bits: [d.f(3, 70), d.u8(9, 3, 4 * bits), d.positive(27)],
            **sizes,
        )
        yield microsoft(
            f"bits_{bits}_zero",
            "MatMulNBits",
            lambda d, bits=bits: [
                d.f(2, 3, 70),
                d.u8(9, 3, 4 * bits),
                d.positive(27),
                d.u8(9 * -(-3 * bits // 8)),
                None,
                d.f(9),
            ],
            **sizes,
        )
