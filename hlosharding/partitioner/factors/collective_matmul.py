"""When a product becomes a collective matmul: where its communication can overlap, and where that is faster.

Floor: partitioner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hlosharding.ir import SAME_ELEMENTS, Instruction
from hlosharding.partitioner.choice import FactorChoice, Lowering
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.factors.alone import seconds_alone
from hlosharding.partitioner.factors.collective_matmul_loop import CollectiveMatmul, Groups, MatmulLoop, emit_loop
from hlosharding.partitioner.iteration_space import untile
from hlosharding.partitioner.local_ops import local_rule
from hlosharding.partitioner.resharding import local_shape
from hlosharding.partitioner.value import Value
from hlosharding.sharding import HloSharding, partial_sum_groups, without_partials
from hlosharding.spmd import Emitter

# What the program was given, and ops that make nothing of it that was not there before.
_GIVEN = frozenset({"parameter", "get-tuple-element", "constant"})


def collective_matmul_for(
    context: Context, inst: Instruction, lowering: Lowering, values: Sequence[Value]
) -> CollectiveMatmul | None:
    """How a product would be computed by a loop; None where it cannot be, or where that does not pay."""
    mode = context.decisions.overlap
    if mode == "off" or not local_rule(inst.opcode).has_collective_matmul:
        return None
    gathers = [_for_gathered_operand(lowering.choice, inst, n, v) for n, v in enumerate(values)]
    found = [m for m in (*gathers, _for_scattered_result(context, inst, lowering.choice)) if m is not None]
    if not found:
        return None
    matmul = max(found, key=lambda m: _tile_bytes(inst, m))
    return matmul if mode == "always" or _pays(context, inst, lowering, matmul) else None


def _for_gathered_operand(
    choice: FactorChoice, inst: Instruction, number: int, value: Value
) -> CollectiveMatmul | None:
    """The operand is only to be gathered along one dim, and nobody else needs it gathered."""
    source, target = value.sharding, choice.operands[number]
    if source.kind != "tiled" or source is target or value.reduce_kind is not None or value.is_free:
        return None
    gathered = [d for d in range(value.shape.rank) if source.num_tiles_along(d) != target.num_tiles_along(d)]
    if len(gathered) != 1 or target is not untile(source, (gathered[0],)) or target in value.reshards:
        return None
    if len(inst.operands[number].users) != 1 or inst.operands[number].is_root:
        return None
    [factor] = choice.signature.operands[number][gathered[0]]
    return CollectiveMatmul(number, factor, source, gathered[0], _groups(source, gathered[0]))


def _for_scattered_result(context: Context, inst: Instruction, choice: FactorChoice) -> CollectiveMatmul | None:
    """The result is added up over one group of devices and wanted in tiles by the same group."""
    wanted, partial = context.wanted_leaves(inst)[0], choice.results[0]
    if wanted is None or wanted.kind != "tiled" or choice.reduce_kind != "add":
        return None
    whole = without_partials(partial)
    split = [d for d in range(inst.shape.rank) if wanted.num_tiles_along(d) != whole.num_tiles_along(d)]
    if len(split) != 1 or whole is not untile(wanted, (split[0],)) or whole.num_tiles_along(split[0]) > 1:
        return None
    groups = _groups(wanted, split[0])
    if {frozenset(g) for g in groups} != {frozenset(g) for g in partial_sum_groups(partial, context.num_partitions)}:
        return None
    [factor] = choice.signature.results[0][split[0]]
    return CollectiveMatmul(None, factor, wanted, split[0], groups)


def _groups(sharding: HloSharding, dim: int) -> Groups:
    """Devices that differ only by their tile along one dim, in the order of the tiles."""
    tiles = np.moveaxis(sharding.tiles.array, dim, -1)
    return tuple(tuple(map(int, row)) for row in tiles.reshape(-1, tiles.shape[-1]))


def _tile_bytes(inst: Instruction, matmul: CollectiveMatmul) -> int:
    """Bytes that a device sends in one step."""
    shape = inst.shape if matmul.operand is None else inst.operands[matmul.operand].shape
    return shape.with_dims(tuple(matmul.sharding.tile_shape(shape.dims))).byte_size


def emit_collective_matmul(
    context: Context, inst: Instruction, lowering: Lowering, matmul: CollectiveMatmul, operands: Sequence[Instruction]
) -> Value:
    """The product; of the operand that is passed on `operands` has the device's own tile."""
    choice = lowering.choice
    local = emit_loop(context.emitter, MatmulLoop(inst, choice, matmul, lowering.shapes[0]), operands)
    if matmul.operand is None:
        return Value(local, inst.shape, matmul.sharding)
    return Value(local, inst.shape, choice.results[0], choice.reduce_kind)


# ---- prices


def _pays(context: Context, inst: Instruction, lowering: Lowering, matmul: CollectiveMatmul) -> bool:
    """Is the loop faster than the collective and the product one after the other?  Both are simulated.

    What was given to the program may be gathered while something else is computed: then there is no wait to hide.  And
    a loop sends padding, too.
    """
    loop = MatmulLoop(inst, lowering.choice, matmul, lowering.shapes[0])
    if loop.size % matmul.num_tiles or (matmul.operand is not None and _is_given(inst.operands[matmul.operand])):
        return False
    known = context.decisions.faster_collective_matmuls
    key = (lowering.choice, matmul, loop.result, *[o.shape for o in inst.operands])
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
    matmul = loop.matmul
    shardings = [matmul.sharding if n == matmul.operand else s for n, s in enumerate(loop.choice.operands)]
    shapes = [local_shape(context, o.shape, s) for o, s in zip(loop.inst.operands, shardings, strict=True)]
    return seconds_alone(context, shapes, lambda emitter, operands: emit(emitter, loop, operands))


def _emit_one_collective(emitter: Emitter, loop: MatmulLoop, operands: Sequence[Instruction]) -> Instruction:
    """The collective and the product, as they would be without a loop (no uneven end is cut off)."""
    dim, groups, gathered = loop.matmul.dim, loop.matmul.groups, loop.matmul.operand
    whole = [emitter.all_gather(x, dim, groups) if n == gathered else x for n, x in enumerate(operands)]
    product = emitter.local(loop.inst, loop.result, whole)
    return product if gathered is not None else emitter.reduce_scatter(product, dim, groups, "add")
