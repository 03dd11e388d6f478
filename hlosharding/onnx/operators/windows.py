"""Windows that move over the spatial dims of images: how far they reach, and what is padded for them.

Floor: onnx.  Attributes as ONNX has them; what comes out is what `lax.reduce_window` and convolutions take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hlosharding.errors import LoadError
from hlosharding.onnx.budget import charge_array

Ints = Sequence[int] | None


@dataclass(frozen=True)
class Window:
    """One number per spatial dim."""

    sizes: tuple[int, ...]
    """Of the image."""
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    """Low and high, as the model asks for them."""
    counts: tuple[int, ...]
    """Of places where the window stands: the sizes of the result."""

    @property
    def extents(self) -> tuple[int, ...]:
        """How much of the image one window spans.

        >>> window_over((5,), (2,), dilations=(3,)).extents
        (4,)
        """
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def padding(self) -> tuple[tuple[int, int], ...]:
        """With the high side such that `counts` windows fit, and no more.

        >>> window_over((3,), (2,), strides=(2,), ceil_mode=1).padding
        ((0, 1),)
        """
        rows = zip(self.counts, self.strides, self.extents, self.sizes, self.pads, strict=True)
        return tuple(
            (low, (count - 1) * stride + extent - size - low) for count, stride, extent, size, (low, _) in rows
        )

    def places(self, dim: int) -> Any:
        """For each place of the window where its elements lie in the image, along one dim: int[count, kernel].

        >>> window_over((3,), (2,)).places(0).tolist()
        [[0, 1], [1, 2]]
        """
        charge_array((self.counts[dim], self.kernel[dim]))
        starts = np.arange(self.counts[dim]) * self.strides[dim] - self.pads[dim][0]
        return starts[:, None] + np.arange(self.kernel[dim]) * self.dilations[dim]


def window_over(
    sizes: Sequence[int], kernel: Sequence[int], *, auto_pad: str = "NOTSET", pads: Ints = None, strides: Ints = None,
    dilations: Ints = None, ceil_mode: int = 0,
) -> Window:  # fmt: skip
    """The window of a convolution or a pooling.  Raises LoadError for attributes that do not fit the image."""
    rank = len(sizes)
    window = Window(
        sizes=tuple(sizes),
        kernel=_per_dim("kernel_shape", kernel, rank),
        strides=_per_dim("strides", strides or [1] * rank, rank),
        dilations=_per_dim("dilations", dilations or [1] * rank, rank),
        pads=pair_pads(pads or [0] * (2 * rank), rank),
        counts=(),
    )
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        return _same(window, lower=auto_pad == "SAME_LOWER")
    if auto_pad == "VALID":
        window = replace(window, pads=((0, 0),) * rank)
    elif auto_pad != "NOTSET":
        raise LoadError(f"auto_pad {auto_pad!r} is not handled")
    return _fitted(window, bool(ceil_mode))


def pair_pads(pads: Sequence[int], rank: int) -> tuple[tuple[int, int], ...]:
    """ONNX's pads, all low ones first, as one pair per dim.

    >>> pair_pads([1, 2, 3, 4], 2)
    ((1, 3), (2, 4))
    """
    if len(pads) != 2 * rank:
        raise LoadError(f"{len(pads)} pads, where {rank} dims want {2 * rank}")
    return tuple(zip(pads[:rank], pads[rank:], strict=True))


def split_total(total: int, *, lower: bool) -> tuple[int, int]:
    """Padding shared between both sides; `lower`: the low side has the odd one.

    >>> split_total(3, lower=True), split_total(3, lower=False)
    ((2, 1), (1, 2))
    """
    small, large = total // 2, total - total // 2
    return (large, small) if lower else (small, large)


def _per_dim(what: str, numbers: Sequence[int], rank: int) -> tuple[int, ...]:
    if len(numbers) != rank or min(numbers, default=1) < 1:
        raise LoadError(f"{what} {list(numbers)}, where {rank} positive numbers are wanted")
    return tuple(numbers)


def _same(window: Window, *, lower: bool) -> Window:
    counts = tuple(-(-size // stride) for size, stride in zip(window.sizes, window.strides, strict=True))
    rows = zip(counts, window.strides, window.extents, window.sizes, strict=True)
    totals = [max(0, (count - 1) * stride + extent - size) for count, stride, extent, size in rows]
    return replace(window, counts=counts, pads=tuple(split_total(total, lower=lower) for total in totals))


def _fitted(window: Window, ceil: bool) -> Window:
    counts: list[int] = []
    for size, stride, extent, (low, high) in zip(
        window.sizes, window.strides, window.extents, window.pads, strict=True
    ):
        room = size + low + high - extent
        if room < 0:
            raise LoadError(f"a window of {extent} over a dim of {size} that is padded by {low} and {high}")
        count = (-(-room // stride) if ceil else room // stride) + 1
        # The last window starts inside the image or its low padding.
        counts.append(count - 1 if ceil and (count - 1) * stride >= size + low else count)
    return replace(window, counts=tuple(counts))
