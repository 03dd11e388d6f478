"""What an op costs under a table of shardings, before anything is built: what has to move, and what is computed.

Floor: partitioner.  Makes the partitioner's decisions (the walk that builds finds them made) and adds up their prices;
nothing is emitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hlosharding.ir import GENERATORS, Builder, Instruction, Module
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.decisions import Decisions
from hlosharding.partitioner.factors import lowering_of
from hlosharding.partitioner.global_choice.op_kinds import broadcast_dims_of
from hlosharding.partitioner.iteration_space import as_compared
from hlosharding.partitioner.movement import cheapest_plan, op_movement, reshapes
from hlosharding.partitioner.prices import NOTHING, Cost
from hlosharding.partitioner.resharding import cost_from
from hlosharding.partitioner.strategies import lower
from hlosharding.partitioner.value import Value
from hlosharding.rules import Signature, signature_of
from hlosharding.sharding import HloSharding, is_local_reshape
from hlosharding.spmd import Emitter, Program


def context_to_decide_in(
    module: Module, shardings: Mapping[int, HloSharding], decisions: Decisions, num_partitions: int
) -> Context:
    """What is emitted there is nobody's."""
    program = Program(Builder(module.name, num_partitions=num_partitions, like=module), num_partitions)
    return Context(Emitter(program, program.builder.computation("main")), dict(shardings), decisions, lower)


@dataclass(slots=True)
class PricedWalk:
    """One table: `context.values` holds what each operand is, as far as it was asked; nothing is emitted."""

    context: Context
    cost: Cost = NOTHING
    compute: float = 0.0
    """Seconds, as far as they count beside those of bytes."""
    moved: set[tuple[Value, HloSharding]] = field(default_factory=set)
    """Values that were brought into a sharding already."""

    @property
    def price(self) -> float:
        """`comparable_seconds` of it all."""
        return self.context.prices.comparable_seconds(self.cost) + self.compute

    def visit(self, inst: Instruction) -> None:
        """Add what the op costs."""
        if inst.opcode == "tuple":
            for operand, place in zip(inst.operands, self.context.wanted_leaves(inst), strict=False):
                if operand.shape.is_array and place is not None:
                    self.bring(self.whole(operand), place)
        elif inst.shape.is_array and inst.opcode != "copy":
            _PRICED.get(inst.opcode, PricedWalk._by_factors)(self, inst, self.context.wanted_leaves(inst)[0])

    def _by_factors(self, inst: Instruction, wanted: HloSharding | None) -> None:
        signature, values = signature_of(inst), [self.whole(o) for o in inst.operands]
        if not isinstance(signature, Signature):
            return
        choice = lowering_of(self.context, inst, signature, values, (wanted,)).choice
        for value, place in zip(values, choice.operands, strict=True):
            self.bring(value, place)
        self.compute += choice.seconds - choice.communication
        if choice.reduce_kind == "other":
            return
        [made] = choice.results
        partial = Value(inst, inst.shape, made, choice.reduce_kind, broadcast_dims=broadcast_dims_of(inst))
        if wanted is not None or choice.reduce_kind is not None:
            self.bring(partial, wanted if wanted is not None else partial.whole_sharding)

    def _by_reshape(self, inst: Instruction, wanted: HloSharding | None) -> None:
        value = self.whole(inst.operands[0])
        plan = reshapes.choose_reshape(self.context, value, inst.shape, wanted)
        source, target = plan.source, plan.target
        self.bring(value, source)
        if is_local_reshape(source, value.shape.dims, target, inst.shape.dims):
            self.bring(Value(inst, inst.shape, target), wanted if wanted is not None else target)
        elif (sent := reshapes.transfer_between(self.context, value.shape, source, inst.shape, target)) is not None:
            self.cost += Cost(sent.mean_bytes, sent.seconds)

    def _by_movement(self, inst: Instruction, wanted: HloSharding | None) -> None:
        movement = op_movement(inst)
        if movement is None:
            self._by_factors(inst, wanted)
            return
        for operand in movement.arrays:
            self.whole(operand)
        plan = cheapest_plan(self.context, movement, inst.shape, wanted)
        if plan is None:
            self._by_factors(inst, wanted)
        else:
            self.cost += plan.cost

    def _made_anywhere(self, inst: Instruction, wanted: HloSharding | None) -> None:
        """Nothing moves."""

    def _broadcast(self, inst: Instruction, wanted: HloSharding | None) -> None:
        if inst.operands[0].shape.rank:
            self._by_factors(inst, wanted)

    def whole(self, inst: Instruction) -> Value:
        """An operand; a copy is what it is a copy of, wherever somebody wants it."""
        value = self.context.values.get(inst)
        if isinstance(value, Value):
            return value
        if inst.opcode == "copy":
            made = self.context.values[inst] = self.whole(inst.operands[0])
            return made
        given = self.context.wanted_leaves(inst)[0] if inst.shape.is_array else None
        made = self.context.values[inst] = Value(inst, inst.shape, as_compared(given))
        made.broadcast_dims = broadcast_dims_of(inst)
        if inst.opcode in GENERATORS or (inst.opcode == "broadcast" and not inst.operands[0].shape.rank):
            made.rematerialize = lambda _: made
        return made

    def bring(self, value: Value, place: HloSharding) -> None:
        """Once to each place."""
        if value.is_free or value.sharding is place:
            return
        if (value, place) in self.moved:
            return
        self.moved.add((value, place))
        costs = [cost_from(self.context, value, source, place) for source in (value.sharding, *value.reshards)]
        self.cost += min(costs, key=self.context.prices.comparable_seconds)
        value.reshards[place] = Value(value.local, value.shape, place)


_PRICED: dict[str, Callable[[PricedWalk, Instruction, HloSharding | None], None]] = {
    "constant": PricedWalk._made_anywhere,
    "iota": PricedWalk._made_anywhere,
    "parameter": PricedWalk._made_anywhere,
    "broadcast": PricedWalk._broadcast,
    "reshape": PricedWalk._by_reshape,
    "slice": PricedWalk._by_movement,
    "pad": PricedWalk._by_movement,
    "concatenate": PricedWalk._by_movement,
    "reverse": PricedWalk._by_movement,
    "dynamic-slice": PricedWalk._by_movement,
    "dynamic-update-slice": PricedWalk._by_movement,
}
"""By opcode; all others by their factors."""
