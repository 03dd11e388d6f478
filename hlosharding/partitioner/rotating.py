"""A concatenation that only rotates (`jnp.roll`): two slices of one value joined in the other order.

Floor: partitioner.  Each device needs the end of one neighbour's tile and the start of the next one's: at most two
permutes, of no more elements than really move.  As XLA's rotate rewrite, but for any distance.
"""

from __future__ import annotations

import numpy as np

from hlosharding.ir import Instruction
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.declared import lower_declared
from hlosharding.partitioner.emitter import Emitter
from hlosharding.partitioner.value import AnyValue, Pending, Value
from hlosharding.rules import Signature, signature_of
from hlosharding.sharding import HloSharding


def concatenate(context: Context, inst: Instruction) -> AnyValue | Pending:
    """A rotation along an evenly split dim is passed on between neighbours; anything else follows its signature."""
    found = rotation(inst)
    if found is not None:
        source, shift = found
        value, dim = context.array(source), inst.dimensions[0]
        sharding = context.wanted_leaves(inst)[0] or value.whole_sharding
        ways = sharding.num_tiles_along(dim) if sharding.kind == "tiled" else 1
        if ways > 1 and inst.shape.dims[dim] % ways == 0:
            moved = context.reshard(value, sharding, "operand of a rotation")
            context.emitter.reason = "rotation"
            local = _rotated(context.emitter, moved.local, sharding, dim, shift)
            return Value(local, inst.shape, sharding)
    signature = signature_of(inst)
    assert isinstance(signature, Signature)
    return lower_declared(context, inst, signature)


def rotation(inst: Instruction) -> tuple[Instruction, int] | None:
    """(x, k) where the result's element i is x's element (i + k) mod size, or None."""
    if len(inst.operands) != 2 or any(o.opcode != "slice" for o in inst.operands):
        return None
    tail, head = inst.operands
    source, dim = tail.operands[0], inst.dimensions[0]
    if head.operands[0] is not source or source.shape.dims != inst.shape.dims:
        return None
    for part in (tail, head):
        for d, cut in enumerate(part.slice_dims):
            if cut.stride != 1 or (d != dim and (cut.start, cut.limit) != (0, source.shape.dims[d])):
                return None
    shift = tail.slice_dims[dim].start
    fits = head.slice_dims[dim].start == 0 and head.slice_dims[dim].limit == shift
    return (source, shift) if fits and tail.slice_dims[dim].limit == source.shape.dims[dim] else None


def _rotated(emitter: Emitter, x: Instruction, sharding: HloSharding, dim: int, shift: int) -> Instruction:
    tile = x.shape.dims[dim]
    hops, rest = divmod(shift, tile)
    parts = [_from_neighbour(emitter, _cut(emitter, x, dim, rest, tile), sharding, dim, hops)]
    if rest:
        parts.append(_from_neighbour(emitter, _cut(emitter, x, dim, 0, rest), sharding, dim, hops + 1))
    return emitter.concatenate(parts, dim)


def _cut(emitter: Emitter, x: Instruction, dim: int, start: int, limit: int) -> Instruction:
    starts, limits = [0] * x.shape.rank, list(x.shape.dims)
    starts[dim], limits[dim] = start, limit
    return emitter.slice(x, starts, limits)


def _from_neighbour(emitter: Emitter, x: Instruction, sharding: HloSharding, dim: int, hops: int) -> Instruction:
    """x of the device whose tile lies `hops` further along `dim`, around the end."""
    tiles = sharding.tiles.array
    if hops % tiles.shape[dim] == 0:
        return x
    sources = np.roll(tiles, -hops, axis=dim).reshape(-1)
    return emitter.collective_permute(x, [(int(s), int(t)) for s, t in zip(sources, tiles.reshape(-1), strict=True)])
