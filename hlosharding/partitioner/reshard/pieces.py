"""The step of the direct plan: a target tile put together from pieces, which arrive in rounds of one permute each.

Floor: partitioner/reshard.  Knows tables of where each device cuts and places; who sends what is decided in `direct`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hlosharding.cost import Machine, collective_time, op_time
from hlosharding.ir import Instruction, Shape
from hlosharding.partitioner.reshard.steps import Dims, Pairs, Step, Tiles

if TYPE_CHECKING:
    from hlosharding.partitioner.emitter import Emitter


@dataclass(frozen=True, slots=True)
class Round:
    """Windows of one size on their way: cut at `read[dim][device]`, sent along `pairs`, put at `write[dim][device]`."""

    sizes: Dims
    read: tuple[Dims, ...]
    write: tuple[Dims, ...]
    pairs: Pairs
    """(source, target), each device at most once on each side; a device that is no target keeps what it has."""
    real: tuple[Dims, ...] = ()
    """How much of the window counts, from its start: `real[dim][device]`; empty where all of it counts for all."""

    @property
    def is_local(self) -> bool:
        """Does nothing travel?"""
        return all(s == t for s, t in self.pairs)

    @property
    def targets(self) -> frozenset[int]:
        """Devices that get a piece."""
        return frozenset(t for _, t in self.pairs)

    def real_sizes(self, device: int) -> Dims:
        """Sizes of the piece that a target gets."""
        return tuple(table[device] for table in self.real) if self.real else self.sizes

    def overhang(self, dims: Dims, *, of_reads: bool) -> Dims:
        """By how much windows stick out of a tile of sizes `dims`."""
        tables = self.read if of_reads else self.write
        devices = [s for s, _ in self.pairs] if of_reads else [t for _, t in self.pairs]
        ends = (max(table[d] for d in devices) + size for table, size in zip(tables, self.sizes, strict=True))
        return tuple(max(0, end - size) for end, size in zip(ends, dims, strict=True))


@dataclass(frozen=True, slots=True)
class Pieces(Step):
    """The rounds, in order; together they write every real element of every target tile."""

    sizes: Dims
    rounds: tuple[Round, ...]

    def result(self, local: Shape) -> Shape:
        return local.with_dims(self.sizes)

    def apply(self, tiles: Tiles) -> list[npt.NDArray[Any]]:
        out = [np.zeros(self.sizes, t.dtype) for t in tiles]
        for turn in self.rounds:
            for s, t in turn.pairs:
                sizes = turn.real_sizes(t)
                out[t][_region(turn.write, t, sizes)] = tiles[s][_region(turn.read, s, sizes)]
        return out

    def emit(self, emitter: Emitter, x: Instruction) -> Instruction:
        if not self.rounds:
            return emitter.full(0, x.shape.with_dims(self.sizes))
        none = [0] * x.shape.rank
        x = emitter.pad(x, none, self._overhang(x.shape.dims, of_reads=True))
        margin = self._overhang(self.sizes, of_reads=False)
        grown = x.shape.with_dims(tuple(size + more for size, more in zip(self.sizes, margin, strict=True)))
        out: Instruction | None = None
        for turn in self.rounds:
            out = _emit_round(emitter, x, out, grown, turn)
        assert out is not None
        return emitter.slice(out, none, self.sizes)

    def _overhang(self, dims: Dims, *, of_reads: bool) -> Dims:
        each = [turn.overhang(dims, of_reads=of_reads) for turn in self.rounds]
        return tuple(max(column) for column in zip(*each, strict=True))

    def received_bytes(self, local: Shape, num_devices: int) -> npt.NDArray[np.float64]:
        out = np.zeros(num_devices)
        for turn in self.rounds:
            out[[t for s, t in turn.pairs if s != t]] += local.with_dims(turn.sizes).byte_size
        return out

    def seconds(self, local: Shape, machine: Machine) -> float:
        sent = [turn for turn in self.rounds if not turn.is_local]
        return sum(round_seconds(local.with_dims(turn.sizes).byte_size, turn.pairs, machine) for turn in sent)

    def buffer_bytes(self, local: Shape) -> int:
        largest = max((local.with_dims(turn.sizes).byte_size for turn in self.rounds), default=0)
        return local.byte_size + self.result(local).byte_size + 2 * largest

    def __str__(self) -> str:
        sent = [turn for turn in self.rounds if not turn.is_local]
        sizes = sorted({turn.sizes for turn in sent}, reverse=True)
        shown = " or ".join(str(list(s)) for s in sizes[:4]) + (f" or ... ({len(sizes)})" if len(sizes) > 4 else "")
        return f"{len(sent)} rounds of pieces of {shown}" if sent else "each takes its part"


def round_seconds(nbytes: int, pairs: Pairs, machine: Machine) -> float:
    """Time of one round: the permute, and a small kernel each for cutting and placing."""
    local = op_time(0, 2 * nbytes, "f32", machine, matrix=False)
    return collective_time("collective-permute", nbytes, 2, pairs, machine) + 2 * local


def _region(tables: tuple[Dims, ...], device: int, sizes: Dims) -> tuple[slice, ...]:
    return tuple(slice(table[device], table[device] + size) for table, size in zip(tables, sizes, strict=True))


def _emit_round(emitter: Emitter, x: Instruction, out: Instruction | None, grown: Shape, turn: Round) -> Instruction:
    """`out` with one round's pieces.  The first round (no `out` yet) may spill: the rest write all it does not hold."""
    piece = x
    if turn.sizes != x.shape.dims:
        piece = emitter.dynamic_slice(x, [emitter.per_device(table) for table in turn.read], turn.sizes)
    if not turn.is_local:
        piece = emitter.collective_permute(piece, turn.pairs)
    if out is None and turn.sizes == grown.dims:
        return piece
    starts = [emitter.per_device(table) for table in turn.write]
    if out is None:
        return emitter.dynamic_update_slice(emitter.full(0, grown), piece, starts)
    counts = _what_counts(emitter, piece.shape, turn)
    if counts is not None:
        piece = emitter.select(counts, piece, emitter.dynamic_slice(out, starts, turn.sizes))
    return emitter.dynamic_update_slice(out, piece, starts)


def _what_counts(emitter: Emitter, window: Shape, turn: Round) -> Instruction | None:
    """Which elements of the window are to be written; None: all, on all devices."""
    zero = emitter.constant(np.int32(0))
    if not turn.real:
        if len(turn.targets) == emitter.num_partitions:
            return None
        takes = emitter.per_device(tuple(int(d in turn.targets) for d in range(emitter.num_partitions)))
        return emitter.compare(takes, "NE", zero)
    counts: Instruction | None = None
    for dim, table in enumerate(turn.real):
        if all(size == turn.sizes[dim] for size in table):
            continue
        place = emitter.iota(window.with_type("s32"), dim)
        limit = emitter.broadcast(emitter.per_device(table), window.dims, ())
        inside = emitter.compare(place, "LT", limit)
        counts = inside if counts is None else emitter.binary("and", counts, inside)
    return counts
