"""How a batch over all devices spreads through a program: forward along what carries it, through loops and barriers.

Floor: partitioner.  Looks at instructions and shardings alone; what it would move is `batch_parallel`'s business.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from hlosharding.ir import Computation, Instruction, hands_on, while_parts
from hlosharding.partitioner.iteration_space import lift, project
from hlosharding.partitioner.overrides.held_values import held_as, is_packed, only_holds, readers_of, sources_of
from hlosharding.partitioner.overrides.op_sets import BINDING, FOLLOW_USERS, ProgramShardings
from hlosharding.rules import Nothing, Signature, signature_of
from hlosharding.sharding import HloSharding, propagate_through_reshape, uneven_dims

Batch = tuple[int, ...]
"""Which tile of the batch each device has."""
_MOST_ROUNDS = 4
"""In which a loop's carry must be agreed on: mostly one finds stacks of rows, and the next that they stay."""


@dataclass(slots=True)
class BatchWalk:
    """What changes, instruction by instruction, for one batch."""

    program: ProgramShardings
    batch: Batch
    order: Batch
    """Which each device has then: as the batch, or as a value that others bind, to which nothing is permuted then."""
    changed: dict[int, HloSharding] = field(default_factory=dict[int, HloSharding])
    seen: dict[Instruction, HloSharding] = field(default_factory=dict[Instruction, HloSharding])
    """Values that have, or could be brought into, a batch over all devices: so sharded."""
    follows: frozenset[Instruction] = frozenset()
    """What a loop carries that may be made as its readers want it."""

    def through(self, computation: Computation) -> None:
        """Over its instructions, forward and back."""
        for inst in computation.instructions:
            self._forward(inst)
        for inst in reversed(computation.instructions):
            self._backward(inst)
        # Last, when all that tuples hold has got its sharding.
        for inst in computation.instructions:
            self._hold(inst)

    def _forward(self, inst: Instruction) -> None:
        """Carry the split from operands to a result; it starts at values that others bind."""
        given = self.program.shardings.get(inst.id)
        if inst.opcode == "while":
            self._through_loop(inst)
        elif inst.opcode == "opt-barrier" and is_packed(inst.operands[0]):
            [packed] = inst.operands
            self._carry(
                [packed, inst], {n: self.seen[o] for n, o in enumerate(packed.operands) if o.id in self.changed}
            )
        is_known = inst in self.seen or (given is not None and given.is_manual_subgroup())
        if not inst.shape.is_array or is_known:
            return
        free = is_free(inst, self.program)
        found = self._from_operands(inst) if free else self._over_all(inst, given)
        if found is not None:
            self._see(inst, found, free)

    def _see(self, inst: Instruction, found: HloSharding, is_changed: bool = True) -> None:
        self.seen[inst] = found
        if is_changed and inst.name not in self.program.annotated:
            self._change(inst, found)

    def _backward(self, inst: Instruction) -> None:
        """Values that no split reached take the one in which all their users want them."""
        may_follow = inst in self.follows or (_is_made(inst) and is_free(inst, self.program))
        if inst in self.seen or not may_follow or inst.id not in self.program.shardings:
            return
        # A trip that hands on what it was given wants it in no way of its own: it lies there as it is carried.
        users = [u for u in readers_of(inst) if not (inst in self.follows and u.is_root)]
        asked = {self.seen.get(u) if u.shape.is_array and u.shape.dims == inst.shape.dims else None for u in users}
        if len(asked) == 1 and (found := asked.pop()) is not None:
            self._see(inst, found)

    def _change(self, inst: Instruction, found: HloSharding) -> None:
        if found is not self.program.shardings.get(inst.id):
            self.changed[inst.id] = found

    def _hold(self, inst: Instruction) -> None:
        """A tuple of which only single elements are read again holds them as they lie."""
        given = self.program.shardings.get(inst.id)
        if given is not None and only_holds(inst):
            found = {n: self.seen[o] for n, o in enumerate(inst.operands) if o in self.seen}
            self._change(inst, held_as(inst, given, found))

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

    def _over_all(self, inst: Instruction, given: HloSharding | None) -> HloSharding | None:
        """A value split as the batch is, with all devices along that dim."""
        if given is None or given.kind != "tiled" or given.subgroup_types not in ((), ("replicated",)):
            return None
        for dim, ways in enumerate(given.data_dims):
            if ways == 1 or inst.shape.dims[dim] % len(self.batch):
                continue
            if _tile_numbers(_along(given, dim), dim) in (self.batch, self.order):
                return _in_order(self.order, dim, len(given.data_dims))
        return None

    def _through_loop(self, loop: Instruction) -> None:
        """What a loop carries of the batch, as far as each trip hands on what it was given."""
        [start], (body, condition) = loop.operands, while_parts(loop)
        if not is_packed(start) or not is_packed(body.root):
            return
        found, refused = self._given_to(start, body), set[int]()
        made = frozenset(n for n, operand in enumerate(start.operands) if _is_made(operand))
        for _ in range(_MOST_ROUNDS):
            inside = self._inside(body, found, made - refused)
            handed_on = {n: inside.seen[o] for n, o in enumerate(body.root.operands) if o in inside.seen}
            agreed = {n: sharding for n, sharding in found.items() if handed_on.get(n) is sharding}
            # What a trip does not hand on as it was given stays as it was propagated, or two rounds could take turns.
            refused |= found.keys() - agreed.keys()
            more = {n: s for n, s in handed_on.items() if n in made - found.keys() - refused}
            if found and not more and len(agreed) == len(found):
                self._take_over(inside, found, start)
                self._carry([start, loop, body.root, body.parameters[0], condition.parameters[0]], found)
                return
            found = agreed | more

    def _take_over(self, inside: BatchWalk, carried: Mapping[int, HloSharding], start: Instruction) -> None:
        """What changes in a body, and what it is given first."""
        self.seen |= inside.seen
        self.changed |= inside.changed
        for number, sharding in carried.items():
            if start.operands[number] not in self.seen:
                self._see(start.operands[number], sharding)

    def _given_to(self, start: Instruction, body: Computation) -> dict[int, HloSharding]:
        """By number, what comes of the batch; not what others bind and no trip changes, as weights."""
        seen = {n: self.seen[o] for n, o in enumerate(start.operands) if o in self.seen}
        return {n: s for n, s in seen.items() if start.operands[n].id in self.changed or not hands_on(body, n)}

    def _inside(self, body: Computation, carried: Mapping[int, HloSharding], made: Collection[int]) -> BatchWalk:
        """A body that carries values so; those whose numbers are `made` might be carried otherwise, too."""
        elements = body.parameters[0].users
        follows = frozenset(e for e in elements if e.tuple_index in made)
        walk = BatchWalk(self.program, self.batch, self.order, follows=follows)
        for element in elements:
            if element.tuple_index in carried:
                walk._see(element, carried[element.tuple_index])
        walk.through(body)
        return walk

    def _carry(self, packed: Sequence[Instruction], carried: Mapping[int, HloSharding]) -> None:
        """Tuples hold values so, and so do their elements."""
        for inst in packed:
            if (given := self.program.shardings.get(inst.id)) is not None:
                self._change(inst, held_as(inst, given, carried))
            for user in inst.users:
                if user.opcode == "get-tuple-element" and user.tuple_index in carried:
                    self._see(user, carried[user.tuple_index])


def is_free(inst: Instruction, program: ProgramShardings) -> bool:
    """May its sharding change?  An element of what control flow gives back lies as that has it."""
    if inst.opcode == "get-tuple-element" and inst.operands[0].opcode != "tuple":
        return False
    return inst.opcode not in BINDING and not inst.is_root and inst.name not in program.annotated


def _is_made(inst: Instruction) -> bool:
    """Is it made as its users want it?"""
    while inst.opcode == "get-tuple-element" and only_holds(inst.operands[0]):
        [inst] = sources_of(inst)
    return inst.opcode in FOLLOW_USERS


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


def batches_of(given: HloSharding, num_devices: int) -> Iterator[Batch]:
    """Each dim that is split, if it were over all devices."""
    for dim, ways in enumerate(given.data_dims):
        if 1 < ways < num_devices and given.subgroup_types in ((), ("replicated",)):
            yield _tile_numbers(_along(given, dim), dim)


def orders_of(given: HloSharding, num_devices: int) -> Iterator[Batch]:
    """Of a value that is split over all devices along one dim, which tile each has."""
    if num_devices in given.data_dims:
        yield _tile_numbers(given, given.data_dims.index(num_devices))


@lru_cache(maxsize=1 << 12)
def _in_order(order: Batch, dim: int, rank: int) -> HloSharding:
    """One dim over all devices, of which each has the tile that `order` says."""
    dims = [len(order) if d == dim else 1 for d in range(rank)]
    return HloSharding.tile(np.argsort(order).reshape(dims)).meaning


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
