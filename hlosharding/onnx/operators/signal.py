"""Fourier transforms, and the windows and matrices that go with them.

Floor: onnx.  Complex numbers are pairs in a last dim of 2, as in ONNX; windows are constants.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from hlosharding.errors import LoadError
from hlosharding.onnx.budget import charge_array
from hlosharding.onnx.element_types import dtype_of
from hlosharding.onnx.operators.table import operator


def _as_complex(x: Any) -> Any:
    """A tensor [..., 1 or 2] as one of real or complex numbers; narrow types are widened."""
    wide = jnp.asarray(x).astype(jnp.promote_types(x.dtype, jnp.float32))
    return wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]


def _as_pairs(x: Any, dtype: Any) -> Any:
    return jnp.stack([jnp.real(x), jnp.imag(x)], -1).astype(dtype)


def _transform(x: Any, length: int, axis: int, *, onesided: bool) -> Any:
    """Forwards; onesided gives the first half and one, all there is to say of a real signal."""
    if not onesided:
        return jnp.fft.fft(x, length, axis)
    if jnp.iscomplexobj(x):
        raise LoadError("a onesided transform of complex numbers")
    return jnp.fft.rfft(x, length, axis)


@operator("DFT", 20, static="dft_length axis")
def _dft(x: Any, dft_length: Any = None, axis: Any = None, *, inverse: int = 0, onesided: int = 0) -> Any:
    dim = (-2 if axis is None else int(axis.reshape(()))) % x.ndim
    back_to_real = bool(inverse and onesided)
    size = x.shape[dim]
    length = int(dft_length.reshape(())) if dft_length is not None else 2 * (size - 1) if back_to_real else size
    numbers = _as_complex(x)
    if back_to_real:
        return jnp.fft.irfft(numbers, length, dim)[..., None].astype(x.dtype)
    if inverse:
        return _as_pairs(jnp.fft.ifft(numbers, length, dim), x.dtype)
    return _as_pairs(_transform(numbers, length, dim, onesided=bool(onesided)), x.dtype)


@operator("STFT", 17, static="frame_step frame_length")
def _stft(x: Any, frame_step: Any, window: Any = None, frame_length: Any = None, *, onesided: int = 1) -> Any:
    numbers = _as_complex(x) if x.ndim == 3 else x
    given = numbers.shape[1] if window is None else window.shape[0]
    length = given if frame_length is None else int(frame_length.reshape(()))
    step = int(frame_step.reshape(()))
    count = 1 + (numbers.shape[1] - length) // step
    charge_array((count, length))
    frames = numbers[:, np.arange(count)[:, None] * step + np.arange(length)]
    if window is not None:
        frames = frames * jnp.asarray(window).astype(frames.dtype)
    return _as_pairs(_transform(frames, length, -1, onesided=bool(onesided)), x.dtype)


_COSINES: dict[str, tuple[float, ...]] = {
    "HannWindow": (0.5, -0.5),
    "HammingWindow": (25 / 46, -21 / 46),
    "BlackmanWindow": (0.42, -0.5, 0.08),
}
"""A window is a sum of cosines of 0, 1, 2 periods."""


def _entered(name: str, factors: tuple[float, ...]) -> None:
    @operator(name, 17, static="size")
    def _window(size: Any, *, output_datatype: int = 1, periodic: int = 1) -> Any:
        count = int(size.reshape(()))
        charge_array((count,))
        turns = 2 * np.pi * np.arange(count) / (count if periodic else count - 1)
        out = sum(factor * np.cos(n * turns) for n, factor in enumerate(factors))
        return np.asarray(out).astype(dtype_of(output_datatype))


for _name, _factors in _COSINES.items():
    _entered(_name, _factors)


@operator(
    "MelWeightMatrix", 17, static="num_mel_bins dft_length sample_rate lower_edge_hertz upper_edge_hertz"
)  # fmt: skip
def _mel_weight_matrix(
    num_mel_bins: Any, dft_length: Any, sample_rate: Any, lower_edge_hertz: Any, upper_edge_hertz: Any,
    *, output_datatype: int = 1,
) -> Any:  # fmt: skip
    count, length = int(num_mel_bins.reshape(())), int(dft_length.reshape(()))
    low, high = (2595 * np.log10(1 + float(edge.reshape(())) / 700) for edge in (lower_edge_hertz, upper_edge_hertz))
    charge_array((length // 2 + 1, count))
    mels = low + np.arange(count + 2) * ((high - low) / (count + 2))
    hertz = 700 * (10 ** (mels / 2595) - 1)
    bins = ((length + 1) * hertz // float(sample_rate.reshape(()))).astype(np.int64)
    left, centre, right = bins[:-2], bins[1:-1], bins[2:]
    places = np.arange(length // 2 + 1)[:, None]
    # Triangles; one without a left side is 1 at its top.
    rising = np.where(places <= centre, (places - left + (left == centre)) / np.maximum(1, centre - left), 0)
    falling = (right - places) / np.maximum(1, right - centre)
    out = np.where((places >= left) & (places <= centre), rising, 0)
    out = np.where((places >= centre) & (places < right), falling, out)
    return out.astype(dtype_of(output_datatype))
