"""Another table to try: activations split over all devices along their batch, weights gathered where they are used.

Floor: partitioner.  Looks at instructions and shardings alone.  A tensor-parallel plan sums activations between the
devices that share a layer's weights.  Where weights are smaller than activations it is cheaper to gather the weights,
each once, and to let each device keep a part of the batch; devices that hold copies of a batch have room for that.
Only values whose sharding is the propagation's own change: annotations, parameters, results and carries stay.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from hlosharding.ir import ELEMENTWISE, Instruction, Module
from hlosharding.partitioner.iteration_space import lift, project
from hlosharding.partitioner.overrides.relaxed_shardings import AGREED
from hlosharding.rules import Signature, signature_of
from hlosharding.sharding import HloSharding, propagate_through_reshape

# Made as their readers want them, where all want the same.
_FOLLOWING = ELEMENTWISE | {"broadcast"}

# Trying costs a whole run of the partitioner: the promise must be clear.
_PROMISE = 0.8


def spread(
    module: Module, shardings: dict[int, HloSharding], bound: Collection[str], num_devices: int
) -> dict[int, HloSharding] | None:
    """`shardings` with batches over all devices; None where that promises nothing."""
    batch = _promising_batch(module, shardings, num_devices)
    if batch is None:
        return None
    table: dict[int, HloSharding] = dict(shardings)
    seen: dict[Instruction, HloSharding] = {}
    for inst in module.entry.instructions:
        given = shardings.get(inst.id)
        if inst.opcode == "tuple" and given is not None and not inst.is_root:
            table[inst.id] = _repacked(inst, given, seen)
        if not inst.shape.is_array or (given is not None and given.is_manual_subgroup()):
            continue
        is_free = inst.opcode not in AGREED and not inst.is_root and inst.name not in bound
        found = _carried(inst, seen, num_devices) if is_free else _over_copies(inst, given, batch)
        if found is not None:
            seen[inst] = found
            if is_free:
                table[inst.id] = found
    for inst in reversed(module.entry.instructions):
        if inst not in seen and inst.opcode in _FOLLOWING and inst.id in shardings and inst.name not in bound:
            asked = {seen.get(u) if u.shape.dims == inst.shape.dims else None for u in inst.users}
            if len(asked) == 1 and (found := asked.pop()) is not None and not inst.is_root:
                seen[inst] = table[inst.id] = found
    return table if seen else None


def _repacked(inst: Instruction, given: HloSharding, seen: dict[Instruction, HloSharding]) -> HloSharding:
    if any(o.shape.is_tuple for o in inst.operands) or any(u.opcode != "get-tuple-element" for u in inst.users):
        return given
    leaves = given.normalize_tuple(len(inst.operands)).leaves
    return HloSharding.tuple([seen.get(o, s) for o, s in zip(inst.operands, leaves, strict=True)])


def _promising_batch(module: Module, shardings: dict[int, HloSharding], num_devices: int) -> tuple[int, ...] | None:
    """Which tile of the batch each device has, where sums of activations are larger than the weights they are of."""
    sums: dict[tuple[int, ...], float] = {}
    weights: dict[tuple[int, ...], dict[Instruction, int]] = {}
    for inst in [i for i in module.entry.instructions if i.opcode == "dot"]:
        given = shardings.get(inst.id)
        if given is None or given.kind != "tiled" or len(_split(given)) != 1:
            continue
        left, right = (shardings.get(o.id) for o in inst.operands)
        ways = _ways(right, inst.dot_dims.rhs_contracting)
        if ways > 1 and ways == _ways(left, inst.dot_dims.lhs_contracting) and ways * given.num_tiles == num_devices:
            batch = _tile_numbers(given)
            sums[batch] = sums.get(batch, 0.0) + 2 * inst.shape.byte_size / given.num_tiles
            weights.setdefault(batch, {})[inst.operands[1]] = 2 * inst.operands[1].shape.byte_size
    promising = [batch for batch in sums if sum(weights[batch].values()) < _PROMISE * sums[batch]]
    return max(promising, key=lambda batch: sums[batch], default=None)


def _split(sharding: HloSharding) -> list[int]:
    return [d for d, ways in enumerate(sharding.data_dims) if ways > 1]


def _tile_numbers(sharding: HloSharding) -> tuple[int, ...]:
    """Of a sharding that splits one dim: the tile of every device."""
    [dim] = _split(sharding)
    return tuple(sharding.tile_index(d)[dim] for d in range(sharding.tiles.array.size))


def _ways(sharding: HloSharding | None, dims: tuple[int, ...]) -> int:
    if sharding is None or sharding.kind != "tiled":
        return 1
    return math.prod([sharding.data_dims[d] for d in dims])


def _over_copies(inst: Instruction, given: HloSharding | None, batch: tuple[int, ...]) -> HloSharding | None:
    """A value split as the batch is, on devices that hold copies: its tiles cut once more."""
    if (
        given is None
        or given.kind != "tiled"
        or given.subgroup_types not in ((), ("replicated",))
        or len(_split(given)) != 1
    ):
        return None
    [dim] = _split(given)
    if _tile_numbers(given) != batch or inst.shape.dims[dim] % len(batch):
        return None
    return HloSharding.tile(given.tiles.array.reshape([len(batch) if d == dim else 1 for d in range(inst.shape.rank)]))


def _carried(inst: Instruction, seen: dict[Instruction, HloSharding], num_devices: int) -> HloSharding | None:
    """The split of the batch that reaches a result from its operands; None where it is contracted, or none comes."""
    if inst.opcode == "get-tuple-element" and inst.operands[0].opcode == "tuple":
        return seen.get(inst.operands[0].operands[inst.tuple_index])
    for number, operand in enumerate(inst.operands):
        found = seen.get(operand)
        if found is None:
            continue
        made = _through(inst, number, operand, found)
        if made is not None and made.kind == "tiled" and made.num_tiles == num_devices and _is_even(inst, made):
            return made
    return None


def _through(inst: Instruction, number: int, operand: Instruction, found: HloSharding) -> HloSharding | None:
    if inst.opcode == "reshape":
        return propagate_through_reshape(operand.shape.dims, inst.shape.dims, found).meaning
    signature = signature_of(inst)
    if not isinstance(signature, Signature) or len(signature.results) != 1:
        return None
    space = lift(found, signature.operands[number], len(signature.factors))
    return project(space, signature.results[0])


def _is_even(inst: Instruction, sharding: HloSharding) -> bool:
    return all(size % ways == 0 for size, ways in zip(inst.shape.dims, sharding.data_dims, strict=True))
