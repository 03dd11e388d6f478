"""Steps that send nothing: pad, slice, each device's own slice, and the step from a whole value to a partial one.

Floor: reshard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hlosharding.ir import Instruction, Shape
from hlosharding.reshard.layout import Dims, Table
from hlosharding.reshard.steps.step import Step, Tiles, renamed_tables, shorten
from hlosharding.spmd import Emitter, identity


@dataclass(frozen=True, slots=True)
class Pad(Step):
    """Grow at the end of each dim to `sizes`; what comes is padding."""

    sizes: Dims

    def result(self, local: Shape) -> Shape:
        return local.with_dims(self.sizes)

    def apply(self, tiles: Tiles) -> list[npt.NDArray[Any]]:
        return [np.pad(t, [(0, size - have) for size, have in zip(self.sizes, t.shape, strict=True)]) for t in tiles]

    def emit(self, emitter: Emitter, x: Instruction) -> Instruction:
        high = [size - have for size, have in zip(self.sizes, x.shape.dims, strict=True)]
        return emitter.pad(x, [0] * len(high), high)

    def __str__(self) -> str:
        return f"pad to {list(self.sizes)}"


@dataclass(frozen=True, slots=True)
class Slice(Step):
    """Keep the first `sizes` elements of each dim."""

    sizes: Dims

    def result(self, local: Shape) -> Shape:
        return local.with_dims(self.sizes)

    def apply(self, tiles: Tiles) -> list[npt.NDArray[Any]]:
        return [t[tuple(slice(0, size) for size in self.sizes)] for t in tiles]

    def emit(self, emitter: Emitter, x: Instruction) -> Instruction:
        return emitter.slice(x, [0] * len(self.sizes), self.sizes)

    def __str__(self) -> str:
        return f"slice to {list(self.sizes)}"


@dataclass(frozen=True, slots=True)
class DynamicSlice(Step):
    """Each device keeps `sizes` elements from its own place: `starts[dim][device]`."""

    starts: tuple[Dims, ...]
    sizes: Dims

    def result(self, local: Shape) -> Shape:
        return local.with_dims(self.sizes)

    def apply(self, tiles: Tiles) -> list[npt.NDArray[Any]]:
        return [t[_region(t.shape, [table[d] for table in self.starts], self.sizes)] for d, t in enumerate(tiles)]

    def emit(self, emitter: Emitter, x: Instruction) -> Instruction:
        return emitter.dynamic_slice(x, [emitter.per_device(table) for table in self.starts], self.sizes)

    def rename_devices(self, names: Table) -> Step:
        return replace(self, starts=renamed_tables(self.starts, names))

    def __str__(self) -> str:
        return f"each keeps its {list(self.sizes)}"


def _region(whole: Sequence[int], starts: Sequence[int], sizes: Dims) -> tuple[slice, ...]:
    """As XLA: starts are clamped so that the region fits."""
    clamped = (max(0, min(s, have - size)) for s, size, have in zip(starts, sizes, whole, strict=True))
    return tuple(slice(s, s + size) for s, size in zip(clamped, sizes, strict=True))


@dataclass(frozen=True, slots=True)
class Keep(Step):
    """Devices of `keeps` keep their values, the others hold the neutral element of `kind`: partial from whole."""

    keeps: tuple[bool, ...]
    kind: str

    def apply(self, tiles: Tiles) -> list[npt.NDArray[Any]]:
        nothing = identity(self.kind, Shape.from_dtype(tiles[0].dtype, ()))
        return [t if keep else np.full_like(t, nothing) for keep, t in zip(self.keeps, tiles, strict=True)]

    def emit(self, emitter: Emitter, x: Instruction) -> Instruction:
        chosen = emitter.per_device(tuple(int(keep) for keep in self.keeps))
        is_kept = emitter.compare(chosen, "NE", emitter.constant(np.int32(0)))
        return emitter.select(is_kept, x, emitter.full(identity(self.kind, x.shape), x.shape))

    def rename_devices(self, names: Table) -> Step:
        return replace(self, keeps=tuple(self.keeps[d] for d in np.argsort(names).tolist()))

    def __str__(self) -> str:
        keepers = shorten([d for d, keep in enumerate(self.keeps) if keep])
        return f"only devices {keepers} keep it, as a partial {self.kind}"
