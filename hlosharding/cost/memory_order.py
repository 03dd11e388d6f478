"""An order of a computation in which what frees memory runs as soon as it can.

Floor: cost.  In post order the gradients of weights, results that nobody reads, come last, and all activations wait for
them: recomputing these (`jax.checkpoint`) would save nothing.  XLA's ListMemoryScheduler runs first what frees most.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from hlosharding.ir import Computation, Instruction, memory_of

_NEVER_FREED = frozenset({"parameter", "constant"})


@dataclass(eq=False)
class FreeingFirst:
    """An order, but for ops that free as much as they make, at once or with the op behind them: these run when they
    can, and scalars before all else, which take no room and may be all that such an op lacks."""

    given: Sequence[Instruction]
    names: Container[str]
    """Opcodes that make no value of their own."""
    hidden: Container[Instruction]
    """Ops that are fused into their readers."""
    within: Computation
    owned: Container[Instruction] = ()
    """Inputs, or their elements, whose room is free behind their last readers."""

    def __post_init__(self) -> None:
        self.reads: dict[Instruction, frozenset[Instruction]] = {}
        """The values that an op reads, through names and through what is fused into it."""
        self.readers: dict[Instruction, set[Instruction]] = {}
        """Of each value those that have not run."""
        for op in self.given:
            self.reads[op] = self._element(op) if op.opcode == "get-tuple-element" else self._all(op.operands)
            if op is self.within.root or not self._is_name(op):
                for value in self.reads[op]:
                    self.readers.setdefault(value, set()).add(op)
        self.missing = {op: len(set(op.operands)) for op in self.given}
        self.moves = {op for op in self.given if memory_of(op) == "device"}
        self.done: dict[Instruction, None] = {}

    def order(self) -> list[Instruction]:
        """All of them, operands before their readers."""
        first = self._first()
        for op in sorted(self.given, key=lambda op: op not in first):
            waiting = [op]
            while waiting:
                ran = waiting.pop()
                if ran not in self.done:
                    waiting += self._run(ran)
        return list(self.done)

    def _first(self) -> set[Instruction]:
        """What takes no room of its own: inputs, constants, and scalars that are made of these alone."""
        found = set[Instruction]()
        for op in self.given:
            is_scalar = op.shape.is_array and op.shape.size == 1
            if op.opcode in _NEVER_FREED or (is_scalar and found.issuperset(op.operands)):
                found.add(op)
        return found

    def _run(self, op: Instruction) -> list[Instruction]:
        """What had better follow at once, in reverse."""
        self.done[op] = None
        missing, most = self.missing, len(self.moves)
        last = [self.readers[value] for value in self.reads[op] if value in self.readers]
        for readers in last:
            readers.discard(op)
        for user in op.users:
            if user in missing:
                missing[user] -= 1
        found = dict.fromkeys([*op.users, *(next(iter(readers)) for readers in last if len(readers) == 1)])
        near = [user for user in found if missing.get(user, most + 1) <= most]
        return [ready for user in near for ready in self._ready(user)][::-1]

    def _ready(self, op: Instruction) -> Sequence[Instruction]:
        """The op, if it frees memory and can run; or what it lacks, if that has but to be moved from the host: at most
        as much as is moved at all."""
        if op in self.done or op.is_root:
            return ()
        lacking = [o for o in op.operands if o not in self.done] if self.missing[op] else []
        if all(o in self.moves and not self.missing[o] for o in lacking) and self._frees(op):
            return lacking or (op,)
        return ()

    def _frees(self, op: Instruction) -> bool:
        """At once, or with the op behind it, which needs what it makes?"""
        if self._is_name(op):
            return True
        freed, made, behind = self._freed(op), op.shape.byte_size, self._behind(op)
        if behind is None:
            return 0 < freed >= made
        stays, more = behind.shape.byte_size, self._freed(behind) - made
        return 0 < freed >= min(made, stays) or freed + more >= made + stays

    def _freed(self, op: Instruction) -> int:
        """Bytes that nobody else will read."""
        return sum(value.shape.byte_size for value in self.reads[op] if self.readers.get(value) == {op})

    def _behind(self, op: Instruction) -> Instruction | None:
        """The one op, if it is one and could run then, that reads an op's result."""
        while len(op.users) == 1 and self.missing.get(op.users[0]) == 1 and not op.users[0].is_root:
            [op] = op.users
            if not self._is_name(op):
                return op
        return None

    def _is_name(self, op: Instruction) -> bool:
        return op.opcode in self.names or op in self.hidden

    def _all(self, operands: Sequence[Instruction]) -> frozenset[Instruction]:
        return frozenset(value for operand in operands for value in self._values(operand))

    def _element(self, op: Instruction) -> frozenset[Instruction]:
        """What becomes of a tuple's element, also behind a barrier; an element of what a loop gives is a value."""
        [whole] = op.operands
        while whole.opcode == "opt-barrier":
            [whole] = whole.operands
        if whole.opcode == "tuple":
            return self._values(whole.operands[op.tuple_index])
        return self._values(whole) if whole.opcode == "parameter" else frozenset((op,))

    def _values(self, op: Instruction) -> frozenset[Instruction]:
        if op in self.owned:
            return frozenset((op,))
        if op.opcode in _NEVER_FREED:
            return frozenset()
        return self.reads[op] if self._is_name(op) else frozenset((op,))
