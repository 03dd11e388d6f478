"""A round of a piecewise plan: windows of one size, each cut from a tile, sent by one permute, and put in its place.

Floor: reshard.  Tables of where each device cuts and places; who sends what is decided in `piecewise/`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hlosharding.reshard.layout import Dims, Table
from hlosharding.reshard.steps.local_steps import Pairs, renamed_pairs, renamed_tables

RESULT = -1
"""The operand of pieces that are cut from what a device has put together so far."""


@dataclass(frozen=True, slots=True)
class Round:
    """Windows of one size on their way: cut at `read[dim][device]`, sent along `pairs`, put at `write[dim][device]`."""

    sizes: Dims
    """Elements of the window; with steps between them, it spans more."""
    read: tuple[Dims, ...]
    write: tuple[Dims, ...]
    pairs: Pairs
    """(source, target), each device at most once on each side; a device that is no target keeps what it has."""
    real: tuple[Dims, ...] = ()
    """How much of the window counts, from its start: `real[dim][device]`; empty where all of it counts for all."""
    operands: Dims = ()
    """[device]: which operand it cuts from (or RESULT); empty where all cut from the first."""
    read_steps: Dims = ()
    """Per dim: every how many-th element is cut; empty for all."""
    write_steps: Dims = ()
    """Per dim: on every how many-th place they are put."""

    @property
    def is_local(self) -> bool:
        """Does nothing travel?"""
        return all(s == t for s, t in self.pairs)

    @property
    def targets(self) -> frozenset[int]:
        """Devices that get a piece."""
        return frozenset(t for _, t in self.pairs)

    @property
    def sources(self) -> tuple[int, ...]:
        """The operands that are cut from."""
        return tuple(sorted({self.operand(s) for s, _ in self.pairs}))

    def operand(self, device: int) -> int:
        """Which operand a device cuts from."""
        return self.operands[device] if self.operands else 0

    def by_operand(self) -> Iterator[tuple[int, Table, Table]]:
        """(operand, devices that cut from it, who gets their pieces)"""
        pairs = np.array(self.pairs, np.int64).reshape(-1, 2)
        number = np.array(self.operands or (0,) * (1 + int(pairs.max(initial=0))), np.int64)[pairs[:, 0]]
        for operand in self.sources:
            mine = pairs[number == operand]
            yield operand, mine[:, 0], mine[:, 1]

    def real_sizes(self, device: int) -> Dims:
        """Sizes of the piece that a target gets."""
        return tuple(table[device] for table in self.real) if self.real else self.sizes

    def rename_devices(self, names: Table) -> Round:
        """The same among devices of other names."""
        operands = renamed_tables((self.operands,), names)[0] if self.operands else ()
        return replace(
            self,
            read=renamed_tables(self.read, names),
            write=renamed_tables(self.write, names),
            pairs=renamed_pairs(self.pairs, names),
            real=renamed_tables(self.real, names),
            operands=operands,
        )

    @property
    def read_span(self) -> Dims:
        """Sizes of what is cut."""
        return _span(self.sizes, self.read_steps)

    @property
    def write_span(self) -> Dims:
        """Sizes of what is put."""
        return _span(self.sizes, self.write_steps)

    def read_overhang(self, dims: Dims, operand: int) -> Dims:
        """By how much windows stick out of an operand of sizes `dims`."""
        return _overhang(self.read, [s for s, _ in self.pairs if self.operand(s) == operand], self.read_span, dims)

    def write_overhang(self, dims: Dims) -> Dims:
        """By how much windows stick out of a result of sizes `dims`."""
        return _overhang(self.write, [t for _, t in self.pairs], self.write_span, dims)


def _span(sizes: Dims, steps: Dims) -> Dims:
    return tuple((size - 1) * step + 1 for size, step in zip(sizes, steps, strict=True)) if steps else sizes


def _overhang(tables: tuple[Dims, ...], devices: Sequence[int], span: Dims, dims: Dims) -> Dims:
    ends = (max((table[d] for d in devices), default=0) + size for table, size in zip(tables, span, strict=True))
    return tuple(max(0, end - size) for end, size in zip(ends, dims, strict=True))
