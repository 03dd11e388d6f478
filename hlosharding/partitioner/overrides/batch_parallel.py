"""Another table of shardings to try: activations split over all devices along their batch.

Floor: partitioner.  Looks at instructions and shardings alone.  A tensor-parallel plan sums activations between the
devices that share a layer's weights; one that also splits rows of an image, or times of a sequence, moves halos, and
whole arrays where an op mixes them.  Where less moves if each device keeps a part of the batch (data parallelism, or
FSDP where weights are split), that is another program to try.  Only values whose sharding is the propagation's own
change: annotations, parameters, results and loop carries stay.

    8 devices, batch over 2, model over 4        propagated              batch-parallel
    x  f32[512,16]                               [2,1] and 4 copies      [8,1]
    d  f32[512,16] = dot(x, w)                   all-reduce over 4       all-gather w, nothing to reduce
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from hlosharding.ir import GENERATORS, Instruction
from hlosharding.partitioner.iteration_space import as_compared, lift, project, project_result
from hlosharding.partitioner.overrides.op_sets import BINDING, FOLLOW_USERS, ProgramShardings
from hlosharding.reshard import least_of
from hlosharding.rules import Nothing, Signature, signature_of
from hlosharding.sharding import HloSharding, propagate_through_reshape, uneven_dims

# Trying costs a whole run of the partitioner.  A program that moves more bytes may still take less time, as nobody
# waits long for weights, and for sums of their gradients: of 31 models nine were faster so, which received 0.3 to 0.95
# at least of what they had, and stages of a billion weights by eight tensors 1.8 and 2.2; two with more, by 3 %.
_MOST_RECEIVED = 2.4
_LEAST_CHANGED = 0.5
"""Of the values that are split: what leaves more of them as they are is another plan with moves at its borders."""
_MOST_BATCHES = 3
"""Dims by which most values are split: batch, sequence and hidden dims."""

Batch = tuple[int, ...]
"""Which tile of the batch each device has."""
_Move = tuple[Instruction, HloSharding, HloSharding]
"""A value, from where, to where."""


def batch_parallel_shardings(program: ProgramShardings) -> dict[int, HloSharding]:
    """By id, shardings with batches over all devices; empty where that promises nothing."""
    split = [i for i in program.module.entry.instructions if _is_free(i, program) and _is_split(i, program)]
    batches = Counter(batch for i in split for batch in _batches(program.shardings[i.id], program.num_partitions))
    most, best = _MOST_RECEIVED * program.cost.mean_bytes, dict[int, HloSharding]()
    for batch, _ in batches.most_common(_MOST_BATCHES):
        walk = _Walk(program, batch)
        walk.run()
        if len(walk.changed) >= max(1, _LEAST_CHANGED * len(split)) and (received := walk.received(most)) < most:
            most, best = received, walk.changed
    return best


def _is_free(inst: Instruction, program: ProgramShardings) -> bool:
    """May its sharding change?  An element of what control flow gives back lies as that has it."""
    if inst.opcode == "get-tuple-element" and inst.operands[0].opcode != "tuple":
        return False
    return inst.opcode not in BINDING and not inst.is_root and inst.name not in program.annotated


def _is_split(inst: Instruction, program: ProgramShardings) -> bool:
    given = program.shardings.get(inst.id)
    return inst.shape.is_array and given is not None and given.kind == "tiled"


@dataclass(slots=True)
class _Walk:
    """What changes, instruction by instruction, for one batch."""

    program: ProgramShardings
    batch: Batch
    changed: dict[int, HloSharding] = field(default_factory=dict[int, HloSharding])
    seen: dict[Instruction, HloSharding] = field(default_factory=dict[Instruction, HloSharding])
    """Values that have, or could be brought into, a batch over all devices: so sharded."""

    def run(self) -> None:
        instructions = self.program.module.entry.instructions
        for inst in instructions:
            self._forward(inst)
        for inst in reversed(instructions):
            self._backward(inst)

    def received(self, most: float) -> float:
        """Bytes that a device receives then at least: of what comes into the batch, of what leaves it, and of sums over
        it; of more than `most` only so many."""
        moves = dict.fromkeys(move for i in self.program.module.entry.instructions for move in self._moves(i))
        total = 0.0
        for value, source, target in moves:
            if total > most:
                break
            shape = value.shape
            lacked = least_of(source, target, shape.dims, self.program.num_partitions).elements
            total += lacked * shape.byte_size / max(1, shape.size)
        return total

    def _forward(self, inst: Instruction) -> None:
        """Carry the split from operands to a result; it starts at values that others bind."""
        given = self.program.shardings.get(inst.id)
        if inst.opcode == "tuple" and given is not None and not inst.is_root:
            self._change(inst, self._tuple_sharding(inst, given))
        if not inst.shape.is_array or (given is not None and given.is_manual_subgroup()):
            return
        is_free = _is_free(inst, self.program)
        found = self._from_operands(inst) if is_free else _over_all(inst, given, self.batch)
        if found is not None:
            self.seen[inst] = found
            if is_free:
                self._change(inst, found)

    def _backward(self, inst: Instruction) -> None:
        """Values that no split reached take the one in which all their users want them."""
        if inst in self.seen or inst.opcode not in FOLLOW_USERS or not _is_free(inst, self.program):
            return
        if inst.id not in self.program.shardings:
            return
        asked = {self.seen.get(u) if u.shape.dims == inst.shape.dims else None for u in inst.users}
        if len(asked) == 1 and (found := asked.pop()) is not None:
            self.seen[inst] = found
            self._change(inst, found)

    def _change(self, inst: Instruction, found: HloSharding) -> None:
        if found is not self.program.shardings.get(inst.id):
            self.changed[inst.id] = found

    def _tuple_sharding(self, inst: Instruction, given: HloSharding) -> HloSharding:
        """That of its elements, where only single elements are read again."""
        if any(o.shape.is_tuple for o in inst.operands) or any(u.opcode != "get-tuple-element" for u in inst.users):
            return given
        leaves = given.normalize_tuple(len(inst.operands)).leaves
        return HloSharding.tuple([self.seen.get(o, s) for o, s in zip(inst.operands, leaves, strict=True)])

    def _from_operands(self, inst: Instruction) -> HloSharding | None:
        """The split of the batch that reaches a result; None where ops mix its elements, or none comes."""
        if inst.opcode == "get-tuple-element":
            return self.seen.get(inst.operands[0].operands[inst.tuple_index])
        for number, operand in enumerate(inst.operands):
            found = self.seen.get(operand)
            made = None if found is None else _through_op(inst, number, found)
            if made is None or made.kind != "tiled" or made.num_tiles != len(self.batch):
                continue
            if not uneven_dims(made, inst.shape.dims):
                return made
        return None

    def _lies(self, inst: Instruction) -> HloSharding:
        """Of an annotation what it is a copy of: the nearer one is read."""
        while inst.opcode == "copy" and inst.operands[0] in self.seen:
            [inst] = inst.operands
        return as_compared(self.changed.get(inst.id, self.program.shardings.get(inst.id)))

    def _moves(self, inst: Instruction) -> Iterator[_Move]:
        """What an op moves of values that it reads, or makes, of the batch."""
        signature = signature_of(inst)
        if inst.opcode == "tuple":
            yield from self._moves_into_tuple(inst)
        elif not isinstance(signature, Signature) or not inst.shape.is_array:
            return
        elif (made := self.seen.get(inst)) is not None:
            space = lift(made, signature.results[0], len(signature.factors))
            for operand, dims in zip(inst.operands, signature.operands, strict=True):
                lies, needed = self._lies(operand), project(space, dims)
                if lies is not needed and operand.opcode not in GENERATORS | {"broadcast"}:
                    yield operand, lies, needed
        else:
            yield from self._moves_out(inst, signature)

    def _moves_into_tuple(self, inst: Instruction) -> Iterator[_Move]:
        """Values as they are given back, or as a loop carries them."""
        given = self.program.shardings.get(inst.id)
        if given is None or inst.id in self.changed or not all(o.shape.is_array for o in inst.operands):
            return
        for operand, leaf in zip(inst.operands, given.normalize_tuple(len(inst.operands)).leaves, strict=False):
            if operand.id in self.changed and self.changed[operand.id] is not as_compared(leaf):
                yield operand, self.changed[operand.id], as_compared(leaf)

    def _moves_out(self, inst: Instruction, signature: Signature) -> Iterator[_Move]:
        """Sums over the batch, or else what is read of it as it was."""
        for operand, dims in zip(inst.operands, signature.operands, strict=True):
            if operand.id not in self.changed:
                continue
            space = lift(self.changed[operand.id], dims, len(signature.factors))
            kept = {factor for place in signature.results[0] for factor in place}
            summed = tuple(f for f, ways in enumerate(space.data_dims) if ways > 1 and f not in kept)
            if summed:
                yield inst, project_result(space, signature.results[0], summed), self._lies(inst)
                return
            yield operand, self.changed[operand.id], as_compared(self.program.shardings.get(operand.id))


def _through_op(inst: Instruction, number: int, sharding: HloSharding) -> HloSharding | None:
    """How operand `number`'s sharding shards the result; None where the op mixes elements along a dim that is split."""
    if inst.opcode == "reshape":
        return propagate_through_reshape(inst.operands[number].shape.dims, inst.shape.dims, sharding).meaning
    signature = signature_of(inst)
    if not isinstance(signature, Signature) or len(signature.results) != 1:
        return None
    space = lift(sharding, signature.operands[number], len(signature.factors))
    if any(
        ways > 1 and factor.owes != Nothing() for ways, factor in zip(space.data_dims, signature.factors, strict=False)
    ):
        return None
    return project(space, signature.results[0])


def _batches(given: HloSharding, num_devices: int) -> Iterator[Batch]:
    """Each dim that is split, if it were over all devices."""
    for dim, ways in enumerate(given.data_dims):
        if 1 < ways < num_devices and given.subgroup_types in ((), ("replicated",)):
            yield _tile_numbers(_along(given, dim), dim)


def _over_all(inst: Instruction, given: HloSharding | None, batch: Batch) -> HloSharding | None:
    """A value split as the batch is, with all devices along that dim."""
    if given is None or given.kind != "tiled" or given.subgroup_types not in ((), ("replicated",)):
        return None
    for dim, ways in enumerate(given.data_dims):
        if ways > 1 and inst.shape.dims[dim] % len(batch) == 0:
            found = _along(given, dim)
            if _tile_numbers(found, dim) == batch:
                return found
    return None


@lru_cache(maxsize=1 << 12)
def _along(given: HloSharding, dim: int) -> HloSharding:
    """All devices along one dim: what splits other dims, and copies, cut its tiles once more."""
    tiles, rank = given.tiles.array, len(given.data_dims)
    others = [d for d in range(tiles.ndim) if d != dim]
    dims = [tiles.size if d == dim else 1 for d in range(rank)]
    return HloSharding.tile(tiles.transpose([dim, *others]).reshape(dims)).meaning


@lru_cache(maxsize=1 << 12)
def _tile_numbers(sharding: HloSharding, dim: int) -> Batch:
    """Of a sharding that splits one dim: the tile of every device."""
    return tuple(sharding.tile_index(d)[dim] for d in range(sharding.tiles.array.size))
