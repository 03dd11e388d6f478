"""Values of an image between its elements.

Floor: onnx.  Along each dim a place is a few elements (taps) with weights; taps outside the image count as zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

CUBIC = -0.75
"""The coefficient of cubic interpolation that ONNX takes where a model gives none."""


def sample_image(image: Any, places: Sequence[Any], weights: Sequence[Any]) -> Any:
    """Weighted sums of an image [C, *S] at places: per dim of S ints [*P, taps] and as many weights; gives [C, *P]."""
    found = gather_taps(image, places)
    for dim in reversed(range(len(places))):
        weight = weights[dim]
        middle = (1,) * dim
        found = jnp.sum(found * jnp.reshape(weight, (*weight.shape[:-1], *middle, weight.shape[-1])), -1)
    return found.astype(image.dtype)


def gather_taps(image: Any, places: Sequence[Any]) -> Any:
    """The elements of an image [C, *S] at all taps of all dims, [C, *P, taps, taps, ...]; zero outside."""
    rank = len(places)
    wide = [_broadcastable(place, dim, rank) for dim, place in enumerate(places)]
    inside = True
    for place, size in zip(wide, image.shape[1:], strict=True):
        inside = inside & (place >= 0) & (place < size)
    # JAX counts negative indices from the end: taps outside are read at the border, and made zero after that.
    clamped = [jnp.clip(place, 0, size - 1) for place, size in zip(wide, image.shape[1:], strict=True)]
    return jnp.where(inside, image[(slice(None), *clamped)], jnp.zeros((), image.dtype))


def _broadcastable(place: Any, dim: int, rank: int) -> Any:
    taps = [1] * rank
    taps[dim] = place.shape[-1]
    return jnp.reshape(place, (*place.shape[:-1], *taps))


def linear_taps(coordinates: Any) -> tuple[Any, Any]:
    """The two elements around each coordinate, and their weights, in a new last dim.

    >>> places, weights = linear_taps(jnp.array([1.25]))
    >>> places.tolist(), weights.tolist()
    ([[1, 2]], [[0.75, 0.25]])
    """
    below = jnp.floor(coordinates)
    ratio = coordinates - below
    return _run_of(below, 0, 2), jnp.stack([1 - ratio, ratio], -1)


def cubic_taps(coordinates: Any) -> tuple[Any, Any]:
    """The four elements around each coordinate, and their weights, in a new last dim.

    >>> cubic_taps(jnp.array([0.5]))[1].tolist()
    [[-0.09375, 0.59375, 0.59375, -0.09375]]
    """
    below = jnp.floor(coordinates)
    ratio = coordinates - below
    weights = [cubic_kernel(ratio + 1), cubic_kernel(ratio), cubic_kernel(1 - ratio), cubic_kernel(2 - ratio)]
    return _run_of(below, -1, 3), jnp.stack(weights, -1)


def nearest_tap(coordinates: Any) -> tuple[Any, Any]:
    """The element nearest to each coordinate, of two the even one; its weight is 1.

    >>> nearest_tap(jnp.array([0.5, 1.5]))[0].tolist()
    [[0], [2]]
    """
    return jnp.round(coordinates).astype(jnp.int32)[..., None], jnp.ones((*coordinates.shape, 1), coordinates.dtype)


def _run_of(below: Any, first: int, end: int) -> Any:
    return below.astype(jnp.int32)[..., None] + jnp.arange(first, end, dtype=jnp.int32)


def linear_kernel(distance: Any) -> Any:
    """The weight of an element at a distance.

    >>> float(linear_kernel(-0.25))
    0.75
    """
    return jnp.maximum(0, 1 - abs(distance))


def cubic_kernel(distance: Any, a: float = CUBIC) -> Any:
    """The weight of an element at a distance, after R. G. Keys.

    >>> float(cubic_kernel(0.5)), float(cubic_kernel(2.0))
    (0.59375, 0.0)
    """
    x = abs(distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return jnp.where(x <= 1, near, jnp.where(x < 2, far, 0))
