"""The order in which a computation runs: XLA's, if it wrote one down, or one that frees memory as soon as it can.

Floor: cost.  In post order the gradients of weights, results that nobody reads, come last, and all activations wait for
them: recomputing these (`jax.checkpoint`) would save nothing.  XLA's ListMemoryScheduler runs first what frees most.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import chain

from hlosharding.ir import Computation, Instruction, Module, memory_of

_NEVER_FREED = frozenset({"parameter", "constant"})

Values = tuple[int, ...]
"""Ops that make them, by place in the given order."""


def schedules(module: Module) -> dict[Computation, list[Instruction]]:
    """Instructions in the order in which XLA's compiler decided to run them, of the computations that have a schedule
    which still fits them: a pass may have changed others."""
    if not module.proto.HasField("schedule"):
        return {}
    sequences = {entry.key: entry.value.instruction_ids for entry in module.proto.schedule.sequences}
    found: dict[Computation, list[Instruction]] = {}
    for computation in module.computations:
        by_id = {i.proto.id: i for i in computation.instructions}
        order = [by_id.get(number) for number in sequences.get(computation.proto.id, ())]
        steps = [i for i in order if i is not None]
        if len(steps) == len(order) == len(computation.instructions):
            found[computation] = steps
    return found


@dataclass(eq=False)
class FreeingFirst:
    """An order, but for ops that free as much as they make, at once or with the op behind them: these run when they
    can, and scalars before all else, which take no room and may be all that such an op lacks.

    Ops go by their places in the given order, in lists: there are thousands, and each is asked about several times.
    """

    given: Sequence[Instruction]
    names: Container[str]
    """Opcodes that make no value of their own."""
    hidden: Container[Instruction]
    """Ops that are fused into their readers."""
    within: Computation
    owned: Container[Instruction] = ()
    """Inputs, or their elements, whose room is free behind their last readers."""

    def __post_init__(self) -> None:
        given, self.root = self.given, self.within.root
        self.places = {op: place for place, op in enumerate(given)}
        place_of = self.places.__getitem__
        self.operands = [list(map(place_of, op.operands)) for op in given]
        self.users = [list(map(place_of, op.users)) for op in given]
        self.sizes = [op.shape.byte_size for op in given]
        self.is_name = [op.opcode in self.names or op in self.hidden for op in given]
        self.reads: list[Values] = []
        """The values that an op reads, through names and through what is fused into it."""
        self.readers, self.last_reader = [0] * len(given), [0] * len(given)
        """Of each value how many that read it have not run, and the sum of their places: of one, which it is."""
        self._find_reads()
        # As often as `users` lists a reader: once, however often it reads.
        self.missing = [len(set(operands)) for operands in self.operands]
        self.moves = {place for place, op in enumerate(given) if memory_of(op) == "device"}
        self.done = [False] * len(given)

    def _find_reads(self) -> None:
        behind: list[Values] = []
        """Of each op what those read that read it."""
        for place, op in enumerate(self.given):
            found, opcode = [read for operand in self.operands[place] if (read := behind[operand])], op.opcode
            if opcode == "get-tuple-element":
                reads = self._read_of_element(op, behind)
            else:
                reads = found[0] if len(found) == 1 else tuple(dict.fromkeys(chain(*found))) if found else ()
            self.reads.append(reads)
            if op in self.owned:
                behind.append((place,))
            elif opcode in _NEVER_FREED:
                behind.append(())
            else:
                behind.append(reads if self.is_name[place] else (place,))
            self._count_reader(place, 1)

    def _read_of_element(self, op: Instruction, behind: Sequence[Values]) -> Values:
        """What becomes of a tuple's element, also behind a barrier; an element of what a loop gives is a value."""
        [whole] = op.operands
        while whole.opcode == "opt-barrier":
            [whole] = whole.operands
        if whole.opcode == "tuple":
            return behind[self.places[whole.operands[op.tuple_index]]]
        return behind[self.places[whole]] if whole.opcode == "parameter" else (self.places[op],)

    def _count_reader(self, place: int, sign: int) -> None:
        # What a name reads, its readers read; only the root, mostly a tuple, has none, and keeps the results to the
        # end.
        if not self.is_name[place] or self.given[place] is self.root:
            for value in self.reads[place]:
                self.readers[value] += sign
                self.last_reader[value] += sign * place

    def order(self) -> list[Instruction]:
        """All of them, operands before their readers."""
        first, order = self._first(), list[Instruction]()
        for place in sorted(range(len(self.given)), key=lambda place: place not in first):
            waiting = [place]
            while waiting:
                ran = waiting.pop()
                if not self.done[ran]:
                    order.append(self.given[ran])
                    waiting += self._run(ran)
        return order

    def _first(self) -> set[int]:
        """What takes no room of its own: inputs, constants, and scalars that are made of these alone."""
        found = set[int]()
        for place, op in enumerate(self.given):
            # The last reader of a large value may lack an index alone: with little arrays (see `_frees`) this took
            # Llama 8B by FSDP from 21.6 to 18.6 GB, whose logits' gradient was held through all layers.
            is_scalar = op.shape.is_array and op.shape.size == 1
            if op.opcode in _NEVER_FREED or (is_scalar and found.issuperset(self.operands[place])):
                found.add(place)
        return found

    def _run(self, ran: int) -> Sequence[int]:
        """What had better follow at once, in reverse."""
        self.done[ran] = True
        self._count_reader(ran, -1)
        reads, users, missing, readers = self.reads[ran], self.users[ran], self.missing, self.readers
        for user in users:
            missing[user] -= 1
        alone = [self.last_reader[value] for value in reads if readers[value] == 1]
        # What lacks more ops than there are moves from the host cannot be ready: most are ruled out by that, operands
        # unseen.
        near, most = dict.fromkeys([*users, *alone]) if alone else users, len(self.moves)
        found = [ready for op in near if missing[op] <= most and not self.done[op] for ready in self._ready(op)]
        return found[::-1]

    def _ready(self, op: int) -> Sequence[int]:
        """The op, if it frees memory and can run; or what it lacks, if that has but to be moved from the host: at most
        as much as is moved at all."""
        if self.given[op] is self.root:
            return ()
        lacking = [o for o in self.operands[op] if not self.done[o]] if self.missing[op] else []
        if all(o in self.moves and not self.missing[o] for o in lacking) and self._frees(op):
            return lacking or (op,)
        return ()

    def _frees(self, op: int) -> bool:
        """At once, or with the op behind it, which needs what it makes?"""
        if self.is_name[op]:
            return True
        freed, made, behind = self._freed(op), self.sizes[op], self._behind(op)
        if behind is None:
            return 0 < freed >= made
        stays, more = self.sizes[behind], self._freed(behind) - made
        return 0 < freed >= min(made, stays) or freed + more >= made + stays

    def _freed(self, op: int) -> int:
        """Bytes that nobody else will read."""
        return sum([self.sizes[value] for value in self.reads[op] if self.readers[value] == 1])

    def _behind(self, op: int) -> int | None:
        """The one op, if it is one and could run then, that reads an op's result."""
        while len(self.users[op]) == 1:
            [op] = self.users[op]
            if self.missing[op] != 1 or self.given[op] is self.root:
                return None
            if not self.is_name[op]:
                return op
        return None
