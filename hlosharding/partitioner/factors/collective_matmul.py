"""Collective matmuls: a product as a loop of collective permutes, each overlapped with a part of the product.

Floor: partitioner.  XLA calls it windowed einsum.  The bytes are those of the collective it replaces, but the gathered
operand is never held, and the wait is hidden.  A product becomes one where that can be, and where it is faster.

In place of an all-gather of an operand, its tiles are passed on from device to device (four of them here):

    step        0     1     2     3
    device 0   t0    t1    t2    t3      multiplies the tile it has while the next one comes from device 1
    device 1   t1    t2    t3    t0

In place of a reduce-scatter, partial sums are passed on: each device adds its own part to the sum for a tile and sends
it on, so that it arrives complete at the device that shall have the tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hlosharding.ir import SAME_ELEMENTS, Instruction, Shape
from hlosharding.partitioner.choice import FactorChoice, Lowering
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.factors.alone import priced_alone
from hlosharding.partitioner.iteration_space import untile
from hlosharding.partitioner.local_ops import local_rule
from hlosharding.partitioner.resharding import local_shape
from hlosharding.partitioner.value import Value
from hlosharding.sharding import HloSharding, partial_sum_groups, tile_table, without_partials
from hlosharding.spmd import Emitter, LoopNames, counted_loop, mask_padding

Groups = tuple[tuple[int, ...], ...]
Pairs = tuple[tuple[int, int], ...]
_NAMES = LoopNames("windowed_dot_general_body", "windowed_dot_general_cond", "one step of a collective matmul")
# Elements are added up over several steps: in these, in a wider type.
_NARROW = frozenset({"bf16", "f16"})


@dataclass(frozen=True, slots=True)
class MatmulLoop:
    """A product that is computed so: what is passed on from device to device, and between which devices."""

    inst: Instruction
    choice: FactorChoice
    result: Shape
    """The whole local result."""
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

    @property
    def passed_on(self) -> Shape:
        """The whole of what is passed on."""
        return (self.inst if self.operand is None else self.inst.operands[self.operand]).shape

    @property
    def size(self) -> int:
        """Elements of the factor."""
        return self.choice.signature.factors[self.factor].size

    @property
    def tile(self) -> int:
        """Elements of the factor in one tile."""
        return -(-self.size // self.num_tiles)

    @property
    def result_dim(self) -> int | None:
        """The result's dim of the factor; None where it is contracted."""
        dims = self.choice.signature.results[0]
        return next((d for d, factors in enumerate(dims) if self.factor in factors), None)

    def dim_of(self, operand: int) -> int | None:
        """An operand's dim of the factor."""
        dims = self.choice.signature.operands[operand]
        return next((d for d, factors in enumerate(dims) if self.factor in factors), None)

    def padded(self, emitter: Emitter, operand: int, x: Instruction) -> Instruction:
        """The operand with full tiles: zeros behind the end, also where the last tile that is passed on has garbage."""
        dim = self.dim_of(operand)
        if operand == self.operand:
            # Along a dim of the result, garbage makes garbage behind its end, which is cut off at last.
            is_contracted = self.result_dim is None
            return mask_padding(emitter, x, self.passed_on, self.sharding, (self.dim,), 0) if is_contracted else x
        if dim is None:
            return x
        missing = [self.tile * self.num_tiles - self.size if d == dim else 0 for d in range(x.shape.rank)]
        return emitter.pad(x, [0] * x.shape.rank, missing, np.zeros((), x.shape.dtype))

    def part(self, emitter: Emitter, begin: Instruction, operands: Sequence[Instruction], shape: Shape) -> Instruction:
        """The product for the tile of the factor that begins there."""
        cuts = [self._cut(emitter, n, x, begin) for n, x in enumerate(operands)]
        shape = shape if self.result_dim is None else shape.with_dim(self.result_dim, self.tile)
        return emitter.local(self.inst, shape, cuts)

    def _cut(self, emitter: Emitter, number: int, x: Instruction, begin: Instruction) -> Instruction:
        dim = self.dim_of(number)
        if number == self.operand or dim is None:
            return x
        sizes = x.shape.with_dim(dim, self.tile).dims
        return emitter.dynamic_slice(x, _starts(emitter, begin, x.shape.rank, dim), sizes)

    def begin_of_tile(self, emitter: Emitter, ahead: int) -> Instruction:
        """Where the tile begins that lies so many places ahead of the device's own."""
        table = tile_table(self.sharding, self.passed_on.rank, emitter.num_partitions)
        places = [(index[self.dim] + ahead) % self.num_tiles for index in table]
        return emitter.per_device([place * self.tile for place in places], reach=2 * self.tile * self.num_tiles)

    def begin_after(self, emitter: Emitter, first: Instruction, number: Instruction) -> Instruction:
        """Where the tile begins that is `number` places further.  Computed anew each time: so its users absorb it."""
        kind = first.shape.dtype.type
        number = number if first.shape is number.shape else emitter.op("convert", first.shape, (number,))
        distance = emitter.binary("multiply", number, emitter.constant(kind(self.tile)))
        total = emitter.constant(kind(self.tile * self.num_tiles))
        return emitter.binary("remainder", emitter.binary("add", first, distance), total)


def _starts(emitter: Emitter, begin: Instruction, rank: int, dim: int) -> list[Instruction]:
    zero = emitter.constant(begin.shape.dtype.type(0))
    return [begin if d == dim else zero for d in range(rank)]


def emit_loop(emitter: Emitter, loop: MatmulLoop, operands: Sequence[Instruction]) -> Instruction:
    """The product; of the operand that is passed on `operands` has the device's own tile."""
    padded = [loop.padded(emitter, n, x) for n, x in enumerate(operands)]
    if loop.operand is None:
        return _pass_sums_on(emitter, loop, padded)
    return _pass_operand_on(emitter, loop, padded, loop.operand)


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
        coming = at.collective_permute(tile, loop.pairs)
        return [first, coming, other, used(at, loop.begin_after(at, first, number), tile, other, total)]

    # The last tile is multiplied behind the loop: one more step would send tiles that nobody multiplies.
    times = loop.num_tiles - 1
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
    return shape.with_dim(result_dim, loop.tile * loop.num_tiles)


def _pass_sums_on(emitter: Emitter, loop: MatmulLoop, operands: list[Instruction]) -> Instruction:
    """The sum for a tile starts at the device before its own and meets every other one's part before it arrives."""

    def step(at: Emitter, number: Instruction, carried: Sequence[Instruction]) -> list[Instruction]:
        second, left, right, total = carried
        coming = at.collective_permute(total, loop.pairs)
        part = loop.part(at, loop.begin_after(at, second, number), (left, right), loop.result)
        return [second, left, right, at.binary("add", coming, part)]

    total = loop.part(emitter, loop.begin_of_tile(emitter, 1), operands, loop.result)
    start = [loop.begin_of_tile(emitter, 2), *operands, total]
    return counted_loop(emitter, _NAMES, start, loop.num_tiles - 1, step)[-1]


# What the program was given, and ops that make nothing of it that was not there before.
_GIVEN = frozenset({"parameter", "get-tuple-element", "constant"})


def collective_matmul_for(
    context: Context, inst: Instruction, lowering: Lowering, values: Sequence[Value]
) -> MatmulLoop | None:
    """How a product would be computed by a loop; None where it cannot be, or where that does not pay."""
    mode = context.decisions.overlap
    if mode == "off" or not local_rule(inst.opcode).has_collective_matmul:
        return None
    gathers = [_for_gathered_operand(lowering, inst, n, v) for n, v in enumerate(values)]
    found = [m for m in (*gathers, _for_scattered_result(context, inst, lowering)) if m is not None]
    # Bytes that a device sends in one step.
    loop = max(found, key=lambda m: local_shape(context, m.passed_on, m.sharding).byte_size, default=None)
    return loop if loop is None or mode == "always" or _pays(context, loop) else None


def _for_gathered_operand(lowering: Lowering, inst: Instruction, number: int, value: Value) -> MatmulLoop | None:
    """The operand is only to be gathered along one dim, and nobody else needs it gathered."""
    choice, source, target = lowering.choice, value.sharding, lowering.operands[number]
    if source.kind != "tiled" or source is target or value.reduce_kind is not None or value.is_free:
        return None
    gathered = [d for d in range(value.shape.rank) if source.num_tiles_along(d) != target.num_tiles_along(d)]
    if len(gathered) != 1 or target is not untile(source, (gathered[0],)) or target in value.reshards:
        return None
    if len(inst.operands[number].users) != 1 or inst.operands[number].is_root:
        return None
    [factor] = choice.signature.operands[number][gathered[0]]
    groups = _groups(source, gathered[0])
    return MatmulLoop(inst, choice, lowering.shapes[0], number, factor, source, gathered[0], groups)


def _for_scattered_result(context: Context, inst: Instruction, lowering: Lowering) -> MatmulLoop | None:
    """The result is added up over one group of devices and wanted in tiles by the same group."""
    choice, wanted, partial = lowering.choice, context.wanted_leaves(inst)[0], lowering.results[0]
    if wanted is None or wanted.kind != "tiled" or choice.reduce_kind != "add":
        return None
    whole = without_partials(partial)
    split = [d for d in range(inst.shape.rank) if wanted.num_tiles_along(d) != whole.num_tiles_along(d)]
    if len(split) != 1 or whole is not untile(wanted, (split[0],)):
        return None
    groups = _groups(wanted, split[0])
    # As sets: terms of a sum have no order, and what is passed on goes in the order of the tiles that are wanted.
    if {frozenset(g) for g in groups} != {frozenset(g) for g in partial_sum_groups(partial, context.num_partitions)}:
        return None
    [factor] = choice.signature.results[0][split[0]]
    return MatmulLoop(inst, choice, lowering.shapes[0], None, factor, wanted, split[0], groups)


def _groups(sharding: HloSharding, dim: int) -> Groups:
    """Devices that differ only by their tile along one dim, in the order of the tiles."""
    tiles = np.moveaxis(sharding.tiles.array, dim, -1)
    return tuple(tuple(map(int, row)) for row in tiles.reshape(-1, tiles.shape[-1]))


def emit_collective_matmul(context: Context, loop: MatmulLoop, operands: Sequence[Instruction]) -> Value:
    """The product; of the operand that is passed on `operands` has the device's own tile."""
    local = emit_loop(context.emitter, loop, operands)
    if loop.operand is None:
        return Value(local, loop.inst.shape, loop.sharding)
    return Value(local, loop.inst.shape, loop.choice.results[0], loop.choice.reduce_kind)


# ---- prices


def _pays(context: Context, loop: MatmulLoop) -> bool:
    """Is the loop faster than the collective and the product one after the other?  Both are simulated.

    What was given to the program may be gathered while something else is computed: then there is no wait to hide.  And
    a loop sends padding, too.
    """
    operands = loop.inst.operands
    if loop.size % loop.num_tiles or (loop.operand is not None and _is_given(operands[loop.operand])):
        return False
    known = context.decisions.faster_collective_matmuls
    key = (loop.choice, loop.operand, loop.sharding, loop.dim, loop.result, *[o.shape for o in operands])
    if key not in known:
        known[key] = _seconds(context, loop, emit_loop) < _seconds(context, loop, _emit_one_collective)
    return known[key]


def _is_given(inst: Instruction) -> bool:
    """Was it given to the program, or made of something given without computing?"""
    while len(inst.operands) == 1 and inst.opcode in SAME_ELEMENTS:
        inst = inst.operands[0]
    return inst.opcode in _GIVEN


def _seconds(
    context: Context, loop: MatmulLoop, emit: Callable[[Emitter, MatmulLoop, Sequence[Instruction]], Instruction]
) -> float:
    """Simulated time of one product by itself."""
    shardings = [loop.sharding if n == loop.operand else s for n, s in enumerate(loop.choice.operands)]
    shapes = [local_shape(context, o.shape, s) for o, s in zip(loop.inst.operands, shardings, strict=True)]
    return priced_alone(context, shapes, lambda emitter, operands: emit(emitter, loop, operands)).cost.seconds


def _emit_one_collective(emitter: Emitter, loop: MatmulLoop, operands: Sequence[Instruction]) -> Instruction:
    """The collective and the product, as they would be without a loop (no uneven end is cut off)."""
    dim, groups, gathered = loop.dim, loop.groups, loop.operand
    whole = [emitter.all_gather(x, dim, groups) if n == gathered else x for n, x in enumerate(operands)]
    product = emitter.local(loop.inst, loop.result, whole)
    return product if gathered is not None else emitter.reduce_scatter(product, dim, groups, "add")
