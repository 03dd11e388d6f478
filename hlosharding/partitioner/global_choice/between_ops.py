"""How values between ops lie: what one op saves another may pay, so both ends of a value are looked at.

Floor: partitioner.  Propagation gives a value the sharding of what came first.  A group of values (`value_groups`) may
take another one, which an op at its borders would rather make or read, where all its ops together then cost less; two
groups that an op joins are tried together.  No device gets larger tiles by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product

from hlosharding.ir import ELEMENTWISE, Instruction, Module
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.decisions import Decisions
from hlosharding.partitioner.factors import lowering_of
from hlosharding.partitioner.global_choice.priced_walk import PricedWalk, context_to_decide_in
from hlosharding.partitioner.global_choice.value_groups import Group, groups_of
from hlosharding.partitioner.value import Value
from hlosharding.rules import Signature, signature_of
from hlosharding.sharding import HloSharding, without_partials

# Of what the ops at the borders cost: another sharding must promise so much less.
_LESS = 0.98
_SWEEPS = 2
_MOST_OPTIONS = 6
_MOST_BORDERS = 12
"""Of a group with more of them (what runs through all layers) there is no local choice."""
Taken = dict[Group, HloSharding]


def cheaper_between_ops(
    module: Module, shardings: Mapping[int, HloSharding], decisions: Decisions, num_partitions: int
) -> dict[int, HloSharding]:
    """By id, the values that take another sharding than they have in the table."""
    found: dict[int, HloSharding] = {}
    context = context_to_decide_in(module, shardings, decisions, num_partitions)
    for computation in module.computations:
        found_groups = groups_of(computation, shardings, decisions.annotated)
        groups = [group for group in found_groups if 0 < len(group.borders) <= _MOST_BORDERS]
        if groups:
            _Search(context, groups).run(found)
    return found


@dataclass(slots=True)
class _Search:
    context: Context
    """Its table changes as groups take other shardings."""
    groups: list[Group]
    order: dict[Instruction, int] = field(init=False)
    by_border: dict[Instruction, list[Group]] = field(default_factory=dict[Instruction, list[Group]])

    def __post_init__(self) -> None:
        for group in self.groups:
            for op in group.borders:
                self.by_border.setdefault(op, []).append(group)

    def run(self, found: dict[int, HloSharding]) -> None:
        for _ in range(_SWEEPS):
            changed = [group for group in self.groups if self._improve(group)]
            if not changed:
                return
            for group in changed:
                found.update(dict.fromkeys([m.id for m in group.members], self.context.shardings[group.members[0].id]))

    def _improve(self, group: Group) -> bool:
        """Does the group, alone or together with a neighbour, take another sharding?"""
        own = self.context.shardings[group.members[0].id]
        if not self._moves_anything([group]):
            return False
        options = self._options(group)
        tried: list[Taken] = [{group: option} for option in options if option is not own]
        best, least, before = None, 0.0, self._price([group], {})
        for taken in tried:
            saved = before - self._price([group], taken)
            if saved > max(least, (1 - _LESS) * before):
                best, least = taken, saved
        for other in self._neighbours(group):
            pair = [group, other]
            before = self._price(pair, {})
            for mine, its in product(options, self._options(other)):
                saved = before - self._price(pair, {group: mine, other: its})
                if saved > max(least, (1 - _LESS) * before):
                    best, least = {group: mine, other: its}, saved
        if best is None:
            return False
        for one, sharding in best.items():
            self.context.shardings.update(dict.fromkeys([m.id for m in one.members], sharding))
        return True

    def _neighbours(self, group: Group) -> list[Group]:
        """Groups that an op with a contraction joins with this one."""
        joined = [g for op in group.borders if op.opcode not in ELEMENTWISE for g in self.by_border[op]]
        return [g for g in dict.fromkeys(joined) if g is not group]

    def _moves_anything(self, groups: list[Group]) -> bool:
        walk = self._walk(groups, {})
        return walk.cost.mean_bytes > 0

    def _price(self, groups: list[Group], taken: Taken) -> float:
        return self._walk(groups, taken).price

    def _walk(self, groups: list[Group], taken: Taken) -> PricedWalk:
        """What the ops at the borders cost if some groups lie otherwise."""
        context = self.context
        kept = {m.id: context.shardings[m.id] for group in taken for m in group.members}
        for group, sharding in taken.items():
            context.shardings.update(dict.fromkeys([m.id for m in group.members], sharding))
        context.values.clear()
        walk = PricedWalk(context)
        ops = dict.fromkeys(op for group in groups for op in group.borders)
        for op in sorted(ops, key=lambda op: op.id):
            walk.visit(op)
        walk.finish()
        for group in groups:
            for member, place in group.asked:
                walk.bring(walk.whole(member), place)
        context.shardings.update(kept)
        return walk

    def _options(self, group: Group) -> list[HloSharding]:
        """The shardings that an op at the borders would make it in, or read it in, were it for that op to say."""
        own = self.context.shardings[group.members[0].id]
        asked = [own, *(place for _, place in group.asked)]
        for op in group.borders:
            asked += self._preferred(group, op)
        shape = group.members[0].shape
        return [
            s
            for s in dict.fromkeys(asked)
            if s.num_tiles >= own.num_tiles and s.kind in ("tiled", "replicated") and _is_even(s, shape.dims)
        ][:_MOST_OPTIONS]

    def _preferred(self, group: Group, op: Instruction) -> Iterable[HloSharding]:
        signature = signature_of(op)
        if not isinstance(signature, Signature) or not op.shape.is_array:
            return
        members, walk = set(group.members), PricedWalk(self.context)
        self.context.values.clear()
        values = [walk.whole(o) for o in op.operands]
        if op in members:
            yield without_partials(lowering_of(self.context, op, signature, values, (None,)).choice.results[0])
        if any(o in members for o in op.operands):
            free = [_anywhere(v) if o in members else v for o, v in zip(op.operands, values, strict=True)]
            wanted = self.context.wanted_leaves(op)
            choice = lowering_of(self.context, op, signature, free, wanted).choice
            yield from (s for o, s in zip(op.operands, choice.operands, strict=True) if o in members)


def _anywhere(value: Value) -> Value:
    made = Value(value.local, value.shape, value.sharding)
    made.rematerialize = lambda _: made
    return made


def _is_even(sharding: HloSharding, dims: tuple[int, ...]) -> bool:
    tiles = sharding.data_dims if sharding.kind == "tiled" else (1,) * len(dims)
    return all(size % n == 0 for size, n in zip(dims, tiles, strict=True))
