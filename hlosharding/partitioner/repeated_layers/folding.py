"""A deep program without its middle layers: what is decided for the layers that are left holds for all.

Floor: partitioner.

    layers    0 1 2 3 4 5 6 7 8 9        folded    0 1 | 8 9
    layer 8 reads what layer 1 makes, as it read layer 7; the backward layers the other way round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TypeVar

from hlosharding.ir import Instruction, Module, excerpt
from hlosharding.partitioner.overrides import ShardingTable
from hlosharding.partitioner.repeated_layers.places import OUTSIDE
from hlosharding.partitioner.repeated_layers.repeats import Family, Repeats, repeats_of
from hlosharding.sharding import HloSharding

T = TypeVar("T")


class LayersDiffer(Exception):
    """Layers that looked alike were not decided alike."""


@dataclass(frozen=True)
class Folded:
    """A program, and what is left of it without its middle layers."""

    source: Module
    module: Module
    """Without them; instructions keep their ids."""
    kept: Mapping[Instruction, Instruction]
    """What the instructions that are left became."""
    repeats: Repeats

    @cached_property
    def entry(self) -> Sequence[Instruction]:
        """Of the whole program: an instruction's place in it is its position in `repeats`."""
        return self.source.entry.instructions

    @cached_property
    def alike(self) -> list[tuple[int, int, Sequence[int]]]:
        """Of each kind the instructions of the layers before and behind the gap, and those that are left out."""
        return [
            (row[family.first - 1], row[family.end], row[family.first : family.end])
            for family in self.repeats.families
            for row in family.rows
        ]

    @cached_property
    def stands_for(self) -> dict[int, int]:
        """By id, for how many an instruction stands; for itself alone where that is not said."""
        first = self.entry[0].id
        return {first + inst: len(others) + 1 for inst, _, others in self.alike}

    @cached_property
    def kept_results(self) -> list[int]:
        """The numbers of the results that are left."""
        return [n for n, o in enumerate(self.source.entry.root.operands) if o in self.kept]

    @cached_property
    def leaves(self) -> dict[int, list[int]]:
        """The results that an instruction is, of the whole program."""
        return _places(self.source.entry.root)

    @cached_property
    def larger(self) -> list[tuple[int, Folded]]:
        """Of each stack: how many layers are left out, and the program with one of these more."""
        return [(len(family.dropped), self._with_one_more(family)) for family in self.repeats.families]

    def _with_one_more(self, family: Family) -> Folded:
        dropped = self.repeats.dropped.copy()
        dropped[[row[family.first] for row in family.rows]] = False
        families = [replace(f, first=f.first + 1) if f is family else f for f in self.repeats.families]
        found = _without(self.source, replace(self.repeats, families=tuple(families), dropped=dropped))
        if found is None:
            raise LayersDiffer
        return found

    def part_of(self, whole: ShardingTable) -> ShardingTable:
        """A table of the whole program as one of the folded."""
        root, ids = self.module.entry.root, {i.id for i in self.module.instructions}
        shardings = {inst: s for inst, s in whole.shardings.items() if inst in ids}
        if root.opcode == "tuple":
            leaves = shardings[root.id].normalize_tuple(len(self.source.entry.root.operands)).leaves
            shardings[root.id] = HloSharding.tuple([leaves[n] for n in self.kept_results])
        return replace(whole, shardings=shardings, copies={i: s for i, s in whole.copies.items() if i in ids})

    def table(self, found: ShardingTable) -> ShardingTable:
        """A table of the folded program as one of the whole."""
        root = self.source.entry.root
        given = self.source.shardings
        others = {i: s for i, s in given.items() if i not in self.module.shardings}
        shardings = self._for_all(found.shardings, others)
        if root.opcode == "tuple":
            shardings[root.id] = self.root_sharding(shardings[root.id])
        return ShardingTable(shardings, self._for_all(found.reasons, {}), self._for_all(found.copies, {}))

    def _for_all(self, found: Mapping[int, T], others: Mapping[int, T]) -> dict[int, T]:
        """What holds for an instruction holds for its like in the layers that are left out; `others`: of any other."""
        made, first = {**others, **found}, self.entry[0].id
        if not found:
            return made
        for inst, other, left_out in self.alike:
            own = found.get(first + inst)
            if own is not found.get(first + other) and own != found.get(first + other):
                raise LayersDiffer
            ids = [first + one for one in left_out]
            if own is not None:
                made.update(dict.fromkeys(ids, own))
            else:
                # What the kept layers may have in any sharding the others may, too: theirs, of `others`, goes.
                for one in ids:
                    made.pop(one, None)
        return made

    def root_sharding(self, folded: HloSharding) -> HloSharding:
        """The sharding of the whole root, by that of the folded one."""
        kept = self.kept_results
        found = dict(zip(kept, folded.normalize_tuple(len(kept)).leaves, strict=True))
        repeats = self.repeats
        for operand, places in self.leaves.items():
            if repeats.dropped[operand]:
                like = repeats.at(operand, repeats.family(operand).first - 1)
                found |= {n: found[m] for n, m in zip(places, self.leaves[like], strict=True)}
        return HloSharding.tuple([found[n] for n in range(len(found))])


def _places(root: Instruction) -> dict[int, list[int]]:
    first, found = root.computation.instructions[0].id, defaultdict[int, list[int]](list)
    for place, result in enumerate(_results(root)):
        found[result.id - first].append(place)
    return dict(found)


def _results(root: Instruction) -> Sequence[Instruction]:
    return root.operands if root.opcode == "tuple" else (root,)


def folded(module: Module, annotated: frozenset[str]) -> Folded | None:
    """The program with a few layers of each stack; None where too little of it repeats.

    `annotated`: names of what the user annotated.
    """
    root = module.entry.root
    if root is not module.entry.instructions[-1] or root.id not in module.shardings:
        return None
    if not all(result.shape.is_array for result in _results(root)):
        return None
    repeats = repeats_of(module, annotated)
    return None if repeats is None or not _are_given_back_alike(module, repeats) else _without(module, repeats)


def _without(module: Module, repeats: Repeats) -> Folded | None:
    """The program without what the repeats leave out."""
    root, operands = module.entry.root, _kept_operands(module, repeats)
    if operands is None:
        return None
    kept = [n for n, o in enumerate(_results(root)) if not repeats.dropped[o.id - module.entry.instructions[0].id]]
    small, new = excerpt(module, operands, partial(_users, module, repeats, operands), kept)
    if isinstance(module.open_outputs, tuple):
        small.open_outputs = tuple([module.open_outputs[n] for n in kept])
    found = Folded(module, small, new, repeats)
    small.shardings = dict(found.part_of(ShardingTable(module.shardings, {})).shardings)
    small.stands_for = found.stands_for
    return found


def _are_given_back_alike(module: Module, repeats: Repeats) -> bool:
    """Are of all layers the same values results, in the same shardings?"""
    root, is_open = module.entry.root, module.open_outputs
    leaves = module.shardings[root.id].normalize_tuple(len(_results(root))).leaves
    if isinstance(is_open, tuple) and len(is_open) != len(leaves):
        return False
    given = {
        inst: [(leaves[n], is_open[n] if isinstance(is_open, tuple) else is_open) for n in places]
        for inst, places in _places(root).items()
    }
    return all(
        given.get(row[family.first - 1]) == given.get(row[layer])
        for family in repeats.families
        for row in family.rows
        for layer in range(family.first, family.end + 1)
    )


def _kept_operands(module: Module, repeats: Repeats) -> dict[Instruction, Sequence[Instruction]] | None:
    """The instructions that stay, with their operands; None where one would stand before what it reads."""
    entry, dropped, found = module.entry.instructions, repeats.dropped.tolist(), {}
    first, root = entry[0].id, module.entry.root
    for place, inst in enumerate(entry):
        if dropped[place]:
            continue
        if inst is root and root.opcode == "tuple":
            found[inst] = [o for o in inst.operands if not dropped[o.id - first]]
        elif any(dropped[o.id - first] for o in inst.operands):
            read = [o.id - first for o in inst.operands]
            read = [repeats.stand_in(o, place) if dropped[o] else o for o in read]
            if max(read) >= place:
                return None
            found[inst] = [entry[o] for o in read]
        else:
            found[inst] = inst.operands
    return found


def _users(
    module: Module, repeats: Repeats, operands: Mapping[Instruction, Sequence[Instruction]], inst: Instruction
) -> Iterable[Instruction]:
    """Who uses an instruction that stays: in the order of the whole program, others in the place of those that go."""
    users = [u for u in inst.users if u in operands]
    if len(users) == len(inst.users):
        return users
    entry = module.entry.instructions
    place, first = inst.id - entry[0].id, entry[0].id
    if repeats.kinds[place] == OUTSIDE:
        return users
    family, layers = repeats.family(place), repeats.layers
    found = list[Instruction]()
    for user in inst.users:
        at = user.id - first
        if user not in operands and repeats.family(at) is family and abs(layers[at] - layers[place]) == 1:
            user = entry[repeats.stand_in(at, place)]
        if user in operands and inst in operands[user]:
            found.append(user)
    return found
