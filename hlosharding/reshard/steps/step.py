"""What every step of a plan answers: what it does to the local arrays of all devices, its HLO, bytes and price.

Floor: reshard.  A step knows local sizes, device groups and tables; nothing of shardings.

`apply` is the meaning in numpy over the local arrays of all devices; `emit` writes the same as local HLO.  Bytes are
what each device receives, padding included (of an all-reduce over g: 2(g-1)/g of the buffer).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hlosharding.cost import Machine
from hlosharding.ir import Instruction, Shape
from hlosharding.reshard.layout import Dims, Table
from hlosharding.spmd import Emitter, Groups

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

    def rename_devices(self, names: Table) -> Step:
        """The step as taken by other devices: what device d did, `names[d]` does.  Default: all do the same."""
        return self

    def buffer_bytes(self, local: Shape) -> int:
        """Bytes alive while the step runs."""
        return local.byte_size + self.result(local).byte_size


def renamed_tables(tables: tuple[Dims, ...], names: Table) -> tuple[Dims, ...]:
    """Tables over devices, for devices of other names."""
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
