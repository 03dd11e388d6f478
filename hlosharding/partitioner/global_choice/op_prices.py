"""What single ops cost, their values lying so or so; and how an op would have one of its values lie.

Floor: partitioner.  What is found out about one of several ops that are alike holds for all, in every layer.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from hlosharding.ir import GENERATORS, Instruction, Shape
from hlosharding.partitioner.choice import Moves, OpCost
from hlosharding.partitioner.context import PlanContext
from hlosharding.partitioner.factors import Options, Slots, prices_of_options, ways_to_lie
from hlosharding.partitioner.iteration_space import as_compared
from hlosharding.partitioner.local_ops import local_rule
from hlosharding.partitioner.partial_sums import is_wanted_partial
from hlosharding.partitioner.prices import Numbers, Prices
from hlosharding.partitioner.strategies import plan_of
from hlosharding.partitioner.value import ValuePlace
from hlosharding.rules import Signature, signature_of
from hlosharding.sharding import HloSharding

MADE_AT_NO_COST = GENERATORS | {"broadcast"}
"""What each device makes, or has most of, without communication."""
Ends = tuple[HloSharding, HloSharding]
"""(from, to)"""
Situation = tuple[int, ...]
"""The number of an op's kind, and of the shardings of its result and operands (`uid`; -1: none)."""


def _all_that_counts(op: Instruction) -> Any:
    """Of what an op costs between given shardings; itself where it is like no other."""
    signature = signature_of(op)
    if not isinstance(signature, Signature):
        return op
    windows, shapes = local_rule(op.opcode).windows, [op.shape, *[o.shape for o in op.operands]]
    seen = None if windows is None else windows(op, signature)
    originals = [(n, original_of(operand)) for n, operand in enumerate(op.operands)]
    anywhere = [(n, broadcast_dims_of(o)) for n, o in originals if o.opcode in MADE_AT_NO_COST]
    return op.opcode, signature, seen, tuple(shapes), tuple(anywhere), len(op.users) == 1


def broadcast_dims_of(value: Instruction) -> tuple[int, ...]:
    """Of a broadcast the dims along which it is constant: one slice of it moves."""
    if value.opcode != "broadcast":
        return ()
    return tuple(d for d in range(value.shape.rank) if d not in value.dimensions)


def original_of(value: Instruction) -> Instruction:
    """What it is a copy of: that is what moves."""
    while value.opcode == "copy":
        value = value.operands[0]
    return value


_MOST_PREFERRED = {"bytes": 12, "time": 4}
"""By objective, how many splits of an op are asked how they would have its values lie."""
Shardings = Mapping[int, HloSharding]
"""By id."""


Key = tuple[Situation, Slots, tuple[tuple[int, ...], ...]]


Moved = tuple[bool, ...]


@dataclass(slots=True)
class MovePrices:
    """Of bringing an array from one sharding to another: at least, and exactly once it was planned."""

    prices: Prices
    shape: Shape
    ends: Sequence[Ends]
    seconds: Numbers = field(init=False)
    """`comparable_seconds` of each."""

    def __post_init__(self) -> None:
        self.seconds = np.array([self.prices.least_reshard_seconds(self.shape, *ends) for ends in self.ends])

    def plan(self, number: int) -> None:
        """Let one of them be exact."""
        self.seconds[number] = self.prices.reshard_seconds(self.shape, *self.ends[number], None)


class _Priced(NamedTuple):
    price: float
    moved: Moved


@dataclass(slots=True)
class OpPrices:
    """Prices of the ops of one program under a table of shardings, some of which are taken to be others."""

    context: PlanContext
    _numbers: dict[Any, int] = field(default_factory=dict[Any, int])
    """Of ops by all that their costs depend on, but for how their values lie."""
    _kinds: dict[Instruction, int] = field(default_factory=dict[Instruction, int])
    _known: dict[Any, _Priced] = field(default_factory=dict[Any, _Priced])
    _tables: dict[Any, Numbers] = field(default_factory=dict[Any, Numbers])
    _preferred: dict[Any, list[HloSharding]] = field(default_factory=dict[Any, list[HloSharding]])

    def moves(self, op: Instruction, others: Shardings) -> Moved:
        """Of the result and each operand: is it moved?  Values lie as `others` says, or else as the table does.

        Where bytes are all that counts, all are worth another look if any is moved, or added up.
        """
        return self._priced(op, others).moved

    def spreads_partial_sums(self, op: Instruction) -> bool:
        """Does it make tiles of a whole value of partial sums, at a price that is not known yet?"""
        own, *read = [self.context.shardings.get(value.id) for value in (op, *map(original_of, op.operands))]
        if own is None or own.num_tiles < 2 or is_wanted_partial(own) or not any(map(is_wanted_partial, read)):
            return False
        return self._situation(op, {}) not in self._known

    def of_moves(self, value: Instruction, ends: Sequence[Ends]) -> MovePrices:
        """What it costs to bring a value from one sharding to another, for each of these."""
        compared = [(as_compared(source), as_compared(target)) for source, target in ends]
        return MovePrices(self.context.prices, value.shape, compared)

    def key(self, op: Instruction, slots: Slots, options: Options) -> Key:
        """Equal where `of_options` is."""
        return self._situation(op, {}), slots, tuple([tuple([s.uid for s in one]) for one in options])

    def of_options(self, key: Key, op: Instruction, slots: Slots, options: Options) -> Numbers:
        """[option of each variable]: `comparable_seconds` of the op; `key`: its own."""
        known = self._tables.get(key)
        if known is None:
            known = self._tables[key] = self._table(op, slots, options)
        return known

    def preferred(self, op: Instruction, values: Collection[Instruction]) -> list[HloSharding]:
        """How an op would make or read those of its values, were it for the op to say; the best first."""
        free = tuple(v in values for v in (op, *op.operands))
        key = (self._situation(op, {}), free)
        known = self._preferred.get(key)
        if known is None:
            known = self._preferred[key] = list(self._wishes(op, free))
        return known

    def _wishes(self, op: Instruction, free: tuple[bool, ...]) -> Iterator[HloSharding]:
        signature = signature_of(op)
        if not isinstance(signature, Signature) or not op.shape.is_array:
            return
        places = self._operands(op, self.context)
        places = [_anywhere(p) if is_free else p for p, is_free in zip(places, free[1:], strict=True)]
        wanted = None if free[0] else self.context.wanted_leaves(op)[0]
        for lie in ways_to_lie(
            self.context, op, signature, places, (wanted,), most=_MOST_PREFERRED[self.context.prices.objective]
        ):
            yield from (sharding for is_free, sharding in zip(free, lie, strict=True) if is_free)

    def _operands(self, op: Instruction, context: PlanContext) -> list[ValuePlace]:
        """How they lie; a copy is what it is a copy of, wherever somebody wants it."""
        originals = list(map(original_of, op.operands))
        # One place for a value that the op reads twice: places are compared by identity, and it moves once.
        places = {value: _place_of(value, context) for value in originals}
        return [places[value] for value in originals]

    def _table(self, op: Instruction, slots: Slots, options: Options) -> Numbers:
        signature = signature_of(op)
        # A reshape is planned by its tiles, not by factors: how each option of it would be done is asked one by one.
        if isinstance(signature, Signature) and op.shape.is_array and op.opcode != "reshape":
            wanted = self.context.wanted_leaves(op)[0]
            places = self._operands(op, self.context)
            found = prices_of_options(self.context, op, signature, places, wanted, slots, options)
            if found is not None:
                return found
        return self._each_planned(op, slots, options)

    def _each_planned(self, op: Instruction, slots: Slots, options: Options) -> Numbers:
        table = np.empty([len(one) for one in options])
        for numbers in np.ndindex(table.shape):
            lie = [None if variable is None else options[variable][numbers[variable]] for variable in slots]
            others = {v.id: s for v, s in zip((op, *op.operands), lie, strict=True) if s is not None}
            table[numbers] = self._priced(op, others).price
        return table

    def _priced(self, op: Instruction, others: Shardings) -> _Priced:
        key = self._situation(op, others)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._planned(op, others)
        return known

    def _planned(self, op: Instruction, others: Shardings) -> _Priced:
        context = self.context
        if others:
            context = replace(context, shardings=ChainMap(dict(others), context.shardings))
        places = self._operands(op, context)
        cost, prices = _cost(op, places, context), context.prices
        if prices.objective == "bytes" and cost.communication.mean_bytes > 0:
            return _Priced(cost.seconds(prices), (True,) * (1 + len(places)))
        is_moved = [o.opcode != "copy" and p in cost.moved for o, p in zip(op.operands, places, strict=True)]
        return _Priced(cost.seconds(prices), (cost.is_result_moved, *is_moved))

    def _situation(self, op: Instruction, others: Shardings) -> Situation:
        """An op under the table, or others: it costs what others in the same situation cost."""
        table = self.context.shardings
        shardings = ChainMap(dict(others), table) if others else table
        kind = self._kinds.get(op)
        if kind is None:
            kind = self._kinds[op] = self._numbers.setdefault(_all_that_counts(op), len(self._numbers))
        lie = [shardings.get(value.id) for value in (op, *map(original_of, op.operands))]
        return kind, *[-1 if sharding is None else sharding.uid for sharding in lie]


def _anywhere(place: ValuePlace) -> ValuePlace:
    return ValuePlace(place.shape, place.sharding, is_free=True, is_remade=True)


def _place_of(value: Instruction, context: PlanContext) -> ValuePlace:
    lies = context.wanted_leaves(value)[0] if value.shape.is_array else None
    is_made = value.opcode in GENERATORS or (value.opcode == "broadcast" and not value.operands[0].shape.rank)
    known = broadcast_dims_of(value)
    return ValuePlace(value.shape, as_compared(lies), is_free=is_made, is_remade=is_made, broadcast_dims=known)


def _cost(op: Instruction, operands: Sequence[ValuePlace], context: PlanContext) -> OpCost:
    """Of what is given back, what brings it where it shall be; of a tuple else nothing."""
    wanted = context.wanted_leaves(op)
    if op.opcode == "tuple":
        moves = Moves(context.prices)
        for operand, value, place in zip(op.operands, operands, wanted, strict=False):
            if operand.shape.is_array and place is not None:
                moves.bring(value, place)
        return moves.cost()
    is_planned = op.shape.is_array and op.opcode not in ("copy", "parameter")
    plan = plan_of(context, op, operands, wanted[0]) if is_planned else None
    return plan.cost(context.prices, operands, op.shape, wanted[0]) if plan is not None else OpCost()
