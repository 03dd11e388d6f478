"""Another table of shardings to try: what is made of whole values stays whole where its parts would have to move.

Floor: partitioner.  Looks at instructions and shardings alone.  Propagation carries a split backwards into ops whose
operands every device has: that divides their work, and costs nothing until somebody needs the parts together again, or
along another dim.  Where these ops only look up, copy and combine elements, each device may as well make all of them.

    4 devices, x and ids whole                 propagated               kept whole
    t  f32[256,128] = gather(x, ids)           [4,1]                    whole
    s  f32[512,128] = scatter(0, places, t)    all-to-all, then [4,1]   [4,1], each device from what it has
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hlosharding.ir import GENERATORS, Instruction, Module
from hlosharding.partitioner.iteration_space import as_compared, lift, project, sum_of_parts
from hlosharding.partitioner.overrides.held_values import held_as, only_holds, readers_of, sources_of
from hlosharding.partitioner.overrides.op_sets import BINDING, FUSED, REPEATABLE, ProgramShardings
from hlosharding.reshard import MARGIN
from hlosharding.rules import Signature, signature_of
from hlosharding.sharding import REPLICATED, HloSharding, device_groups_along, replicate_on_dims

Groups = frozenset[frozenset[int]]
"""Devices that would hold the same."""


def kept_whole_shardings(program: ProgramShardings) -> dict[int, HloSharding]:
    """By id, other shardings for such values; empty where that promises nothing."""
    module, shardings = program.module, program.shardings
    given = {i: as_compared(sharding) for i, sharding in shardings.items()}
    ways = _groups_of(module, program.num_partitions)
    walks = [
        _Walk(program, given, groups, whole)
        for groups, whole in zip(ways, _Forward(given, program.annotated, ways).run(module), strict=True)
        if whole
    ]
    for walk in walks:
        walk.run()
    best = max(walks, key=lambda walk: walk.saved, default=None)
    least = MARGIN / 2 * program.prices.comparable_seconds(program.cost)  # for less no program is written and priced
    return {} if best is None or best.saved <= least else dict(best.changed())


def _groups_of(module: Module, num_partitions: int) -> list[Groups]:
    """The devices that hold copies of some value, for every way in which values are copied."""
    found: dict[Groups, None] = {frozenset([frozenset(range(num_partitions))]): None}
    for sharding in module.distinct_shardings:
        for leaf in sharding.leaves:
            if leaf.kind == "tiled" and leaf.subgroup_types == ("replicated",):
                found[_copies(leaf.meaning)] = None
    return list(found)


def _copies(sharding: HloSharding) -> Groups:
    tiles = sharding.tiles.array
    return frozenset(map(frozenset, tiles.reshape(-1, tiles.shape[-1]).tolist()))


@dataclass(slots=True)
class _Forward:
    """What can be made whole of what is there, for all ways to hold copies at once; a set of ways is bits."""

    given: Mapping[int, HloSharding]
    bound: Collection[str]
    ways: Sequence[Groups]
    _unsplit: dict[int, list[HloSharding | None]] = field(default_factory=dict[int, list[HloSharding | None]])
    """By `uid` of a sharding, in each way the same with no dim split inside the groups."""
    _alike: dict[int, int] = field(default_factory=dict[int, int])
    """By `uid` of a sharding, the ways in which no dim is."""

    def run(self, module: Module) -> list[dict[Instruction, HloSharding]]:
        """Per way the values that would be made whole, so sharded."""
        found: list[dict[Instruction, HloSharding]] = [{} for _ in self.ways]
        # The ways in which the devices of a group have, or can make, the same of a value.
        every, known = (1 << len(self.ways)) - 1, dict[Instruction, int]()
        for inst in module.entry.instructions:
            if not _is_repeatable(inst):
                known[inst] = every if inst.opcode in GENERATORS else self._at_rest(inst)
                continue
            ways = every
            for source in sources_of(inst):
                ways &= known[source]
            known[inst] = self._made(inst, ways, found)
        return found

    def _made(self, inst: Instruction, ways: int, found: list[dict[Instruction, HloSharding]]) -> int:
        """The ways in which a value is whole that is made of what is whole in `ways`."""
        given = self.given.get(inst.id)
        if given is None:
            return ways
        at_rest = self._at_rest(inst)
        if not ways & ~at_rest or inst.is_root or inst.name in self.bound:
            return at_rest
        for number, whole in enumerate(self._unsplit[given.uid]):
            if whole is not None and whole is not given and ways >> number & 1:
                found[number][inst] = whole
                at_rest |= 1 << number
        return at_rest

    def _at_rest(self, inst: Instruction) -> int:
        """The ways in which the value is whole as it is sharded."""
        given = self.given.get(inst.id)
        if given is None or not inst.shape.is_array:
            return 0
        if given.uid not in self._alike:
            unsplit = self._unsplit[given.uid] = [_unsplit(given, groups) for groups in self.ways]
            self._alike[given.uid] = sum(1 << number for number, whole in enumerate(unsplit) if whole is given)
        return self._alike[given.uid]


@dataclass(slots=True)
class _Walk:
    """For one way to hold copies."""

    program: ProgramShardings
    given: Mapping[int, HloSharding]
    """The shardings in the spelling in which they are compared."""
    groups: Groups
    whole: dict[Instruction, HloSharding]
    """Values that can be made whole of what is there: so sharded."""
    saved: float = 0.0
    """What a device need not receive, less what it makes besides its parts; as costs are compared."""

    def run(self) -> None:
        """Backwards over the values."""
        # Readers first: what is needed of a source depends on which of them are whole (a list: `_backward` deletes).
        for inst in reversed(list(self.whole)):
            self._backward(inst)

    def changed(self) -> Iterator[tuple[int, HloSharding]]:
        """By id: the values, and the tuples that hold them on their way."""
        for inst, sharding in self.whole.items():
            yield inst.id, sharding
        for packed in dict.fromkeys(user for inst in self.whole for user in inst.users if only_holds(user)):
            found = {n: self.whole[o] for n, o in enumerate(packed.operands) if o in self.whole}
            yield packed.id, held_as(packed, self.program.shardings[packed.id], found)

    def _backward(self, inst: Instruction) -> None:
        """Values whose parts all readers take as they are stay split."""
        given = self.given[inst.id]
        needed = [user for user in readers_of(inst) if user in self.whole or not self._takes_parts(user, inst, given)]
        if not needed:
            del self.whole[inst]
            return
        if inst.opcode not in FUSED or any(user.opcode not in FUSED for user in readers_of(inst)):
            part = inst.shape.byte_size / given.num_tiles
            others = part * (len(next(iter(self.groups))) - 1)
            self.saved -= self.program.prices.compute_seconds(0, 2 * others, contracts=False)  # written and read
        # The dearest alone: what is moved for one reader is there for the others.
        self.saved += max((self._moving(user, inst, given) for user in needed if user not in self.whole), default=0.0)

    def _moving(self, user: Instruction, inst: Instruction, given: HloSharding) -> float:
        """What it takes to have the value whole, or, where it is only reduced, the sum of its parts."""
        price, signature = self.program.prices.reshard_seconds, signature_of(user)
        if user.opcode != "reduce" or not isinstance(signature, Signature) or len(signature.results) != 1:
            return price(inst.shape, given, self.whole[inst], None)
        made = sum_of_parts(given, signature.operands[0], signature.results[0], len(signature.factors))
        return price(user.shape, made, as_compared(self.program.shardings.get(user.id)), "add")

    def _takes_parts(self, user: Instruction, inst: Instruction, given: HloSharding) -> bool:
        """Does an op take the value's parts as they are, for its own sharding?"""
        made = self.program.shardings.get(user.id)
        if made is None:
            return True
        return all(asked is given for asked in _asked(user, inst, made))


def _asked(user: Instruction, inst: Instruction, made: HloSharding) -> Iterator[HloSharding]:
    """In which shardings an op wants the value, that is one or more of its operands."""
    places = [n for n, operand in enumerate(sources_of(user)) if operand is inst]
    if user.opcode == "tuple" and all(o.shape.is_array for o in user.operands):
        leaves = made.normalize_tuple(len(user.operands)).leaves
        yield from (as_compared(leaves[n]) for n in places)
        return
    if user.opcode in ("copy", "get-tuple-element"):
        yield as_compared(made)
        return
    signature = signature_of(user) if user.opcode not in BINDING and user.shape.is_array else None
    if isinstance(signature, Signature):
        space = lift(as_compared(made), signature.results[0], len(signature.factors))
        yield from (project(space, signature.operands[n]) for n in places)


def _is_repeatable(inst: Instruction) -> bool:
    if inst.opcode == "get-tuple-element":
        return inst.shape.is_array and only_holds(inst.operands[0])
    return inst.opcode in REPEATABLE and inst.shape.is_array


def _unsplit(sharding: HloSharding, groups: Groups) -> HloSharding | None:
    if sharding.kind != "tiled":
        return sharding if sharding is REPLICATED else None
    if set(sharding.subgroup_types) - {"replicated"}:
        return None
    copies = _copies(sharding) if sharding.subgroup_types else frozenset()
    if all(any(group <= same for same in copies) for group in groups):
        return sharding
    for dim, ways in enumerate(sharding.data_dims):
        if ways > 1 and frozenset(map(frozenset, device_groups_along(sharding, (dim,)))) == groups:
            return replicate_on_dims(sharding, (dim,)).meaning
    return None
