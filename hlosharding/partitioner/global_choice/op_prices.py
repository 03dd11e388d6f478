"""What single ops cost, their values lying so or so; and how an op would have one of its values lie.

Floor: partitioner.  Remembered for equal ops, so that repeated layers are priced once.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from hlosharding.ir import Instruction, Module
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.decisions import Decisions
from hlosharding.partitioner.factors import Options, Slots, prices_of_options, ways_to_lie
from hlosharding.partitioner.global_choice.op_kinds import OpKinds, Situation
from hlosharding.partitioner.global_choice.priced_walk import PricedWalk, context_to_decide_in
from hlosharding.partitioner.iteration_space import as_compared
from hlosharding.partitioner.prices import Numbers
from hlosharding.partitioner.value import Value
from hlosharding.rules import Signature, signature_of
from hlosharding.sharding import HloSharding

_MOST_PREFERRED = {"bytes": 12, "time": 4}
"""By objective, how many splits of an op are asked how they would have its values lie."""
Shardings = Mapping[int, HloSharding]
"""By id."""


Key = tuple[Situation, Slots, tuple[tuple[int, ...], ...]]


Moved = tuple[bool, ...]


class _Priced(NamedTuple):
    price: float
    moved: Moved


@dataclass(slots=True)
class OpPrices:
    """Prices of the ops of one program under a table of shardings, some of which are taken to be others."""

    context: Context
    kinds: OpKinds
    _known: dict[Any, _Priced] = field(default_factory=dict[Any, _Priced])
    _tables: dict[Any, Numbers] = field(default_factory=dict[Any, Numbers])
    _preferred: dict[Any, list[HloSharding]] = field(default_factory=dict[Any, list[HloSharding]])

    @classmethod
    def of(
        cls, module: Module, shardings: Shardings, decisions: Decisions, num_partitions: int, kinds: OpKinds
    ) -> OpPrices:
        """Under a table of shardings."""
        return cls(context_to_decide_in(module, shardings, decisions, num_partitions), kinds)

    def moves(self, op: Instruction, others: Shardings) -> Moved:
        """Of the result and each operand: is it moved?  Values lie as `others` says, or else as the table does.

        Where bytes are all that counts, all are worth another look if any is moved, or added up.
        """
        return self._priced(op, others).moved

    def of_move(self, value: Instruction, source: HloSharding, target: HloSharding) -> float:
        """`comparable_seconds` to bring a value from one sharding to another."""
        first, last = as_compared(source), as_compared(target)
        return self.context.prices.reshard_seconds(value.shape, first, last, None)

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
        values = self._operands(op)
        values = [_anywhere(v) if is_free else v for v, is_free in zip(values, free[1:], strict=True)]
        wanted = None if free[0] else self.context.wanted_leaves(op)[0]
        for lie in ways_to_lie(
            self.context, op, signature, values, (wanted,), most=_MOST_PREFERRED[self.context.prices.objective]
        ):
            yield from (sharding for is_free, sharding in zip(free, lie, strict=True) if is_free)

    def _operands(self, op: Instruction) -> list[Value]:
        self.context.values.clear()
        walk = PricedWalk(self.context)
        return [walk.whole(o) for o in op.operands]

    def _table(self, op: Instruction, slots: Slots, options: Options) -> Numbers:
        signature = signature_of(op)
        if isinstance(signature, Signature) and op.shape.is_array and op.opcode != "reshape":
            wanted = self.context.wanted_leaves(op)[0]
            found = prices_of_options(self.context, op, signature, self._operands(op), wanted, slots, options)
            if found is not None:
                return found
        return self._each_walked(op, slots, options)

    def _each_walked(self, op: Instruction, slots: Slots, options: Options) -> Numbers:
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
            known = self._known[key] = self._walked(op, others)
        return known

    def _walked(self, op: Instruction, others: Shardings) -> _Priced:
        table = self.context.shardings
        kept = {i: table[i] for i in others}
        table.update(others)
        self.context.values.clear()
        walk = PricedWalk(self.context)
        walk.visit(op)
        table.update(kept)
        values = (op, *op.operands)
        if self.context.prices.objective == "bytes" and walk.cost.mean_bytes > 0:
            return _Priced(walk.price, (True,) * len(values))
        moved = {value.local for value, _ in walk.moved if value.reduce_kind is None}
        return _Priced(walk.price, tuple(v in moved for v in values))

    def _situation(self, op: Instruction, others: Shardings) -> Situation:
        table = self.context.shardings
        return self.kinds.situation(op, ChainMap(dict(others), table) if others else table)


def _anywhere(value: Value) -> Value:
    made = Value(value.local, value.shape, value.sharding)
    made.rematerialize = lambda _: made
    return made
