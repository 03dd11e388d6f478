"""A module as loops over values: ops that have a signature, and the values that pass between them.

Floor: mesh_propagation.  Tuples, their elements and barriers are no ops: what they hold is the value that went in.
Where control flow joins values (into a loop and round it, into and out of a branch or a callee) stands an op that
copies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from hlosharding.ir import Computation, Instruction, Module, Shape, branches, while_parts
from hlosharding.rules import DataFlow, Factor, Opaque, Signature, signature_of


@dataclass(frozen=True, eq=False, slots=True)
class LoopValue:
    """One array of the program; equal by identity."""

    name: str
    """The instruction that makes it; of a tuple, with the number of the leaf: `sort.1{0}`."""
    shape: Shape


@dataclass(frozen=True, eq=False, slots=True)
class LoopOp:
    """An op as its signature shows it; equal by identity."""

    name: str
    instruction: Instruction
    signature: Signature
    operands: tuple[LoopValue, ...]
    results: tuple[LoopValue, ...]
    opaque: str = ""
    """Why nothing is known of its dims."""

    @property
    def is_made_whole(self) -> bool:
        """A constant or an iota: it costs nothing to make all of it everywhere, and to cut it where it is used."""
        return not self.operands and not self.opaque

    @property
    def where(self) -> str:
        """Name and line, for messages."""
        return f"%{self.name} ({self.instruction.location or self.instruction.opcode})"


LoopValues: TypeAlias = tuple[LoopValue, ...]
Place: TypeAlias = tuple[LoopOp | None, int]
"""An operand of an op; of None: a leaf of the program's output."""


@dataclass
class LoopProgram:
    """The ops in the order they run (bodies inside their callers), and what the entry takes and gives."""

    ops: list[LoopOp] = field(default_factory=list)
    outputs: LoopValues = ()
    values: dict[Instruction, LoopValues] = field(default_factory=dict)
    """The leaves of every instruction that the program reaches."""
    users: dict[LoopValue, list[Place]] = field(default_factory=dict)
    """Where each value is used, in program order; the output last."""


def read_program(module: Module) -> LoopProgram:
    """The module as ops over values."""
    reader = _LoopReader()
    for parameter in module.entry.parameters:
        reader.program.values[parameter] = _fresh(parameter)
    reader.plan(module.entry)
    reader.run()
    program = reader.program
    program.outputs = program.values[module.entry.root]
    for op in program.ops:
        for position, value in enumerate(op.operands):
            program.users.setdefault(value, []).append((op, position))
    for number, value in enumerate(program.outputs):
        program.users.setdefault(value, []).append((None, number))
    return program


def _fresh(inst: Instruction) -> LoopValues:
    leaves = inst.shape.leaves
    if not inst.shape.is_tuple:
        return (LoopValue(inst.name, leaves[0]),)
    return tuple(LoopValue(f"{inst.name}{{{n}}}", leaf) for n, leaf in enumerate(leaves))


class _LoopReader:
    """Instructions in order; a list of tasks stands for the recursion into computations, however deep they nest."""

    def __init__(self) -> None:
        self.program = LoopProgram()
        self._tasks: list[Callable[[], None]] = []
        self._entered: set[Computation] = set()

    def run(self) -> None:
        while self._tasks:
            self._tasks.pop()()

    def plan(self, computation: Computation, then: Callable[[], None] | None = None) -> None:
        """Read a computation next, and do `then` behind it.  Who is called twice is read once."""
        # Tasks are taken from the end: `then` goes in first, to be done last, and instructions in reverse.
        if then is not None:
            self._tasks.append(then)
        if computation not in self._entered:
            self._entered.add(computation)
            self._tasks += [partial(self._read, inst) for inst in reversed(computation.post_order())]

    def _read(self, inst: Instruction) -> None:
        values = self.program.values
        if inst in values:  # a parameter, bound by the caller
            return
        relation = signature_of(inst)
        if isinstance(relation, DataFlow) and relation.kind in _FLOWS:
            _FLOWS[relation.kind](self, inst)
        elif isinstance(relation, Signature):
            self._add(inst, relation, "")
        else:
            reason = relation.reason if isinstance(relation, Opaque) else f"it is {relation.kind} data flow"
            self._add(inst, _no_loops(inst), reason)

    def _add(self, inst: Instruction, signature: Signature, opaque: str) -> None:
        operands = tuple(self._one(operand) for operand in inst.operands)
        self.program.values[inst] = results = _fresh(inst)
        self.program.ops.append(LoopOp(inst.name, inst, signature, operands, results, opaque))

    def _one(self, operand: Instruction) -> LoopValue:
        leaves = self.program.values[operand]
        # A tuple or a token as an operand of an opaque op has no dims to speak of.
        return leaves[0] if len(leaves) == 1 and not operand.shape.is_tuple else LoopValue(operand.name, operand.shape)

    def tuple_(self, inst: Instruction) -> None:
        """All leaves of all operands."""
        self.program.values[inst] = tuple(v for o in inst.operands for v in self.program.values[o])

    def element(self, inst: Instruction) -> None:
        """The leaves of one element."""
        before = inst.operands[0].shape.first_leaves[inst.tuple_index]
        leaves = self.program.values[inst.operands[0]]
        self.program.values[inst] = leaves[before : before + len(inst.shape.leaves)]

    def same(self, inst: Instruction) -> None:
        """Operand 0 as it is."""
        self.program.values[inst] = self.program.values[inst.operands[0]]

    def while_(self, inst: Instruction) -> None:
        """The carried values are one at the loop, in its body and in its condition."""
        body, condition = while_parts(inst)
        carried = self.program.values[inst] = _fresh(inst)
        start, values = self.program.values[inst.operands[0]], self.program.values
        # Loops that share a body share its parameter, which is what the first of them carries.
        parameters = [values.setdefault(each.parameters[0], carried) for each in (body, condition)]
        for taken in dict.fromkeys([carried, *parameters]):
            self._copies(inst, "enter" if taken is carried else f"from {inst.name}", start, taken)
        self.plan(condition)
        self.plan(body, partial(self._leave, inst, "repeat", body, carried))

    def conditional(self, inst: Instruction) -> None:
        """Every branch takes a copy of its operand and gives a copy of its root."""
        result = self.program.values[inst] = _fresh(inst)
        for number, (branch, operand) in reversed(list(enumerate(branches(inst)))):
            self._pass(inst, branch, 0, operand)
            self.plan(branch, partial(self._leave, inst, f"branch {number}", branch, result))

    def call(self, inst: Instruction) -> None:
        """A callee takes copies; its root is the call's result."""
        (callee,) = inst.called
        for number, operand in enumerate(inst.operands):
            self._pass(inst, callee, number, operand)
        result = self.program.values[inst] = _fresh(inst)
        self.plan(callee, partial(self._leave, inst, "return", callee, result))

    def _pass(self, inst: Instruction, callee: Computation, number: int, operand: Instruction) -> None:
        parameter = callee.parameters[number]
        taken = self.program.values.setdefault(parameter, _fresh(parameter))
        self._copies(inst, f"from {inst.name}", self.program.values[operand], taken)

    def _leave(self, inst: Instruction, word: str, callee: Computation, targets: LoopValues) -> None:
        self._copies(inst, word, self.program.values[callee.root], targets)

    def _copies(self, inst: Instruction, word: str, sources: LoopValues, targets: LoopValues) -> None:
        for source, target in zip(sources, targets, strict=True):
            # What a body hands on as it came is the carried value itself, which needs no copy.
            if source is not target:
                name = f"{target.name} {word}"
                self.program.ops.append(LoopOp(name, inst, _identity(source.shape), (source,), (target,)))


def _identity(shape: Shape) -> Signature:
    dims = tuple((dim,) for dim in range(shape.rank))
    return Signature(tuple(Factor(f"d{n}", size) for n, size in enumerate(shape.dims)), (dims,), (dims,))


def _no_loops(inst: Instruction) -> Signature:
    operands = tuple(((),) * o.shape.rank for o in inst.operands)
    return Signature((), operands, tuple(((),) * leaf.rank for leaf in inst.shape.leaves))


_FLOWS: dict[str, Callable[[_LoopReader, Instruction], None]] = {
    "tuple": _LoopReader.tuple_,
    "get-tuple-element": _LoopReader.element,
    "pass": _LoopReader.same,
    "while": _LoopReader.while_,
    "conditional": _LoopReader.conditional,
    "call": _LoopReader.call,
}
