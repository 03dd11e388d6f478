"""Images, signals, losses."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.support.onnxruntime.cases import F, RuntimeCase, case


def images() -> Iterator[RuntimeCase]:
    """Cases."""
    for mode in ("nearest", "linear", "cubic"):
        for where in ("half_pixel", "pytorch_half_pixel", "asymmetric", "half_pixel_symmetric"):
            for scales in ([1, 1, 0.6, 1.7], [1, 1, 2.0, 0.35]):
                yield case(
                    f"{mode}_{where}_{scales[2]}",
                    "Resize",
                    lambda d, scales=scales: [d.f(1, 1, 9, 10), None, F(scales)],
                    mode=mode,
                    coordinate_transformation_mode=where,
                )
        yield case(
            f"{mode}_align_corners",
            "Resize",
            lambda d: [d.f(1, 1, 5, 4), None, None, np.int64([1, 1, 3, 9])],
            mode=mode,
            coordinate_transformation_mode="align_corners",
        )
        for padding in ("zeros", "border", "reflection"):
            for corners in (0, 1):
                yield case(
                    f"grid_{mode}_{padding}_{corners}",
                    "GridSample",
                    lambda d: [d.f(1, 2, 5, 6), d.f(1, 4, 7, 2) * F(1.5)],
                    mode=mode,
                    padding_mode=padding,
                    align_corners=corners,
                )
    yield case(
        "cubic_inside",
        "Resize",
        lambda d: [d.f(1, 1, 9, 10), None, F([1, 1, 0.6, 1.7])],
        mode="cubic",
        exclude_outside=1,
        cubic_coeff_a=-0.5,
    )
    for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        yield case(
            f"nearest_{rounding}",
            "Resize",
            lambda d: [d.f(1, 1, 9, 10), None, F([1, 1, 0.6, 1.7])],
            mode="nearest",
            nearest_mode=rounding,
            coordinate_transformation_mode="asymmetric",
        )
    for mode in ("linear", "cubic"):
        yield case(
            f"{mode}_antialias",
            "Resize",
            lambda d: [d.f(1, 1, 9, 10), None, F([1, 1, 0.6, 0.35])],
            mode=mode,
            antialias=1,
            exclude_outside=1,
        )
    yield case("linear_3d", "Resize", lambda d: [d.f(1, 1, 4, 5, 6), None, F([1, 1, 2, 0.5, 1.5])], mode="linear")
    yield case(
        "linear_crop",
        "Resize",
        lambda d: [d.f(1, 2, 9, 10), F([0, 0, 0.1, -0.2, 1, 1, 0.9, 1.3]), None, np.int64([1, 2, 5, 7])],
        mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=7.0,
    )
    yield case(
        "grid_3d",
        "GridSample",
        lambda d: [d.f(1, 2, 4, 5, 6), d.f(1, 4, 3, 2, 3) * F(1.5)],
        mode="linear",
        padding_mode="reflection",
    )
    yield case("upsample_9", "Upsample", lambda d: [d.f(1, 1, 4, 5), F([1, 1, 2, 3])], opset=9, mode="linear")
    yield case("resize_10", "Resize", lambda d: [d.f(1, 1, 4, 5), F([1, 1, 2, 1.5])], opset=10, mode="linear")
    yield case(
        "resize_10_nearest", "Resize", lambda d: [d.f(1, 1, 4, 5), F([1, 1, 2.4, 1.5])], opset=10, mode="nearest"
    )


def signals_and_losses() -> Iterator[RuntimeCase]:
    """Cases."""
    yield case("dft", "DFT", lambda d: [d.f(3, 20, 2), np.int64(32), np.int64(1)])
    yield case("dft_half", "DFT", lambda d: [d.f(3, 20, 1), np.int64(16), np.int64(1)], onesided=1)
    yield case("dft_back", "DFT", lambda d: [d.f(3, 20, 2), np.int64(12), np.int64(-2)], inverse=1)
    yield case("stft", "STFT", lambda d: [d.f(2, 50, 1), np.int64(7), d.f(16), np.int64(16)])
    yield case("mel", "MelWeightMatrix", lambda d: [np.int64(20), np.int64(256), np.int64(16000), F(20), F(7000)])
    for window in ("Hann", "Hamming", "Blackman"):
        for periodic in (0, 1):
            yield case(f"{window}_{periodic}", f"{window}Window", lambda d: [np.int64(15)], periodic=periodic)
    yield case(
        "likelihood",
        "NegativeLogLikelihoodLoss",
        lambda d: [d.f(3, 5, 4), d.i32(0, 5, 3, 4).astype(np.int64), d.positive(5)],
        ignore_index=2,
        reduction="mean",
    )
    yield case(
        "entropy",
        "SoftmaxCrossEntropyLoss",
        lambda d: [d.f(3, 5, 4), np.int64([[0, -1, 2, 3], [1, 1, 1, -1], [4, 4, -1, 0]]), d.positive(5)],
        "y,p",
        ignore_index=-1,
    )
