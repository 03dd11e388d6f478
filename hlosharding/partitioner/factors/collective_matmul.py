"""Products of matrices as loops: tiles go round a ring of devices, one permute a step, while others are multiplied.

Floor: partitioner.  In place of an all-gather, an operand goes round: each device multiplies the tile it has while the
next one comes.  In place of a reduce-scatter, sums go round: each device adds its share to the sum of the device that
it travels to.  The bytes are the same; the gathered operand is never held, and the wait is hidden.  XLA calls it
windowed einsum, papers collective matmul.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hlosharding.cost import simulate
from hlosharding.ir import Builder, Instruction, Shape
from hlosharding.partitioner.choice import Choice, Lowering
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.iteration_space import untile
from hlosharding.partitioner.value import Value
from hlosharding.sharding import HloSharding, partial_sum_groups, tile_table, without_partials
from hlosharding.spmd import Emitter, LoopNames, Program, counted_loop, mask_padding

OVERLAPS = ("off", "auto", "always")
"""When products become loops: never, where the machine's prices say it is faster, wherever they can."""

Groups = tuple[tuple[int, ...], ...]
Pairs = tuple[tuple[int, int], ...]
_NAMES = LoopNames("ring_step", "ring_goes_on", "one step of a ring")


@dataclass(frozen=True, slots=True)
class CollectiveMatmul:
    """What goes round, and between whom."""

    operand: int | None
    """The operand that goes round; None: the sums do."""
    factor: int
    """The factor that it is split along."""
    sharding: HloSharding
    """Of the operand, or of the sums when they arrive."""
    dim: int
    """The split dim of the operand, or of the result."""
    groups: Groups
    """The rings, in the order of the tiles."""

    @property
    def ways(self) -> int:
        return len(self.groups[0])

    @property
    def pairs(self) -> Pairs:
        """(source, target): each device receives from the one with the next tile."""
        return tuple((ring[(n + 1) % len(ring)], ring[n]) for ring in self.groups for n in range(len(ring)))


def collective_matmul_for(
    context: Context, inst: Instruction, lowering: Lowering, values: Sequence[Value]
) -> CollectiveMatmul | None:
    """How a product would be computed by a loop; None where it cannot be, or where that does not pay."""
    mode = context.decisions.overlap
    if mode == "off" or inst.opcode != "dot":
        return None
    rings = [_of_operand(lowering.choice, inst, n, v) for n, v in enumerate(values)]
    found = [r for r in (*rings, _of_sums(context, inst, lowering.choice)) if r is not None]
    if not found:
        return None
    ring = max(found, key=lambda r: _sent(inst, r))
    return ring if mode == "always" or _pays(context, inst, lowering, ring) else None


def _of_operand(choice: Choice, inst: Instruction, number: int, value: Value) -> CollectiveMatmul | None:
    """The operand is only to be gathered along one dim, and nobody else needs it gathered."""
    source, target = value.sharding, choice.operands[number]
    if source.kind != "tiled" or source is target or value.reduce_kind is not None or value.is_at_hand:
        return None
    gathered = [d for d in range(value.shape.rank) if source.num_tiles_along(d) != target.num_tiles_along(d)]
    if len(gathered) != 1 or target is not untile(source, (gathered[0],)) or target in value.reshards:
        return None
    if len(inst.operands[number].users) != 1 or inst.operands[number].is_root:
        return None
    [factor] = choice.signature.operands[number][gathered[0]]
    return CollectiveMatmul(number, factor, source, gathered[0], _rings(source, gathered[0]))


def _of_sums(context: Context, inst: Instruction, choice: Choice) -> CollectiveMatmul | None:
    """The result is added up over one group of devices and wanted in tiles by the same group."""
    wanted, partial = context.wanted_leaves(inst)[0], choice.results[0]
    if wanted is None or wanted.kind != "tiled" or choice.reduce_kind != "add":
        return None
    whole = without_partials(partial)
    split = [d for d in range(inst.shape.rank) if wanted.num_tiles_along(d) != whole.num_tiles_along(d)]
    if len(split) != 1 or whole is not untile(wanted, (split[0],)) or whole.num_tiles_along(split[0]) > 1:
        return None
    rings = _rings(wanted, split[0])
    if {frozenset(r) for r in rings} != {frozenset(g) for g in partial_sum_groups(partial, context.num_partitions)}:
        return None
    [factor] = choice.signature.results[0][split[0]]
    return CollectiveMatmul(None, factor, wanted, split[0], rings)


def _rings(sharding: HloSharding, dim: int) -> Groups:
    tiles = np.moveaxis(sharding.tiles.array, dim, -1)
    return tuple(tuple(map(int, row)) for row in tiles.reshape(-1, tiles.shape[-1]))


def _sent(inst: Instruction, ring: CollectiveMatmul) -> int:
    """Bytes of one tile on its way."""
    shape = inst.shape if ring.operand is None else inst.operands[ring.operand].shape
    return shape.with_dims(tuple(ring.sharding.tile_shape(shape.dims))).byte_size


# ---- prices


def _pays(context: Context, inst: Instruction, lowering: Lowering, ring: CollectiveMatmul) -> bool:
    """Is the loop faster than the collective and the product one after the other?  Both are simulated.

    What was given to the program may be gathered while something else is computed: then there is no wait to hide.  And
    a loop sends padding, too.
    """
    lap = _Lap(inst, lowering.choice, ring, lowering.shapes[0])
    if lap.size % ring.ways or (ring.operand is not None and _is_given(inst.operands[ring.operand])):
        return False
    known, key = context.decisions.faster_collective_matmuls, (id(lowering), ring.operand, ring.factor)
    if key not in known:
        known[key] = _seconds(context, lap, _go_round) < _seconds(context, lap, _wait)
    return known[key]


def _is_given(inst: Instruction) -> bool:
    """A parameter, or what was made of one alone without computing."""
    while len(inst.operands) == 1 and inst.opcode in ("copy", "convert", "bitcast", "reshape", "transpose"):
        inst = inst.operands[0]
    return inst.opcode in ("parameter", "get-tuple-element", "constant")


def _seconds(context: Context, lap: _Lap, way: Callable[[Emitter, _Lap, Sequence[Instruction]], Instruction]) -> float:
    """Simulated time of one product by itself."""
    program = Program(Builder("alone", num_partitions=context.num_partitions), context.num_partitions)
    body = program.builder.computation("product")
    shardings = [lap.ring.sharding if n == lap.ring.operand else s for n, s in enumerate(lap.choice.operands)]
    shapes = [context.local_shape(o.shape, s) for o, s in zip(lap.inst.operands, shardings, strict=True)]
    operands = [body.parameter(n, shape) for n, shape in enumerate(shapes)]
    body.root(way(Emitter(program, body), lap, operands))
    return simulate(program.builder.finish(body), context.prices.machine).time_s


def _wait(emitter: Emitter, lap: _Lap, operands: Sequence[Instruction]) -> Instruction:
    """The collective and the product, as they would be without a loop (no uneven end is cut off)."""
    ring = lap.ring
    whole = [emitter.all_gather(x, ring.dim, ring.groups) if n == ring.operand else x for n, x in enumerate(operands)]
    product = emitter.local(lap.inst, lap.result, whole)
    return product if ring.operand is not None else emitter.reduce_scatter(product, ring.dim, ring.groups, "add")


# ---- the loop


def multiply_in_steps(
    context: Context, inst: Instruction, lowering: Lowering, ring: CollectiveMatmul, operands: Sequence[Instruction]
) -> Value:
    """The product; of the operand that goes round `operands` has the device's own tile."""
    choice = lowering.choice
    local = _go_round(context.emitter, _Lap(inst, choice, ring, lowering.shapes[0]), operands)
    if ring.operand is None:
        return Value(local, inst.shape, ring.sharding)
    return Value(local, inst.shape, choice.results[0], choice.reduce_kind)


def _go_round(emitter: Emitter, lap: _Lap, operands: Sequence[Instruction]) -> Instruction:
    padded = [lap.padded(emitter, n, x) for n, x in enumerate(operands)]
    return (_sums_go_round if lap.ring.operand is None else _operand_goes_round)(emitter, lap, padded)


@dataclass(frozen=True, slots=True)
class _Lap:
    """One way round."""

    inst: Instruction
    choice: Choice
    ring: CollectiveMatmul
    result: Shape
    """The whole local result."""

    @property
    def size(self) -> int:
        """Elements of the factor."""
        return self.choice.signature.factors[self.ring.factor].size

    @property
    def tile(self) -> int:
        """Elements of the factor in one tile."""
        return -(-self.size // self.ring.ways)

    @property
    def along(self) -> int | None:
        """The result's dim of the factor."""
        return next((d for d, f in enumerate(self.choice.signature.results[0]) if self.ring.factor in f), None)

    def dim(self, operand: int) -> int | None:
        """An operand's dim of the factor."""
        dims = self.choice.signature.operands[operand]
        return next((d for d, f in enumerate(dims) if self.ring.factor in f), None)

    def padded(self, emitter: Emitter, operand: int, x: Instruction) -> Instruction:
        """The operand with full tiles: zeros behind the end, also where the last tile that goes round has garbage."""
        dim = self.dim(operand)
        if operand == self.ring.operand:
            sums = self.along is None
            shape = self.inst.operands[operand].shape
            return mask_padding(emitter, x, shape, self.ring.sharding, (self.ring.dim,), 0) if sums else x
        if dim is None:
            return x
        missing = [self.tile * self.ring.ways - self.size if d == dim else 0 for d in range(x.shape.rank)]
        return emitter.pad(x, [0] * x.shape.rank, missing, np.zeros((), x.shape.dtype))

    def part(self, emitter: Emitter, begin: Instruction, operands: Sequence[Instruction], shape: Shape) -> Instruction:
        """The product for the tile of the factor that begins there."""
        cuts = [self._cut(emitter, n, x, begin) for n, x in enumerate(operands)]
        dims = [self.tile if d == self.along else n for d, n in enumerate(shape.dims)]
        return emitter.local(self.inst, shape.with_dims(tuple(dims)), cuts)

    def _cut(self, emitter: Emitter, number: int, x: Instruction, begin: Instruction) -> Instruction:
        dim = self.dim(number)
        if number == self.ring.operand or dim is None:
            return x
        sizes = tuple(self.tile if d == dim else n for d, n in enumerate(x.shape.dims))
        return emitter.dynamic_slice(x, _starts(emitter, begin, x.shape.rank, dim), sizes)

    def first(self, emitter: Emitter, ahead: int) -> Instruction:
        """Where the tile begins that lies so many places ahead of the device's own."""
        rank = (self.inst if self.ring.operand is None else self.inst.operands[self.ring.operand]).shape.rank
        table = tile_table(self.ring.sharding, rank, emitter.num_partitions)
        places = [(index[self.ring.dim] + ahead) % self.ring.ways for index in table]
        return emitter.per_device([place * self.tile for place in places])

    def further(self, emitter: Emitter, first: Instruction, number: Instruction) -> Instruction:
        """Where the tile begins that is `number` places further.  Counted anew each time: so its users absorb it."""
        way = emitter.binary("multiply", number, emitter.constant(np.int32(self.tile)))
        total = emitter.constant(np.int32(self.tile * self.ring.ways))
        return emitter.binary("remainder", emitter.binary("add", first, way), total)


def _starts(emitter: Emitter, begin: Instruction, rank: int, dim: int) -> list[Instruction]:
    zero = emitter.constant(np.int32(0))
    return [begin if d == dim else zero for d in range(rank)]


def _operand_goes_round(emitter: Emitter, lap: _Lap, operands: list[Instruction]) -> Instruction:
    """Each tile is multiplied while the next one comes: its product is added, or written in its place."""
    travels, along = lap.ring.operand, lap.along
    assert travels is not None, "else the sums go round"
    shape = lap.result
    if along is None and shape.element_type in ("bf16", "f16"):
        shape = shape.with_type("f32")  # added up over several steps
    elif along is not None:
        full = [lap.tile * lap.ring.ways if d == along else n for d, n in enumerate(shape.dims)]
        shape = shape.with_dims(tuple(full))

    def used(at: Emitter, begin: Instruction, tile: Instruction, other: Instruction, total: Instruction) -> Instruction:
        pair = (tile, other) if travels == 0 else (other, tile)
        part = lap.part(at, begin, pair, shape)
        if along is None:
            return at.binary("add", total, part)
        return at.dynamic_update_slice(total, part, _starts(at, begin, shape.rank, along))

    def step(at: Emitter, number: Instruction, carried: Sequence[Instruction]) -> list[Instruction]:
        first, tile, other, total = carried
        coming = at.collective_permute(tile, lap.ring.pairs)
        return [first, coming, other, used(at, lap.further(at, first, number), tile, other, total)]

    times = lap.ring.ways - 1
    start = [lap.first(emitter, 0), operands[travels], operands[1 - travels], emitter.full(0, shape)]
    _, tile, other, total = counted_loop(emitter, _NAMES, start, times, step)
    total = used(emitter, lap.first(emitter, times), tile, other, total)
    total = emitter.slice(total, [0] * shape.rank, lap.result.dims)
    return total if total.shape is lap.result else emitter.op("convert", lap.result, (total,))


def _sums_go_round(emitter: Emitter, lap: _Lap, operands: list[Instruction]) -> Instruction:
    """The sum for a tile starts at the device before its own and meets every other one's partial sum before it arrives."""

    def step(at: Emitter, number: Instruction, carried: Sequence[Instruction]) -> list[Instruction]:
        second, left, right, total = carried
        coming = at.collective_permute(total, lap.ring.pairs)
        part = lap.part(at, lap.further(at, second, number), (left, right), lap.result)
        return [second, left, right, at.binary("add", coming, part)]

    total = lap.part(emitter, lap.first(emitter, 1), operands, lap.result)
    return counted_loop(emitter, _NAMES, [lap.first(emitter, 2), *operands, total], lap.ring.ways - 1, step)[-1]
