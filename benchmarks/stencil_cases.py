"""The programs of `benchmarks.stencils`, each with the bytes that its devices cannot do without.

A stencil says how many elements beyond its own tile a device must see, before and behind it along each dim: `Strips`.
Of other programs stands what their table of results has to move: the totals of all other tiles for a running sum, a
candidate of each tile for an arg-max, and so on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Dims = tuple[int, ...]
Needs = Callable[[Dims, Dims], float]
"""From the sizes of the first array and the tiles along each of its dims to bytes a device, mean over devices."""

STENCIL_LIMIT = 1.05
LINE, PLANE, SPACE = (65536,), (1024, 1024), (128, 128, 64)
TABLE = (4096, 64)


@dataclass(frozen=True, slots=True)
class Case:
    """A function of arrays that are split alike, dim 0 over the first mesh axis, dim 1 over the second."""

    name: str
    function: Callable[..., Any]
    shapes: tuple[Dims, ...]
    needs: Needs
    needed: str
    """In words."""
    limit: float | None = STENCIL_LIMIT
    """Of bytes over those needed; None: only shown."""
    splits: int = 2
    """So many dims are split, if there are as many mesh axes."""
    is_whole: bool = False
    """Is the result wanted on every device?"""


@dataclass(frozen=True, slots=True)
class Strips:
    """What a device sees of its neighbours: elements before and behind its tile, the same along all split dims."""

    before: int
    behind: int
    wraps: bool = False
    corners: bool = False

    def __call__(self, dims: Dims, tiles: Dims) -> float:
        """Float32 bytes of the strips."""
        received = sum(self._of_tile(place, dims, tiles) for place in product(*map(range, tiles)))
        return 4 * received / math.prod(tiles)

    def _of_tile(self, place: Dims, dims: Dims, tiles: Dims) -> int:
        own = [
            max(0, min(-(-n // t) * (p + 1), n) - -(-n // t) * p) for p, n, t in zip(place, dims, tiles, strict=True)
        ]
        more = [self._beyond(p, t) for p, t in zip(place, tiles, strict=True)]
        if self.corners:
            return math.prod(n + m for n, m in zip(own, more, strict=True)) - math.prod(own)
        return sum(m * math.prod(own[:d] + own[d + 1 :]) for d, m in enumerate(more))

    def _beyond(self, place: int, tiles: int) -> int:
        if tiles == 1:
            return 0
        return self.before * (self.wraps or place > 0) + self.behind * (self.wraps or place < tiles - 1)

    def __str__(self) -> str:
        return f"{self.before}+{self.behind}{' around' * self.wraps}{' with corners' * self.corners}"


def _stencil(name: str, shape: Dims, strips: Strips, function: Callable[..., Any], *others: Dims, **more: Any) -> Case:
    return Case(name, function, (shape, *others), strips, f"strips {strips}", **more)


def _other(name: str, shape: Dims, needed: str, needs: Needs, function: Callable[..., Any], **more: Any) -> Case:
    return Case(name, function, (shape,), needs, needed, splits=1, **more)


# ---- what the programs compute


def _laplacian(*arms: tuple[Any, Any], centre: Any) -> Any:
    return sum(low + high - 2 * centre for low, high in arms)


def _inner(u: Any) -> tuple[slice, ...]:
    return (slice(1, -1),) * u.ndim


def _star(u: Any) -> Any:
    """The Laplacian of the elements that are not at an edge."""
    inner = _inner(u)

    def arm(dim: int, part: slice) -> Any:
        return u[(*inner[:dim], part, *inner[dim + 1 :])]

    arms = [(arm(d, slice(None, -2)), arm(d, slice(2, None))) for d in range(u.ndim)]
    return _laplacian(*arms, centre=u[inner])


def _box(u: Any) -> Any:
    """The mean of each inner element and all around it."""
    parts = (slice(None, -2), slice(1, -1), slice(2, None))
    return sum(u[place] for place in product(*(parts,) * u.ndim)) / 3**u.ndim


def _rolled(u: Any) -> Any:
    arms = [(jnp.roll(u, 1, d), jnp.roll(u, -1, d)) for d in range(u.ndim)]
    return _laplacian(*arms, centre=u)


def _of_fourth_order(u: Any) -> Any:
    near, far = jnp.roll(u, 1) - jnp.roll(u, -1), jnp.roll(u, 2) - jnp.roll(u, -2)
    return (8 * near - far) / 12


def _padded(mode: str) -> Callable[[Any], Any]:
    return lambda u: u + 0.1 * _star(jnp.pad(u, 1, mode=mode))


def _pooled(u: Any) -> Any:
    return lax.reduce_window(u, -jnp.inf, lax.max, (3,) * u.ndim, (1,) * u.ndim, "SAME")


def _convolved(stride: int) -> Callable[..., Any]:
    def function(u: Any) -> Any:
        kernel = jnp.arange(9.0).reshape(1, 1, 3, 3)
        return lax.conv_general_dilated(u[None, None], kernel, (stride, stride), "SAME")[0, 0]

    return function


def _with_free_edges(u: Any) -> Any:
    return u.at[0].set(u[1]).at[-1].set(u[-2]).at[:, 0].set(u[:, 1]).at[:, -1].set(u[:, -2])


def _red_black(u: Any) -> Any:
    return u.at[1:-1:2].set((u[:-2:2] + u[2::2]) / 2)


def _recurrence(u: Any) -> Any:
    def step(left: Any, right: Any) -> Any:
        return left[0] * right[0], right[0] * left[1] + right[1]

    return lax.associative_scan(step, (jnp.cos(u), u))[1]


def _segments(u: Any) -> Any:
    return jax.ops.segment_sum(u, jnp.arange(u.shape[0]) * 7 % 512, 512)


def _totals(dims: Dims, tiles: Dims) -> float:
    return 4 * (tiles[0] - 1) * math.prod(dims[1:])


def _once(dims: Dims, tiles: Dims) -> float:
    return 4 * math.prod(dims) / tiles[0] * (tiles[0] - 1) / tiles[0]


_RUNNING = "the totals of all other tiles"
_ONCE = "its own tile, of all others"
_THERE_AND_BACK = "as whole columns, and back"

CASES = (
    _stencil("u.at[1:-1].add(star), 1-D", LINE, Strips(1, 1), lambda u: u.at[1:-1].add(0.1 * _star(u))),
    _stencil("u.at[1:-1].set(star), 1-D", LINE, Strips(1, 1), lambda u: u.at[1:-1].set(0.1 * _star(u))),
    _stencil("u.at[1:-1, 1:-1].add(star)", PLANE, Strips(1, 1), lambda u: u.at[_inner(u)].add(0.1 * _star(u))),
    _stencil("u.at[1:-1, 1:-1].set(box)", PLANE, Strips(1, 1, corners=True), lambda u: u.at[_inner(u)].set(_box(u))),
    _stencil("... .max(box), 1001 x 1003", (1001, 1003), Strips(1, 1, corners=True),
             lambda u: u.at[_inner(u)].max(_box(u))),
    _stencil("u.at[1:-1, ...].add(star), 3-D", SPACE, Strips(1, 1), lambda u: u.at[_inner(u)].add(0.1 * _star(u))),
    _stencil("zeros.at[1:-1].set(star)", PLANE, Strips(1, 1),
             lambda u: jnp.zeros_like(u).at[_inner(u)].set(_star(u))),
    _stencil("roll, 1-D", LINE, Strips(1, 1, wraps=True), _rolled),
    _stencil("roll, 2-D", PLANE, Strips(1, 1, wraps=True), _rolled),
    _stencil("roll, 3-D", SPACE, Strips(1, 1, wraps=True), _rolled),
    _stencil("roll by 1 and 2", LINE, Strips(2, 2, wraps=True), _of_fourth_order),
    _stencil("jnp.diff", LINE, Strips(0, 1), jnp.diff),
    _stencil("u[2:] - 2 u[1:-1] + u[:-2]", LINE, Strips(0, 2), _star),
    _stencil("pad(star, 1)", PLANE, Strips(1, 1), lambda u: jnp.pad(_star(u), 1)),
    _stencil("star of pad(u, constant)", PLANE, Strips(1, 1), _padded("constant")),
    _stencil("star of pad(u, edge)", PLANE, Strips(1, 1), _padded("edge")),
    _stencil("star of pad(u, reflect)", PLANE, Strips(1, 1), _padded("reflect")),
    _stencil("star of pad(u, wrap)", PLANE, Strips(1, 1, wraps=True), _padded("wrap")),
    _stencil("jnp.gradient", LINE, Strips(1, 1), jnp.gradient),
    _stencil("u.at[::2].add(v)", LINE, Strips(0, 0), lambda u, v: u.at[::2].add(v), (LINE[0] // 2,)),
    _stencil("u.at[1:-1:2].set(mean)", LINE, Strips(0, 1), _red_black),
    _stencil("u[::2] + u[1::2]", LINE, Strips(0, 0), lambda u: u[::2] + u[1::2]),
    _stencil("edges: u.at[0].set(u[1]) ...", PLANE, Strips(0, 0), _with_free_edges),
    _stencil("convolution 3x3", PLANE, Strips(1, 1, corners=True), _convolved(1)),
    _stencil("convolution 3x3, stride 2", PLANE, Strips(0, 1, corners=True), _convolved(2)),
    _stencil("largest of 3x3", PLANE, Strips(1, 1, corners=True), _pooled),
    _other("cumsum", TABLE, _RUNNING, _totals, lambda u: jnp.cumsum(u, 0)),
    _other("cumsum, 4001 rows", (4001, 64), _RUNNING, _totals, lambda u: jnp.cumsum(u, 0)),
    _other("cumprod", TABLE, _RUNNING, _totals, lambda u: jnp.cumprod(u, 0)),
    _other("cummax, reversed", TABLE, _RUNNING, _totals, lambda u: lax.cummax(u, 0, reverse=True)),
    _other("cumlogsumexp", TABLE, _RUNNING, _totals, lambda u: lax.cumlogsumexp(u, 0)),
    _other("associative_scan of pairs", TABLE, f"{_RUNNING}, twice", lambda d, t: 2 * _totals(d, t), _recurrence,
           limit=2.1),
    _other("sort of columns", TABLE, _THERE_AND_BACK, lambda d, t: 2 * _once(d, t), lambda u: jnp.sort(u, 0)),
    _other("sort of a line", LINE, _ONCE, _once, jnp.sort, limit=None),
    _other("top_k, 16", LINE, "16 candidates of each tile", lambda d, t: 128 * (t[0] - 1),
           lambda u: lax.top_k(u, 16), is_whole=True),
    _other("argmax", LINE, "a candidate of each tile", lambda d, t: 8 * (t[0] - 1), jnp.argmax, is_whole=True),
    _other("segment_sum", TABLE, "its own part of the sums, of all others",
           lambda d, t: 4 * 512 * d[1] * (t[0] - 1) / t[0], _segments),
    _other("fft of columns", TABLE, f"{_THERE_AND_BACK}, complex", lambda d, t: 3 * _once(d, t),
           lambda u: jnp.fft.fft(u, axis=0)),
    _other("fft of a line", LINE, f"{_ONCE}, complex", lambda d, t: 2 * _once(d, t), jnp.fft.fft, limit=None),
)  # fmt: skip


def arguments(case: Case) -> list[np.ndarray]:
    """Numbers to run a case on."""
    random = np.random.default_rng(0)
    return [random.standard_normal(shape).astype(np.float32) for shape in case.shapes]
