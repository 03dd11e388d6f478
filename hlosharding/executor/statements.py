"""The statements of one function's body: a value that is used once stands in the expression of its user.

Floor: executor.  A statement stays as long as a person reads at a glance, and of one source line where those are known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from hlosharding.executor.emit import WrittenProgram
from hlosharding.executor.expressions import ATOM, SUM, Expression, expression_of, has_operator, is_free, is_view, named
from hlosharding.executor.flow import CodeLine, Formal, Inline, Leaf, Tree, Var, tree_of
from hlosharding.executor.functions import Step
from hlosharding.executor.scope import Scope
from hlosharding.executor.text import comment_text
from hlosharding.ir import ELEMENTWISE, Instruction, processor_of
from hlosharding.spmd import CAUSE_ATTRIBUTE

_INDENT = "    "
_WIDTH, _OPS, _LINE = 96, 6, 116
"""Characters and ops of an expression that holds others; characters of a line, with the comment behind it.  Half the
width makes programs 1.17 times as long, twice the width 0.97 times; three ops 1.03 times, twelve change one program."""
_REGROUPING = frozenset({"broadcast", "reshape", "transpose", "slice", "convert"})
_INSIDE = ELEMENTWISE | _REGROUPING | {"reduce", "dot", "iota"}
"""Ops that may stand in the expression of another."""
_AROUND = _INSIDE | frozenset(
    "pad concatenate convolution bitcast-convert dynamic-slice gather all-reduce all-gather reduce-scatter"
    " collective-permute".split()
)
"""Ops whose text holds each operand once."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A value that may yet stand in its user's expression."""

    line: CodeLine
    expression: Expression
    location: str
    is_regrouping: bool
    inside: tuple[_Waiting, ...]
    """The values written in it."""


class Statements:
    """Takes lines and calls in order; `lines` is their text.  Values get their names when they are written.

    `location_of`: an op's place in the user's source.
    """

    def __init__(
        self, scope: Scope, program: WrittenProgram, location_of: Callable[[Instruction], str], uses: Uses
    ) -> None:
        self.lines: list[str] = []
        self._scope, self._program, self._location_of, self._uses = scope, program, location_of, uses.times
        self._used = uses.used
        self._reader = uses.reader
        self._waiting: dict[Leaf, _Waiting] = {}
        self._location, self._is_away = "", False

    def add(self, line: CodeLine) -> None:
        """An op: a statement now, or a part of a later one."""
        inst = line.inst
        location = self._location_of(inst)
        held = self._held(line, location)
        expression = self._expression(line)
        # It ends: what a view holds has names after one round, and the view itself after the next.
        while held and (expression.width > _WIDTH or expression.ops > _OPS):
            self._shorten(held, max(held, key=lambda leaf: held[leaf].expression.ops))
            expression = self._expression(line)
        is_regrouping = inst.opcode in _REGROUPING and all(h.is_regrouping for h in held.values())
        for leaf in held:
            if self._uses[leaf] <= 1:
                del self._waiting[leaf]
        waiting = _Waiting(line, expression, location, is_regrouping, tuple(held.values()))
        if self._may_wait(inst, is_regrouping):
            self._waiting[Var(inst)] = waiting
        else:
            self._write(waiting)

    def call(self, arguments: Iterable[Leaf]) -> None:
        """Make sure that the arguments of a call have names; the caller writes it."""
        self.name(arguments)
        self._location, self._is_away = "", False

    def name(self, values: Iterable[Leaf]) -> None:
        """Write what is needed for these to have names."""
        for leaf in values:
            if leaf in self._waiting:
                self._write(self._waiting[leaf])

    def finish(self, results: Sequence[Leaf]) -> None:
        """The end of a function that returns these: an only one may stand behind `return` as it is."""
        waiting = self._waiting.get(results[0]) if len(results) == 1 else None
        if waiting is None or self._uses[results[0]] > 1:
            self.name(results)
            return
        self._comment(waiting)
        self._scope.write_in_place(results[0], waiting.expression.text)

    def _held(self, line: CodeLine, location: str) -> dict[Leaf, _Waiting]:
        """The waiting operands that may stand in the line; the others are written."""
        inst, held = line.inst, dict[Leaf, _Waiting]()
        # What stands in a line under `compute_on` would run on the host with it.
        is_around = inst.opcode in _AROUND and processor_of(inst) != "host"
        for leaf in line.uses:
            waiting = self._waiting.get(leaf)
            if waiting is None:
                continue
            is_near = waiting.is_regrouping or waiting.location == location
            is_again = self._uses[leaf] > 1 and not (has_operator(inst) or is_view(inst))
            if is_around and is_near and (not is_again or waiting.expression.is_name):
                held[leaf] = waiting
            else:
                self._write(waiting)
        return held

    def _shorten(self, held: dict[Leaf, _Waiting], leaf: Leaf) -> None:
        """Name an operand, or, where it only spreads or regroups what it holds, name that."""
        waiting = held[leaf]
        if is_view(waiting.line.inst) and any(not w.expression.is_name for w in waiting.inside):
            self._waiting[leaf] = held[leaf] = self._named_inside(waiting)
        else:
            self._write(held.pop(leaf))

    def _named_inside(self, view: _Waiting) -> _Waiting:
        for inner in view.inside:
            if is_view(inner.line.inst) and inner.inside:
                self._waiting[Var(inner.line.inst)] = self._named_inside(inner)
            else:
                self._write(inner)
        return replace(view, expression=self._expression(view.line), is_regrouping=True, inside=())

    def _expression(self, line: CodeLine) -> Expression:
        return expression_of(line.inst, [self._operand(o) for o in line.operands], self._program)

    def _operand(self, tree: Tree) -> Expression:
        if isinstance(tree, tuple):
            return Expression(self._scope.text(tree), ())
        if isinstance(tree, Inline):
            level = ATOM if tree.is_atom else SUM
            return Expression(tree.text, tree.dims, level, literal=tree.literal, is_array=False)
        if tree in self._waiting:
            return self._waiting[tree].expression
        var = tree.var if isinstance(tree, Formal) else tree
        return named(self._scope.text(tree), var.inst, var.shape.dims)

    def _may_wait(self, inst: Instruction, is_regrouping: bool) -> bool:
        if inst.opcode not in _INSIDE or not inst.shape.is_array or processor_of(inst) == "host":
            return False
        # The cause is a comment, for which the op needs a line of its own.
        if _cause(inst) or not (is_free(inst) or self._uses[Var(inst)] == 1):
            return False
        reader = self._reader.get(Var(inst))
        is_near = is_regrouping or reader is None or self._location_of(reader) == self._location_of(inst)
        return is_near and (reader is None or reader.opcode in _AROUND)

    def _comment(self, waiting: _Waiting) -> None:
        if waiting.location and waiting.location != self._location:
            self.lines.append(f"{_INDENT if self._is_away else ''}# {comment_text(waiting.location)}")

    def _write(self, waiting: _Waiting) -> None:
        inst = waiting.line.inst
        self._waiting.pop(Var(inst), None)
        goes_away = processor_of(inst) == "host"
        indent = _INDENT if goes_away else ""
        self._comment(waiting)
        if goes_away and not self._is_away:
            self.lines.append('with compute_on("device_host"):')
        self._location, self._is_away = waiting.location, goes_away
        target = self._scope.bind(tree_of(inst), self._used)
        text = waiting.expression.text if target == "()" else f"{target} = {waiting.expression.text}"
        cause = _cause(inst)
        comment = f"# {comment_text(cause)}" if cause else ""
        width = len(f"{indent}{text}  {comment}") - len(target) - waiting.expression.excess
        if cause and width > _LINE:
            self.lines += [indent + comment, indent + text]
        else:
            self.lines.append(indent + (f"{text}  {comment}" if cause else text))


def _cause(inst: Instruction) -> str:
    """Why the partitioner made it."""
    return inst.frontend_attributes.get(CAUSE_ATTRIBUTE, "")


@dataclass(frozen=True, slots=True)
class Uses:
    """How often each value of a function is read, and by which op last; what only regroups a value hands it on."""

    times: Counter[Leaf]
    reader: dict[Leaf, Instruction]

    @property
    def used(self) -> frozenset[Leaf]:
        """What anybody reads."""
        return frozenset(leaf for leaf, times in self.times.items() if times)


def uses_of(steps: Sequence[Step], results: Iterable[Leaf]) -> Uses:
    """Who reads what in a function that returns `results`."""
    times: Counter[Leaf] = Counter(results)
    reader: dict[Leaf, Instruction] = {}
    for step in reversed(steps):
        inst = step.inst if isinstance(step, CodeLine) else None
        is_handed_on = inst is not None and is_free(inst)
        for leaf in step.uses:
            # A free view is written at each of its uses, and what it shows is read there as often.
            times[leaf] += times[Var(inst)] if inst is not None and is_handed_on else 1
            if inst is not None:
                reader[leaf] = reader.get(Var(inst), inst) if is_handed_on else inst
    return Uses(times, reader)
