"""Collective matmuls: a product as a loop of collective permutes, each overlapped with a part of the product.

Floor: partitioner.  XLA calls it windowed einsum.  The bytes are those of the collective it replaces, but the gathered
operand is never held, and the wait is hidden.

In place of an all-gather of an operand, its tiles are passed on from device to device (four of them here):

    step        0     1     2     3
    device 0   t0    t1    t2    t3      multiplies the tile it has while the next one comes from device 1
    device 1   t1    t2    t3    t0

In place of a reduce-scatter, partial sums are passed on: each device adds its own part to the sum for a tile and sends
it on, so that it arrives complete at the device that shall have the tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hlosharding.ir import Instruction, Shape
from hlosharding.partitioner.choice import FactorChoice
from hlosharding.sharding import HloSharding, tile_table
from hlosharding.spmd import Emitter, LoopNames, counted_loop, mask_padding

Groups = tuple[tuple[int, ...], ...]
Pairs = tuple[tuple[int, int], ...]
_NAMES = LoopNames("windowed_dot_general_body", "windowed_dot_general_cond", "one step of a collective matmul")
# Elements are added up over several steps: in these, in a wider type.
_NARROW = frozenset({"bf16", "f16"})


@dataclass(frozen=True, slots=True)
class CollectiveMatmul:
    """What is passed on from device to device, and between which devices."""

    operand: int | None
    """The operand whose tiles are passed on in place of an all-gather; None: partial sums are, in place of a
    reduce-scatter."""
    factor: int
    """The factor that it is split along."""
    sharding: HloSharding
    """Of the operand, or of the sums when they are complete."""
    dim: int
    """The split dim of the operand, or of the result."""
    groups: Groups
    """Devices that pass tiles on to each other, in the order of the tiles."""

    @property
    def num_tiles(self) -> int:
        """Of one group."""
        return len(self.groups[0])

    @property
    def pairs(self) -> Pairs:
        """(source, target): each device receives from the one with the next tile."""
        return tuple((group[(n + 1) % len(group)], group[n]) for group in self.groups for n in range(len(group)))


@dataclass(frozen=True, slots=True)
class MatmulLoop:
    """A product that is computed so."""

    inst: Instruction
    choice: FactorChoice
    matmul: CollectiveMatmul
    result: Shape
    """The whole local result."""

    @property
    def size(self) -> int:
        """Elements of the factor."""
        return self.choice.signature.factors[self.matmul.factor].size

    @property
    def tile(self) -> int:
        """Elements of the factor in one tile."""
        return -(-self.size // self.matmul.num_tiles)

    @property
    def result_dim(self) -> int | None:
        """The result's dim of the factor; None where it is contracted."""
        dims = self.choice.signature.results[0]
        return next((d for d, factors in enumerate(dims) if self.matmul.factor in factors), None)

    def dim(self, operand: int) -> int | None:
        """An operand's dim of the factor."""
        dims = self.choice.signature.operands[operand]
        return next((d for d, factors in enumerate(dims) if self.matmul.factor in factors), None)

    def padded(self, emitter: Emitter, operand: int, x: Instruction) -> Instruction:
        """The operand with full tiles: zeros behind the end, also where the last tile that is passed on has garbage."""
        dim, matmul = self.dim(operand), self.matmul
        if operand == matmul.operand:
            is_contracted, shape = self.result_dim is None, self.inst.operands[operand].shape
            return mask_padding(emitter, x, shape, matmul.sharding, (matmul.dim,), 0) if is_contracted else x
        if dim is None:
            return x
        missing = [self.tile * matmul.num_tiles - self.size if d == dim else 0 for d in range(x.shape.rank)]
        return emitter.pad(x, [0] * x.shape.rank, missing, np.zeros((), x.shape.dtype))

    def part(self, emitter: Emitter, begin: Instruction, operands: Sequence[Instruction], shape: Shape) -> Instruction:
        """The product for the tile of the factor that begins there."""
        cuts = [self._cut(emitter, n, x, begin) for n, x in enumerate(operands)]
        dims = [self.tile if d == self.result_dim else n for d, n in enumerate(shape.dims)]
        return emitter.local(self.inst, shape.with_dims(tuple(dims)), cuts)

    def _cut(self, emitter: Emitter, number: int, x: Instruction, begin: Instruction) -> Instruction:
        dim = self.dim(number)
        if number == self.matmul.operand or dim is None:
            return x
        sizes = tuple(self.tile if d == dim else n for d, n in enumerate(x.shape.dims))
        return emitter.dynamic_slice(x, _starts(emitter, begin, x.shape.rank, dim), sizes)

    def begin_of_tile(self, emitter: Emitter, ahead: int) -> Instruction:
        """Where the tile begins that lies so many places ahead of the device's own."""
        matmul = self.matmul
        rank = (self.inst if matmul.operand is None else self.inst.operands[matmul.operand]).shape.rank
        table = tile_table(matmul.sharding, rank, emitter.num_partitions)
        places = [(index[matmul.dim] + ahead) % matmul.num_tiles for index in table]
        return emitter.per_device([place * self.tile for place in places])

    def begin_after(self, emitter: Emitter, first: Instruction, number: Instruction) -> Instruction:
        """Where the tile begins that is `number` places further.  Computed anew each time: so its users absorb it."""
        distance = emitter.binary("multiply", number, emitter.constant(np.int32(self.tile)))
        total = emitter.constant(np.int32(self.tile * self.matmul.num_tiles))
        return emitter.binary("remainder", emitter.binary("add", first, distance), total)


def _starts(emitter: Emitter, begin: Instruction, rank: int, dim: int) -> list[Instruction]:
    zero = emitter.constant(np.int32(0))
    return [begin if d == dim else zero for d in range(rank)]


def emit_loop(emitter: Emitter, loop: MatmulLoop, operands: Sequence[Instruction]) -> Instruction:
    """The product; of the operand that is passed on `operands` has the device's own tile."""
    padded = [loop.padded(emitter, n, x) for n, x in enumerate(operands)]
    if loop.matmul.operand is None:
        return _pass_sums_on(emitter, loop, padded)
    return _pass_operand_on(emitter, loop, padded, loop.matmul.operand)


def _pass_operand_on(emitter: Emitter, loop: MatmulLoop, operands: list[Instruction], passed: int) -> Instruction:
    """Each tile is multiplied while the next one comes: its product is added, or written in its place."""
    result_dim, shape = loop.result_dim, _accumulator(loop)

    def used(at: Emitter, begin: Instruction, tile: Instruction, other: Instruction, total: Instruction) -> Instruction:
        pair = (tile, other) if passed == 0 else (other, tile)
        part = loop.part(at, begin, pair, shape)
        if result_dim is None:
            return at.binary("add", total, part)
        return at.dynamic_update_slice(total, part, _starts(at, begin, shape.rank, result_dim))

    def step(at: Emitter, number: Instruction, carried: Sequence[Instruction]) -> list[Instruction]:
        first, tile, other, total = carried
        coming = at.collective_permute(tile, loop.matmul.pairs)
        return [first, coming, other, used(at, loop.begin_after(at, first, number), tile, other, total)]

    times = loop.matmul.num_tiles - 1
    start = [loop.begin_of_tile(emitter, 0), operands[passed], operands[1 - passed], emitter.full(0, shape)]
    _, tile, other, total = counted_loop(emitter, _NAMES, start, times, step)
    total = used(emitter, loop.begin_of_tile(emitter, times), tile, other, total)
    total = emitter.slice(total, [0] * shape.rank, loop.result.dims)
    return total if total.shape is loop.result else emitter.op("convert", loop.result, (total,))


def _accumulator(loop: MatmulLoop) -> Shape:
    """What the products of all tiles are added up in, or written into: full tiles."""
    shape, result_dim = loop.result, loop.result_dim
    if result_dim is None:
        return shape.with_type("f32") if shape.element_type in _NARROW else shape
    full = [loop.tile * loop.matmul.num_tiles if d == result_dim else n for d, n in enumerate(shape.dims)]
    return shape.with_dims(tuple(full))


def _pass_sums_on(emitter: Emitter, loop: MatmulLoop, operands: list[Instruction]) -> Instruction:
    """The sum for a tile starts at the device before its own and meets every other one's part before it arrives."""

    def step(at: Emitter, number: Instruction, carried: Sequence[Instruction]) -> list[Instruction]:
        second, left, right, total = carried
        coming = at.collective_permute(total, loop.matmul.pairs)
        part = loop.part(at, loop.begin_after(at, second, number), (left, right), loop.result)
        return [second, left, right, at.binary("add", coming, part)]

    total = loop.part(emitter, loop.begin_of_tile(emitter, 1), operands, loop.result)
    start = [loop.begin_of_tile(emitter, 2), *operands, total]
    return counted_loop(emitter, _NAMES, start, loop.matmul.num_tiles - 1, step)[-1]
