"""Steps that send nothing: pad, slice, each device's own slice, and the step from a whole value to a partial one.

Floor: reshard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hlosharding.cost import Machine
from hlosharding.ir import Instruction, Shape
from hlosharding.reshard.layout import Dims, Table
from hlosharding.spmd import Emitter, Groups, identity

# ---- what every step of a plan answers: what it does to the local arrays of all devices, its HLO, bytes and price
#
# A step knows local sizes, device groups and tables; nothing of shardings.
#
# `apply` is the meaning in numpy over the local arrays of all devices; `emit` writes the same as local HLO.  Bytes
# are what each device receives, padding included (of an all-reduce over g: 2(g-1)/g of the buffer).


Pairs = tuple[tuple[int, int], ...]
"""(source device, target device)"""
Tiles = Sequence[npt.NDArray[Any]]
"""[device]: its local array"""


class Step:
    """One move of all devices; those that send nothing, or leave tiles as large as they are, keep the defaults."""

    __slots__ = ()

    def result(self, local: Shape) -> Shape:
        """The local shape afterwards."""
        return local

    def apply(self, tiles: Tiles) -> list[npt.NDArray[Any]]:
        """The local arrays of all devices afterwards."""
        raise NotImplementedError

    def emit(self, emitter: Emitter, x: Instruction) -> Instruction:
        """Write the step as local HLO."""
        raise NotImplementedError

    def received_bytes(self, local: Shape, num_devices: int) -> npt.NDArray[np.float64]:
        """[device]: bytes received, for a local shape before the step."""
        return np.zeros(num_devices)

    def mean_bytes(self, local: Shape, num_devices: int) -> float:
        """Mean of `received_bytes` over devices."""
        return 0.0

    def seconds(self, local: Shape, machine: Machine) -> float:
        """Predicted time, for a local shape before the step."""
        return 0.0

    def wire_seconds(self, local: Shape, machine: Machine) -> float:
        """Of that what the collectives take: as a program, where kernels disappear into others, no step takes less."""
        return self.seconds(local, machine)

    def rename_devices(self, names: Table) -> Step:
        """The step as taken by other devices: what device d did, `names[d]` does.  Default: all do the same."""
        return self

    def buffer_bytes(self, local: Shape) -> int:
        """Bytes alive while the step runs."""
        return local.byte_size + self.result(local).byte_size


def renamed_tables(tables: tuple[Dims, ...], names: Table) -> tuple[Dims, ...]:
    """Tables over devices, for devices of other names."""
    # The inverse: device `names[d]` finds what d had.
    order = np.argsort(names).tolist()
    return tuple(tuple(table[d] for d in order) for table in tables)


def renamed_groups(groups: Groups, names: Table) -> Groups:
    """Groups (or pairs) of devices, for devices of other names.

    >>> renamed_groups(((0, 1), (2, 3)), np.array([3, 2, 1, 0]))
    ((3, 2), (1, 0))
    """
    return tuple(tuple(row) for row in names[np.array(groups)].tolist())


def renamed_pairs(pairs: Pairs, names: Table) -> Pairs:
    """Pairs of devices of other names, in order of the targets."""
    return tuple(sorted(((int(names[s]), int(names[t])) for s, t in pairs), key=lambda pair: pair[1]))


def shorten(values: Sequence[Any], most: int = 8) -> str:
    """The first values, and how many there are.

    >>> shorten([1, 2, 3], most=2)
    '1, 2, ... (3)'
    """
    shown = ", ".join(map(str, values[:most]))
    return shown if len(values) <= most else f"{shown}, ... ({len(values)})"


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
