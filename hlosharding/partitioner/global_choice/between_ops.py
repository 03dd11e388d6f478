"""How values between ops lie: what one op saves another may pay, so both ends of a value are looked at.

Floor: partitioner.  Propagation gives a value the sharding of what came first; where it leaves one open, the first walk
does, op by op (`found`).  A group of values (`value_groups`) may take another one, which an op at its borders would
rather make or read, where all its ops together then cost less; two groups that an op joins are tried together.  No
device gets larger tiles by it.  Then come parameters that several ops read: one copy elsewhere may serve them all,
where each would have had it moved to another place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from hlosharding.ir import Computation, Instruction, Module
from hlosharding.partitioner.context import PlanContext
from hlosharding.partitioner.decisions import Decisions
from hlosharding.partitioner.factors import FAST_ELEMENTWISE, Options, Slots
from hlosharding.partitioner.global_choice.op_prices import Key, MovePrices, OpPrices
from hlosharding.partitioner.global_choice.value_groups import Group, groups_of
from hlosharding.partitioner.overrides import BOTH_ENDS, ShardingTable
from hlosharding.partitioner.prices import Numbers
from hlosharding.reshard import MARGIN
from hlosharding.sharding import HloSharding, uneven_dims

_SWEEPS = 3
_SMALL = 0.02
"""A group of which less is moved, as a part of what is of another one, is left as it is."""
_MOST_BORDERS = 12
"""Of a group with more of them (what runs through all layers) there is no local choice."""
_LEADS = FAST_ELEMENTWISE | {"convert", "reduce", "reshape"}
"""Ops that values pass before they are broadcast, as `keepdims` has them do."""


def improved_table(
    module: Module, table: ShardingTable, found: Mapping[int, HloSharding], decisions: Decisions
) -> ShardingTable:
    """The table with other places for values between ops where those cost less; itself where none does.

    `found`: how values came to lie, by id, that the table leaves open.
    """
    if decisions.has_manual_groups:
        return table
    # Also values that the table leaves open: where each op put its own, a chain of products moved 6.35 times the least
    # bytes, and moves 1.03 times now.
    shardings = {**found, **table.shardings}
    prices = OpPrices(PlanContext(shardings=shardings, decisions=decisions))
    taken: dict[Group, HloSharding] = {}
    for computation in module.computations:
        groups = groups_of(computation, shardings, decisions.annotated)
        taken |= _Search(prices, [g for g in groups if 0 < _num_borders(g, module.stands_for) <= _MOST_BORDERS]).run()
    changed, copies = dict[int, HloSharding](), dict[int, HloSharding]()
    for group, sharding in [(g, s) for g, s in taken.items() if s is not g.sharding]:
        (copies if group.is_copy else changed).update({member.id: sharding for member in group.members})
    if not changed and not copies:
        return table
    led_to = {i for each in module.computations for i in _leading_to(changed, each, decisions.annotated)}
    return replace(table.changed(changed, BOTH_ENDS).opened(led_to, BOTH_ENDS), copies=copies)


def _leading_to(changed: Collection[int], computation: Computation, bound: Collection[str]) -> Iterator[int]:
    """The ids of broadcasts for none but values that leave, and of what only such broadcasts are made of.

    The search takes a broadcast to lie as it is read.  Left where they were, sums that the backward step of a softmax
    spreads over rows moved there and back, which took longer than the rows had taken.
    """
    led_to, leaving = set[int](), set(changed)
    for op in reversed(computation.instructions):
        readers = {user.id for user in op.users}
        leads = readers <= leaving if op.opcode == "broadcast" else op.opcode in _LEADS and readers <= led_to
        if leads and readers and op.id not in changed and op.name not in bound:
            led_to.add(op.id)
            leaving.add(op.id)
            yield op.id


def _num_borders(group: Group, stands_for: Mapping[int, int]) -> int:
    return sum([stands_for.get(op.id, 1) for op in group.borders]) if stands_for else len(group.borders)


class _Ask(NamedTuple):
    """What an op is asked: its price for every way in which some groups lie."""

    key: Key
    op: Instruction
    slots: Slots
    choices: Options
    """Of each group around it."""
    places: tuple[int | None, ...]
    """Of each group around it, its number among those looked at; None for another one."""
    copies: tuple[int, ...]
    """The numbers of the groups around it that are copies."""


class _Total(NamedTuple):
    """What it comes to that some groups lie in one way or another."""

    ops: Numbers
    """[option of each group]"""
    moves: list[tuple[int, MovePrices]]
    """Numbers of groups, and what brings a value from, or to, each of the group's options."""

    def cheapest(self, own: tuple[int, ...]) -> tuple[float, tuple[int, ...], float]:
        """The price of these options, the cheapest ones, and their price."""
        prices, options, asked = self._priced(own), own, set[tuple[int, ...]]()
        # Moves are planned for those only that are the cheapest by bounds: to plan all took a tenth of a partition.
        while options not in asked:
            asked.add(options)
            options = tuple(map(int, np.unravel_index(int(prices.argmin()), prices.shape)))
            prices = self._priced(options)
        return float(prices[own]), options, float(prices[options])

    def _priced(self, options: tuple[int, ...]) -> Numbers:
        """[option of each group]: at least; exact where they lie so, or were asked before."""
        total = self.ops.copy()
        for n, moves in self.moves:
            moves.plan(options[n])
            total += _along(moves.seconds, (n,), total.ndim)
        return total


@dataclass(slots=True)
class _Search:
    """Group by group, and pair by pair, as long as something gets cheaper."""

    prices: OpPrices
    groups: list[Group]
    taken: dict[Group, HloSharding] = field(default_factory=dict[Group, HloSharding])
    """The groups that left their sharding."""
    at_border: dict[Instruction, list[Group]] = field(default_factory=dict[Instruction, list[Group]])
    totals: dict[Any, _Total] = field(default_factory=dict[Any, _Total])
    options: dict[Group, tuple[HloSharding, ...]] = field(default_factory=dict[Group, tuple[HloSharding, ...]])
    moved_at: dict[Instruction, list[Instruction]] = field(default_factory=dict[Instruction, list[Instruction]])
    """By op, which of its values are moved while all around it lie as in the table."""
    most_moved: float = 0.0
    """Bytes that are moved of one group, at most."""
    unmeasured: list[Group] = field(default_factory=list[Group])
    """Groups that count for that, once it is asked for."""

    def run(self) -> dict[Group, HloSharding]:
        """The groups that leave their sharding: values first, and then what is copied for several of their readers."""
        for is_copy in (False, True):
            added = [group for group in self.groups if group.is_copy is is_copy]
            for group in added:
                for op in group.borders:
                    self.at_border.setdefault(op, []).append(group)
            self._sweep(added)
        return self.taken

    def _sweep(self, waiting: Sequence[Group]) -> None:
        """These, and those that have to do with what changes."""
        for _ in range(_SWEEPS):
            self.unmeasured += waiting
            # In what runs behind a last microbatch nothing ever changes, and to plan how its partial sums would be
            # spread was a fifth of a plan over data, tensors and four stages.
            is_dear = any(map(self._is_dear, waiting))
            if not waiting or (is_dear and not any(self._better(group, set()) for group in waiting)):
                break
            moved = {group: self._moved(group) for group in self.unmeasured}
            self.most_moved, self.unmeasured = max(self.most_moved, *moved.values(), 0.0), []
            least = _SMALL * self.most_moved
            seen = set[tuple[Group, Group]]()
            changed = [one for group in waiting if moved[group] > least for one in self._improved(group, seen)]
            if not changed:
                break
            waiting = list(dict.fromkeys(g for one in changed for g in (one, *self._neighbours(one))))

    def _is_dear(self, group: Group) -> bool:
        """Does it take plans of dozens of ms to say what of it is moved?  Not before something would change."""
        return any(map(self.prices.spreads_partial_sums, group.borders))

    def _improved(self, group: Group, seen: set[tuple[Group, Group]]) -> list[Group]:
        better = self._better(group, seen)
        self.taken |= better
        return list(better)

    def _better(self, group: Group, seen: set[tuple[Group, Group]]) -> dict[Group, HloSharding]:
        """The groups that should take other shardings: this one, alone or together with a neighbour, or none.

        `seen`: the pairs that were looked at in this sweep.
        """
        best, least = dict[Group, HloSharding](), 0.0
        others = [other for other in self._neighbours(group) if (other, group) not in seen]
        seen.update((group, other) for other in others)
        for pair in ([group], *([group, other] for other in others)):
            options = [self._options(one) for one in pair]
            own = tuple(options[n].index(self._lies(one)) for n, one in enumerate(pair))
            price, cheapest, cheapest_price = self._prices(pair, options).cheapest(own)
            if group.is_copy and cheapest[0] == own[0]:
                continue  # what values alone would save was looked at before
            saved = price - cheapest_price
            if saved > max(least, MARGIN * price):
                chosen = {one: options[n][cheapest[n]] for n, one in enumerate(pair)}
                best, least = {one: s for one, s in chosen.items() if s is not self._lies(one)}, saved
        return best

    def _prices(self, groups: Sequence[Group], options: Sequence[tuple[HloSharding, ...]]) -> _Total:
        """What the ops at their borders cost, other groups lying as they do, and what is asked of their members."""
        asks = [self._ask(op, groups, options) for op in dict.fromkeys(op for g in groups for op in g.borders)]
        asked = [(n, m.shape, place.uid) for n, group in enumerate(groups) for m, place in group.asked]
        asked += [(n, g.members[0].shape, g.sharding.uid) for n, g in enumerate(groups) if g.is_copy]
        # By what the ops and moves cost, not by groups: in layers that are alike these are equal, and added up once.
        key = (tuple([(ask.key, ask.places, ask.copies) for ask in asks]), tuple(asked), tuple(map(len, options)))
        known = self.totals.get(key)
        if known is None:
            known = self.totals[key] = _Total(self._summed(asks, options), list(self._moves(groups, options)))
        return known

    def _ask(self, op: Instruction, groups: Sequence[Group], options: Sequence[tuple[HloSharding, ...]]) -> _Ask:
        around = self.at_border[op]
        choices = tuple([options[groups.index(g)] if g in groups else self._lie(g) for g in around])
        slots = tuple([next((n for n, g in enumerate(around) if v in g.values), None) for v in (op, *op.operands)])
        places = tuple([groups.index(g) if g in groups else None for g in around])
        copies = tuple([n for n, g in enumerate(around) if g.is_copy])
        return _Ask(self.prices.key(op, slots, choices), op, slots, choices, places, copies)

    def _summed(self, asks: Sequence[_Ask], options: Sequence[tuple[HloSharding, ...]]) -> Numbers:
        """[option of each group]: of the ops alone."""
        total = np.zeros([len(one) for one in options])
        for ask in asks:
            prices = self.prices.of_options(ask.key, ask.op, ask.slots, ask.choices)
            for axis in ask.copies:  # who had rather read what it is a copy of does
                prices = np.minimum(prices, prices.take([0], axis))
                prices = prices if ask.places[axis] is not None else prices.take([-1], axis)
            total += _along(prices, ask.places, len(options))
        return total

    def _moves(
        self, groups: Sequence[Group], options: Sequence[tuple[HloSharding, ...]]
    ) -> Iterator[tuple[int, MovePrices]]:
        """Members brought to where they are asked for, and copies brought about."""
        for n, (group, mine) in enumerate(zip(groups, options, strict=True)):
            for member, place in group.asked:
                yield n, self.prices.of_moves(member, [(option, place) for option in mine])
            if group.is_copy:
                yield n, self.prices.of_moves(group.members[0], [(group.sharding, option) for option in mine])

    def _lie(self, group: Group) -> tuple[HloSharding, ...]:
        """Its sharding; of a copy first that of what it is a copy of."""
        lies = self._lies(group)
        return (group.sharding, lies) if group.is_copy and lies is not group.sharding else (lies,)

    def _lies(self, group: Group) -> HloSharding:
        return self.taken.get(group, group.sharding)

    def _neighbours(self, group: Group) -> list[Group]:
        """Groups that an op joins with this one."""
        joined = [g for op in group.borders for g in self.at_border[op]]
        return [g for g in dict.fromkeys(joined) if g is not group]

    def _moved(self, group: Group) -> float:
        """Bytes of the members that an op at the borders has elsewhere, or makes elsewhere."""
        moved, lies = 0.0, self._lies(group)
        for op in group.borders:
            moved += sum([v.shape.byte_size for v in self._moved_at(op) if v in group.values])
        return moved + sum(m.shape.byte_size for m, place in group.asked if place is not lies)

    def _moved_at(self, op: Instruction) -> list[Instruction]:
        """The values of an op that are moved, as they lie now."""
        around = self._around(op)
        known = self.moved_at.get(op) if not around else None
        if known is None:
            slots = zip((op, *op.operands), self.prices.moves(op, around), strict=True)
            known = [v for v, is_moved in slots if is_moved]
            if not around:
                self.moved_at[op] = known
        return known

    def _around(self, op: Instruction) -> dict[int, HloSharding]:
        """By id, how an op's values lie that do not lie as in the table."""
        if not self.taken:
            return {}
        changed = [(group, self.taken[group]) for group in self.at_border[op] if group in self.taken]
        return {v.id: sharding for group, sharding in changed for v in (op, *op.operands) if v in group.values}

    def _options(self, group: Group) -> tuple[HloSharding, ...]:
        """Its own sharding, and those in which an op at its borders would make it, or read it."""
        known = self.options.get(group)
        if known is None:
            known = self.options[group] = tuple(dict.fromkeys([group.sharding, *self._asked(group)]))
        return known

    def _asked(self, group: Group) -> Iterator[HloSharding]:
        dims = group.members[0].shape.dims
        wanted = [place for _, place in group.asked]
        for op in group.borders:
            wanted += self.prices.preferred(op, group.values)
        for sharding in wanted:
            is_plain = sharding.kind in ("tiled", "replicated") and not sharding.is_manual_subgroup()
            is_small = sharding.num_tiles >= (2 if group.is_copy else group.sharding.num_tiles)
            if is_plain and is_small and not uneven_dims(sharding, dims):
                yield sharding.meaning


def _along(prices: Numbers, places: tuple[int | None, ...], rank: int) -> Numbers:
    """Prices with a dim for each of some groups as an array of `rank` dims; what has no place has no choice, either."""
    kept = prices.reshape([size for size, place in zip(prices.shape, places, strict=True) if place is not None])
    real = [place for place in places if place is not None]
    shape = [1] * rank
    for place, size in zip(real, kept.shape, strict=True):
        shape[place] = size
    return kept.transpose(np.argsort(real)).reshape(shape)
