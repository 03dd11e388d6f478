"""Images cut, padded and sampled.

Floor: onnx.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hlosharding.errors import LoadError
from hlosharding.onnx.budget import charge_array
from hlosharding.onnx.operators.interpolation import cubic_taps, gather_taps, linear_taps, nearest_tap, sample_image
from hlosharding.onnx.operators.shapes import ints
from hlosharding.onnx.operators.table import MustBeKnown, operator

_TAPS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "nearest": nearest_tap,
    "linear": linear_taps,
    "cubic": cubic_taps,
}


@operator("CenterCropPad", 18, static="shape")
def _center_crop_pad(x: Any, shape: Any, *, axes: list[int] | None = None) -> Any:
    padding = [(0, 0, 0)] * x.ndim
    for axis, size in zip(range(x.ndim) if axes is None else axes, ints(shape), strict=True):
        more = size - x.shape[axis]
        # The odd element is the last one, also where elements are cut: there -3 // 2 would put it first.
        low = more // 2 if more > 0 else -(-more // 2)
        padding[axis] = low, more - low, 0
    return lax.pad(x, np.zeros((), x.dtype), padding)


@operator("AffineGrid", 20, static="size")
def _affine_grid(theta: Any, size: Any, *, align_corners: int = 0) -> Any:
    sizes = ints(size)[2:]
    charge_array((*sizes, len(sizes) + 1))
    # Coordinates from -1 to 1, of the last dim first.
    steps = [np.linspace(-1, 1, n) if align_corners else (2 * np.arange(n) + 1) / n - 1 for n in sizes]
    grid = np.meshgrid(*steps, indexing="ij")[::-1]
    points = np.stack([*grid, np.ones(sizes)], -1).astype(theta.dtype)
    return jnp.einsum("...k,nik->n...i", points, theta)


@operator("GridSample", 22)
def _grid_sample(
    x: Any, grid: Any, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Any:
    sizes = x.shape[2:]
    taps: list[tuple[Any, Any]] = []
    for dim, size in enumerate(sizes):
        place = grid[..., len(sizes) - 1 - dim]
        place = (place + 1) / 2 * (size - 1) if align_corners else ((place + 1) * size - 1) / 2
        places, weights = _TAPS[mode](_kept_inside(place, size, padding_mode, align_corners))
        taps.append((_tap_inside(places, size, padding_mode, align_corners), weights.astype(x.dtype)))
    return jax.vmap(sample_image)(x, [places for places, _ in taps], [weights for _, weights in taps])


def _kept_inside(place: Any, size: int, padding_mode: str, align_corners: int) -> Any:
    """Coordinates beyond the border, mirrored if the mode says so."""
    if padding_mode == "reflection":
        return _reflected(place, size, align_corners)
    return place


def _tap_inside(places: Any, size: int, padding_mode: str, align_corners: int) -> Any:
    """The taps of a coordinate near the border; those left outside count as zero."""
    if padding_mode == "border":
        return jnp.clip(places, 0, size - 1)
    if padding_mode == "reflection":
        return jnp.clip(_reflected(places.astype(jnp.float32), size, align_corners).astype(places.dtype), 0, size - 1)
    if padding_mode != "zeros":
        raise LoadError(f"padding_mode {padding_mode!r} is not handled")
    return places


def _reflected(place: Any, size: int, align_corners: int) -> Any:
    """Coordinates mirrored at the centres, or at the outer edges, of the first and last element."""
    low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
    if span == 0:
        return jnp.zeros_like(place)
    distance = jnp.mod(place - low, 2 * span)
    return low + jnp.minimum(distance, 2 * span - distance)


@operator("RoiAlign", 22, known="rois")
def _roi_align(
    x: Any, rois: Any, batch_indices: Any,
    *, coordinate_transformation_mode: str = "half_pixel", mode: str = "avg", output_height: int = 1,
    output_width: int = 1, sampling_ratio: int = 0, spatial_scale: float = 1.0,
) -> Any:  # fmt: skip
    half = {"half_pixel": 0.5, "output_half_pixel": 0.0}[coordinate_transformation_mode]
    if sampling_ratio <= 0 and not isinstance(rois, np.ndarray):
        raise MustBeKnown("rois")  # there are as many samples as each region is large
    corners = rois * spatial_scale - half
    taps: list[_Samples] = []
    for bins, low, high, dim in ((output_height, 1, 3, 2), (output_width, 0, 2, 3)):
        # Without half pixels a region that is smaller is made one element large, as ONNX's reference forces it.
        bin_size = (corners[:, high] - corners[:, low] if half else _at_least_one(corners, low, high)) / bins
        counts = np.full(rois.shape[0], sampling_ratio) if sampling_ratio > 0 else np.ceil(bin_size).astype(int)
        taps.append(_Samples.of(corners[:, low], bin_size, x.shape[dim], bins, np.maximum(counts, 0)))
    images = jnp.take(x, batch_indices, 0)
    if mode == "avg":
        return _averaged_bins(images, taps).astype(x.dtype)
    found = jax.vmap(_largest_in_bins)(images, [t.places for t in taps], [t.weights for t in taps])
    has_samples = np.all([t.shares.any(1) for t in taps], 0)
    return jnp.where(np.reshape(has_samples, (-1, 1, 1, 1)), found, 0).astype(x.dtype)


def _at_least_one(corners: Any, low: int, high: int) -> Any:
    length = corners[:, high] - corners[:, low]
    return np.maximum(length, 1) if isinstance(length, np.ndarray) else jnp.maximum(length, 1)


@dataclass(frozen=True)
class _Samples:
    """Where regions are sampled along one dim."""

    places: Any
    """[rois, bins, samples, 2]; a region with fewer samples than others takes its first one several times."""
    weights: Any
    """Likewise."""
    shares: np.ndarray
    """[rois, samples]: the part of each sample in the mean; 0 of repeated ones."""

    @classmethod
    def of(cls, low: Any, bin_size: Any, size: int, bins: int, counts: np.ndarray) -> _Samples:
        """`counts`: of samples, per region."""
        most = max(counts.max(initial=0), 1)
        charge_array((len(counts), bins, most, 2))
        numbers = np.arange(most)
        is_own, total = numbers < counts[:, None], np.maximum(counts, 1)[:, None]
        inside_bin = (np.where(is_own, numbers, 0) + 0.5) / total
        steps = (np.arange(bins)[:, None] + inside_bin[:, None, :]).astype(low.dtype)
        place = low[:, None, None] + steps * bin_size[:, None, None]
        places, weights = linear_taps(jnp.clip(place, 0, size - 1))
        # Up to one element outside a sample is the border's, beyond it is zero: so ONNX's reference has it.
        is_near = (place >= -1) & (place <= size)
        return cls(jnp.minimum(places, size - 1), jnp.where(is_near[..., None], weights, 0), is_own / total)

    def means(self, size: int) -> Any:
        """[rois, bins, size]: how much of each element is in a bin's mean."""
        shared = self.weights * self.shares[:, None, :, None].astype(self.weights.dtype)
        is_there = self.places[..., None] == jnp.arange(size, dtype=self.places.dtype)
        return jnp.sum(jnp.where(is_there, shared[..., None], 0), (2, 3))


def _averaged_bins(images: Any, taps: list[_Samples]) -> Any:
    """Bilinear samples are products of both dims' weights: two matrix products, which can be split."""
    rows, columns = (tap.means(size) for tap, size in zip(taps, images.shape[2:], strict=True))
    return jnp.einsum("rchw,rph,rqw->rcpq", images, rows, columns, precision=lax.Precision.HIGHEST)


def _largest_in_bins(image: Any, places: Any, weights: Any) -> Any:
    """ONNX takes the largest of the weighted taps themselves, not of their sums."""
    (rows, columns), (over, across) = places, weights
    wide = [rows[:, None, :, None, :], columns[None, :, None, :, :]]
    shape = np.broadcast_shapes(*(place.shape[:-1] for place in wide))
    found = gather_taps(image, [jnp.broadcast_to(place, (*shape, 2)) for place in wide])
    weighted = found * over[:, None, :, None, :, None] * across[None, :, None, :, None, :]
    return jnp.max(weighted, (-4, -3, -2, -1))


@operator("MaxRoiPool", 22)
def _max_roi_pool(x: Any, rois: Any, *, pooled_shape: list[int], spatial_scale: float = 1.0) -> Any:
    corners = _rounded_away(rois[:, 1:] * spatial_scale)
    found = jnp.take(x, rois[:, 0].astype(jnp.int32), 0)
    for dim, bins in enumerate(pooled_shape):
        members = _bin_members(corners[:, 1 - dim], corners[:, 3 - dim], x.shape[2 + dim], bins)
        if dim == 0:
            wide = jnp.where(members[:, None, :, :, None], found[:, :, None, :, :], -jnp.inf)
        else:
            wide = jnp.where(members[:, None, None, :, :], found[:, :, :, None, :], -jnp.inf)
        found = jnp.max(wide, 3 + dim)
    return jnp.where(jnp.isneginf(found), 0, found).astype(x.dtype)


def _rounded_away(x: Any) -> Any:
    return jnp.sign(x) * jnp.floor(jnp.abs(x) + 0.5)


def _bin_members(low: Any, high: Any, size: int, bins: int) -> Any:
    """[rois, bins, size]: which elements lie in which bin; neighbouring bins may share one."""
    width = jnp.maximum(high - low + 1, 1) / bins
    numbers = jnp.arange(bins, dtype=low.dtype)
    first = jnp.floor(numbers * width[:, None]) + low[:, None]
    end = jnp.ceil((numbers + 1) * width[:, None]) + low[:, None]
    places = jnp.arange(size, dtype=low.dtype)
    return (places >= first[..., None]) & (places < end[..., None])
