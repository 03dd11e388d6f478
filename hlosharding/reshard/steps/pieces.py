"""The step of a piecewise plan: a target tile put together from pieces, which arrive in rounds of one permute each.

Floor: reshard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hlosharding.cost import Machine, collective_time, op_time
from hlosharding.ir import Instruction, Shape
from hlosharding.reshard.layout import Dims, Table
from hlosharding.reshard.steps.local_steps import Pairs, Step, Tiles
from hlosharding.reshard.steps.rounds import RESULT, Round
from hlosharding.reshard.steps.write_rounds import put_together
from hlosharding.spmd import Emitter


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
            # In a round all send what they held before it, also those that get something in it.
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
        return put_together(emitter, self.rounds, operands, shape, base)

    def received_bytes(self, local: Shape, num_devices: int) -> npt.NDArray[np.float64]:
        out = np.zeros(num_devices)
        for turn in self.rounds:
            # Each target is there once: of an index that comes twice numpy would add one only.
            out[[t for s, t in turn.pairs if s != t]] += local.with_dims(turn.sizes).byte_size
        return out

    def mean_bytes(self, local: Shape, num_devices: int) -> float:
        sent = (local.with_dims(turn.sizes).byte_size * sum(s != t for s, t in turn.pairs) for turn in self.rounds)
        return sum(sent) / num_devices

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

    def wire_seconds(self, local: Shape, machine: Machine) -> float:
        sent = [(local.with_dims(turn.sizes).byte_size, turn.pairs) for turn in self.rounds if not turn.is_local]
        return sum(round_seconds(nbytes, pairs, machine, kernels=0) for nbytes, pairs in sent)

    def rename_devices(self, names: Table) -> Step:
        return Pieces(self.sizes, tuple(turn.rename_devices(names) for turn in self.rounds))

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
