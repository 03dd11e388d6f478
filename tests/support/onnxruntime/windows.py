"""Convolutions and pooling."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.support.onnxruntime.cases import F, RuntimeCase, case


def windows() -> Iterator[RuntimeCase]:
    """Cases."""
    for pad in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        yield case(
            f"conv_{pad}",
            "Conv",
            lambda d: [d.f(1, 4, 6, 7), d.f(6, 2, 3, 2), d.f(6)],
            group=2,
            strides=[2, 1],
            auto_pad=pad,
        )
        yield case(
            f"transposed_{pad}",
            "ConvTranspose",
            lambda d: [d.f(1, 4, 4, 5), d.f(4, 3, 3, 4), d.f(6)],
            group=2,
            strides=[2, 3],
            auto_pad=pad,
        )
        yield case(
            f"maximum_{pad}",
            "MaxPool",
            lambda d: [d.f(1, 2, 6, 7)],
            "y,i",
            kernel_shape=[3, 2],
            strides=[2, 1],
            auto_pad=pad,
        )
        yield case(
            f"average_{pad}",
            "AveragePool",
            lambda d: [d.f(1, 2, 6, 7)],
            kernel_shape=[3, 2],
            strides=[2, 3],
            auto_pad=pad,
            count_include_pad=1,
        )
        yield case(
            f"norm_{pad}", "LpPool", lambda d: [d.f(1, 2, 6, 7)], kernel_shape=[3, 2], strides=[2, 3], auto_pad=pad, p=3
        )
    yield case("conv_1d", "Conv", lambda d: [d.f(2, 4, 9), d.f(6, 4, 3)], pads=[2, 0], strides=[2], dilations=[2])
    yield case(
        "conv_3d", "Conv", lambda d: [d.f(1, 4, 4, 5, 6), d.f(8, 1, 3, 2, 2), d.f(8)], group=4, pads=[1, 0, 1, 0, 1, 1]
    )
    yield case(
        "transposed_padded",
        "ConvTranspose",
        lambda d: [d.f(1, 4, 4, 5), d.f(4, 3, 3, 2)],
        strides=[3, 2],
        output_padding=[2, 1],
        pads=[1, 0, 0, 1],
    )
    yield case(
        "transposed_shape",
        "ConvTranspose",
        lambda d: [d.f(1, 4, 5, 6), d.f(4, 3, 3, 2)],
        strides=[3, 2],
        output_shape=[14, 13],
    )
    yield case(
        "transposed_upper",
        "ConvTranspose",
        lambda d: [d.f(1, 4, 5, 6), d.f(4, 3, 3, 2)],
        strides=[3, 2],
        output_shape=[14, 11],
        auto_pad="SAME_UPPER",
    )
    yield case(
        "transposed_1d",
        "ConvTranspose",
        lambda d: [d.f(2, 4, 5), d.f(4, 3, 4)],
        strides=[3],
        dilations=[2],
        pads=[4, 3],
    )
    yield case(
        "transposed_3d", "ConvTranspose", lambda d: [d.f(1, 2, 3, 2, 3), d.f(2, 2, 2, 3, 2)], strides=[2, 1, 2], group=2
    )
    yield case(
        "maximum_ceil",
        "MaxPool",
        lambda d: [d.f(1, 2, 9, 10)],
        "y,i",
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1, 0, 0, 1],
        ceil_mode=1,
    )
    yield case(
        "maximum_order",
        "MaxPool",
        lambda d: [d.f(1, 2, 5, 6, 7)],
        "y,i",
        kernel_shape=[2, 3, 2],
        strides=[1, 2, 2],
        pads=[1, 1, 0, 0, 1, 1],
        storage_order=1,
    )
    yield case(
        "maximum_ties",
        "MaxPool",
        lambda d: [np.ones((1, 2, 5, 6), F)],
        "y,i",
        kernel_shape=[2, 3],
        pads=[1, 1, 0, 0],
        dilations=[2, 1],
    )
    yield case("maximum_whole", "MaxPool", lambda d: [d.i8(1, 2, 5, 6)], kernel_shape=[2, 3], pads=[1, 1, 0, 0])
    for padded in (0, 1):
        yield case(
            f"average_ceil_{padded}",
            "AveragePool",
            lambda d: [d.f(1, 2, 9, 11)],
            kernel_shape=[3, 2],
            strides=[3, 3],
            pads=[1, 1, 1, 1],
            dilations=[2, 3],
            ceil_mode=1,
            count_include_pad=padded,
        )
    yield case(
        "norm_ceil",
        "LpPool",
        lambda d: [d.f(1, 2, 9, 10)],
        kernel_shape=[3, 4],
        strides=[2, 3],
        pads=[1, 0, 0, 1],
        ceil_mode=1,
    )
    yield case(
        "to_image",
        "Col2Im",
        lambda d: [d.f(2, 18, 12), np.int64([5, 6]), np.int64([2, 3])],
        dilations=[2, 1],
        pads=[0, 1, 1, 0],
        strides=[1, 2],
    )
