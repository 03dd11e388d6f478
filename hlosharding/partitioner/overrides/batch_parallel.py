"""Another table of shardings to try: activations split over all devices along their batch, weights gathered.

Floor: partitioner.  Looks at instructions and shardings alone.  A tensor-parallel plan sums activations between the
devices that share a layer's weights.  Where weights are smaller than activations it is cheaper to all-gather the
weights, each once, and to let each device keep a part of the batch (as FSDP does); devices that hold copies of a batch
have room for that.  Only values whose sharding is the propagation's own change: annotations, parameters, results and
loop carries stay.

    8 devices, batch over 2, model over 4        propagated              batch-parallel
    x  f32[512,16]                               [2,1] and 4 copies      [8,1]
    d  f32[512,16] = dot(x, w)                   all-reduce over 4       all-gather w, nothing to reduce
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from hlosharding.ir import Instruction, Module
from hlosharding.partitioner.iteration_space import lift, project
from hlosharding.partitioner.overrides.op_sets import BINDING, FOLLOW_USERS, ProgramShardings
from hlosharding.rules import Signature, signature_of
from hlosharding.sharding import HloSharding, propagate_through_reshape, uneven_dims

# Trying costs a whole run of the partitioner: weights must be so much smaller than the sums of activations.
_MOST_WEIGHTS = 0.8

Batch = tuple[int, ...]
"""Which tile of the batch each device has."""


def batch_parallel_shardings(program: ProgramShardings) -> dict[int, HloSharding]:
    """By id, shardings with batches over all devices; empty where that promises nothing."""
    batch = _promising_batch(program.module, program.shardings, program.num_partitions)
    if batch is None:
        return {}
    walk = _Walk(program.shardings, program.annotated, batch, program.num_partitions)
    for inst in program.module.entry.instructions:
        walk.forward(inst)
    for inst in reversed(program.module.entry.instructions):
        walk.backward(inst)
    return walk.changed


@dataclass(slots=True)
class _Walk:
    """What changes, instruction by instruction."""

    shardings: Mapping[int, HloSharding]
    """The propagated ones."""
    bound: Collection[str]
    batch: Batch
    num_devices: int
    changed: dict[int, HloSharding] = field(default_factory=dict[int, HloSharding])
    seen: dict[Instruction, HloSharding] = field(default_factory=dict[Instruction, HloSharding])
    """Values that have, or could be cut into, a batch over all devices: so sharded."""

    def forward(self, inst: Instruction) -> None:
        """Carry the split from operands to a result; it starts at values that others bind, on devices with copies."""
        given = self.shardings.get(inst.id)
        if inst.opcode == "tuple" and given is not None and not inst.is_root:
            self._change(inst, self._tuple_sharding(inst, given))
        if not inst.shape.is_array or (given is not None and given.is_manual_subgroup()):
            return
        is_free = inst.opcode not in BINDING and not inst.is_root and inst.name not in self.bound
        found = self._from_operands(inst) if is_free else _over_copies(inst, given, self.batch)
        if found is not None:
            self.seen[inst] = found
            if is_free:
                self._change(inst, found)

    def backward(self, inst: Instruction) -> None:
        """Values that no split reached take the one in which all their users want them."""
        if inst in self.seen or inst.opcode not in FOLLOW_USERS or inst.is_root:
            return
        if inst.id not in self.shardings or inst.name in self.bound:
            return
        asked = {self.seen.get(u) if u.shape.dims == inst.shape.dims else None for u in inst.users}
        if len(asked) == 1 and (found := asked.pop()) is not None:
            self.seen[inst] = found
            self._change(inst, found)

    def _change(self, inst: Instruction, found: HloSharding) -> None:
        if found is not self.shardings.get(inst.id):
            self.changed[inst.id] = found

    def _tuple_sharding(self, inst: Instruction, given: HloSharding) -> HloSharding:
        """That of its elements, where only single elements are read again."""
        if any(o.shape.is_tuple for o in inst.operands) or any(u.opcode != "get-tuple-element" for u in inst.users):
            return given
        leaves = given.normalize_tuple(len(inst.operands)).leaves
        return HloSharding.tuple([self.seen.get(o, s) for o, s in zip(inst.operands, leaves, strict=True)])

    def _from_operands(self, inst: Instruction) -> HloSharding | None:
        """The split of the batch that reaches a result; None where it is contracted, or none comes."""
        if inst.opcode == "get-tuple-element" and inst.operands[0].opcode == "tuple":
            return self.seen.get(inst.operands[0].operands[inst.tuple_index])
        for number, operand in enumerate(inst.operands):
            found = self.seen.get(operand)
            made = None if found is None else _through_op(inst, number, found)
            if made is None or made.kind != "tiled" or made.num_tiles != self.num_devices:
                continue
            if not uneven_dims(made, inst.shape.dims):
                return made
        return None


def _through_op(inst: Instruction, number: int, sharding: HloSharding) -> HloSharding | None:
    """How operand `number`'s sharding shards the result."""
    if inst.opcode == "reshape":
        return propagate_through_reshape(inst.operands[number].shape.dims, inst.shape.dims, sharding).meaning
    signature = signature_of(inst)
    if not isinstance(signature, Signature) or len(signature.results) != 1:
        return None
    space = lift(sharding, signature.operands[number], len(signature.factors))
    return project(space, signature.results[0])


def _over_copies(inst: Instruction, given: HloSharding | None, batch: Batch) -> HloSharding | None:
    """A value split as the batch is, on devices that hold copies: its tiles cut once more."""
    if given is None or given.kind != "tiled" or given.subgroup_types not in ((), ("replicated",)):
        return None
    split = _split_dims(given)
    if len(split) != 1 or _tile_numbers(given, split[0]) != batch or inst.shape.dims[split[0]] % len(batch):
        return None
    dims = [len(batch) if d == split[0] else 1 for d in range(inst.shape.rank)]
    return HloSharding.tile(given.tiles.array.reshape(dims))


def _split_dims(sharding: HloSharding) -> list[int]:
    return [d for d, num_tiles in enumerate(sharding.data_dims) if num_tiles > 1]


@lru_cache(maxsize=1 << 12)
def _tile_numbers(sharding: HloSharding, dim: int) -> Batch:
    """Of a sharding that splits one dim: the tile of every device."""
    return tuple(sharding.tile_index(d)[dim] for d in range(sharding.tiles.array.size))


# ---- does it promise anything?


def _promising_batch(module: Module, shardings: Mapping[int, HloSharding], num_devices: int) -> Batch | None:
    """The batch for which sums of activations are larger than the weights they are of; of several the largest."""
    sums: dict[Batch, float] = {}
    times = module.stands_for.get
    weights: dict[Batch, dict[Instruction, int]] = {}
    for inst in module.entry.instructions:
        batch = _summed_batch(inst, shardings, num_devices) if inst.opcode == "dot" else None
        if batch is not None:
            activation, weight = 2 * inst.shape.byte_size / shardings[inst.id].num_tiles, inst.operands[1]
            sums[batch] = sums.get(batch, 0.0) + times(inst.id, 1) * activation
            weights.setdefault(batch, {})[weight] = times(weight.id, 1) * 2 * weight.shape.byte_size
    promising = [batch for batch in sums if sum(weights[batch].values()) < _MOST_WEIGHTS * sums[batch]]
    return max(promising, key=lambda batch: sums[batch], default=None)


def _summed_batch(dot: Instruction, shardings: Mapping[int, HloSharding], num_devices: int) -> Batch | None:
    """The batch of a product that is split along one dim, and summed over all devices with the same tile of it."""
    given = shardings.get(dot.id)
    if given is None or given.kind != "tiled" or len(split := _split_dims(given)) != 1:
        return None
    left, right = (shardings.get(o.id) for o in dot.operands)
    parts = _num_tiles_along(right, dot.dot_dims.rhs_contracting)
    if parts == 1 or parts != _num_tiles_along(left, dot.dot_dims.lhs_contracting):
        return None
    return _tile_numbers(given, split[0]) if parts * given.num_tiles == num_devices else None


def _num_tiles_along(sharding: HloSharding | None, dims: tuple[int, ...]) -> int:
    if sharding is None or sharding.kind != "tiled":
        return 1
    return math.prod([sharding.data_dims[d] for d in dims])
