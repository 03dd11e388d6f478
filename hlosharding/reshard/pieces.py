"""The step of the direct plan: a target tile put together from pieces, which arrive in rounds of one permute each.

Floor: reshard.  Knows tables of where each device cuts and places; who sends what is decided in `direct`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hlosharding.cost import Machine, collective_time, op_time
from hlosharding.ir import Instruction, Shape
from hlosharding.reshard.steps import Dims, Pairs, Step, Table, Tiles, renamed_pairs, renamed_tables

if TYPE_CHECKING:
    from hlosharding.spmd import Emitter

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
        for operand in np.unique(number).tolist():
            mine = pairs[number == operand]
            yield operand, mine[:, 0], mine[:, 1]

    def real_sizes(self, device: int) -> Dims:
        """Sizes of the piece that a target gets."""
        return tuple(table[device] for table in self.real) if self.real else self.sizes

    def renamed(self, names: Table) -> Round:
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


@dataclass(frozen=True, slots=True)
class Pieces(Step):
    """The rounds, in order; together they write every real element of every target tile, or what is left has a base."""

    sizes: Dims
    rounds: tuple[Round, ...]

    def result(self, local: Shape) -> Shape:
        return local.with_dims(self.sizes)

    def apply(self, tiles: Tiles) -> list[npt.NDArray[Any]]:
        return self.meaning([tiles], [np.zeros(self.sizes, t.dtype) for t in tiles])

    def meaning(self, operands: Sequence[Tiles], base: Tiles) -> list[npt.NDArray[Any]]:
        """What all devices hold afterwards, in numpy: [operand][device] local arrays, laid over [device] `base`."""
        out = [t.copy() for t in base]
        for turn in self.rounds:
            before = [t.copy() for t in out] if RESULT in turn.sources else out
            for s, t in turn.pairs:
                sizes, number = turn.real_sizes(t), turn.operand(s)
                source = before[s] if number == RESULT else operands[number][s]
                region = _region(turn.read, s, sizes, turn.read_steps)
                out[t][_region(turn.write, t, sizes, turn.write_steps)] = source[region]
        return out

    def emit(self, emitter: Emitter, x: Instruction) -> Instruction:
        return self.put_together(emitter, (x,), self.result(x.shape))

    def put_together(
        self, emitter: Emitter, operands: Sequence[Instruction], shape: Shape, base: Instruction | None = None
    ) -> Instruction:
        """The result, of local `shape`; places that no round writes hold `base`, a scalar or an array of that shape."""
        from hlosharding.reshard.assembly import put_together  # it needs to know pieces

        return put_together(emitter, self.rounds, operands, shape, base)

    def received_bytes(self, local: Shape, num_devices: int) -> npt.NDArray[np.float64]:
        out = np.zeros(num_devices)
        for turn in self.rounds:
            out[[t for s, t in turn.pairs if s != t]] += local.with_dims(turn.sizes).byte_size
        return out

    def seconds(self, local: Shape, machine: Machine) -> float:
        sent = [turn for turn in self.rounds if not turn.is_local]
        return sum(
            round_seconds(
                local.with_dims(turn.sizes).byte_size,
                turn.pairs,
                machine,
                kernels=(turn.sizes != local.dims) + (turn.sizes != self.sizes),
            )
            for turn in sent
        )

    def renamed(self, names: Table) -> Step:
        return Pieces(self.sizes, tuple(turn.renamed(names) for turn in self.rounds))

    def buffer_bytes(self, local: Shape) -> int:
        largest = max((local.with_dims(turn.sizes).byte_size for turn in self.rounds), default=0)
        return local.byte_size + self.result(local).byte_size + 2 * largest

    def __str__(self) -> str:
        sent = [turn for turn in self.rounds if not turn.is_local]
        sizes = sorted({turn.sizes for turn in sent}, reverse=True)
        shown = " or ".join(str(list(s)) for s in sizes[:4]) + (f" or ... ({len(sizes)})" if len(sizes) > 4 else "")
        return f"{len(sent)} rounds of pieces of {shown}" if sent else "each takes its part"


def round_seconds(nbytes: int, pairs: Pairs, machine: Machine, *, kernels: int) -> float:
    """Time of one round: the permute, and the small kernels that cut and place its windows."""
    local = op_time(0, 2 * nbytes, "f32", machine, matrix=False)
    return collective_time("collective-permute", nbytes, 2, pairs, machine) + kernels * local


def _region(tables: tuple[Dims, ...], device: int, sizes: Dims, steps: Dims) -> tuple[slice, ...]:
    starts = [table[device] for table in tables]
    every = steps or (1,) * len(sizes)
    return tuple(
        slice(a, a + (n - 1) * k + 1, k) if n else slice(0) for a, n, k in zip(starts, sizes, every, strict=True)
    )
