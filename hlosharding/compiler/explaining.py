"""`hs.explain`: one question for whatever a program has: a value, a collective, a source line.

Floor: compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from re import compile as pattern

from hlosharding.compiler.collective_explanation import CollectiveExplanation
from hlosharding.compiler.partitioned import Partitioned, partition
from hlosharding.compiler.split_explanation import SplitExplanation
from hlosharding.errors import ModuleError
from hlosharding.ir import Instruction, Module, is_at
from hlosharding.notebook import InNotebooks
from hlosharding.propagation import Explanation, LostOffer, Propagation, propagate
from hlosharding.spmd import Collective

_LINE = pattern(r".+:\d+|.+\.onnx:.+")
"""Of a Python file; in an ONNX model nodes stand for lines."""
Answer = Explanation | SplitExplanation | CollectiveExplanation | LostOffer


@dataclass(frozen=True, slots=True)
class Explanations(InNotebooks):
    """The answers to one question.  `str` prints one after the other."""

    answers: tuple[Answer, ...]

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.answers))


def explain(program: Partitioned | Propagation | Module, what: int | str | Collective) -> Explanations:
    """Why a value lies as it does, or why a collective is there.

    `what`: a collective (itself, its number among `Partitioned.collectives`, or "#3"); a source line ("model.py:31"):
    its collectives, its values, and the conflicts that go back to it; a value, a parameter's path.  Collectives are
    those of the program as it is partitioned by default, unless it is partitioned already; or one that XLA made of the
    same program, `hs.collectives(hs.load(jitted.lower(x).compile().as_text()))[3]`: at which op it stands, and what our
    program has there.  Raises ModuleError for what is not in it.

    >>> import hlosharding as hs
    >>> text = '''HloModule m
    ... ENTRY e {
    ...   x = f32[8] parameter(0), sharding={devices=[2]<=[2]}
    ...   ROOT y = f32[8] reverse(x), dimensions={0}, sharding={replicated}
    ... }'''
    >>> found = hs.explain(hs.partition(hs.load(text)), "#0")
    >>> print(str(found).splitlines()[0])
    #0 collective-permute f32[4] in groups of 2: 16 bytes
    """
    if not isinstance(what, str) or what.startswith("#"):
        return Explanations(tuple(_of_collective(_partitioned(program), what)))
    if is_line(what):
        return Explanations(_of_line(program, what))
    return Explanations((_of_name(program, what),))


def is_line(text: str) -> bool:
    """Is it spelled like a source line, "model.py:31"?"""
    return _LINE.fullmatch(text) is not None


def _of_collective(program: Partitioned, what: int | str | Collective) -> Sequence[CollectiveExplanation]:
    if not isinstance(what, Collective) or what in program.collectives:
        return program.explain_collectives(what)
    [found] = program.explain_collectives(what, of=[what])
    return [replace(found, number=None)]


def _of_name(program: Partitioned | Propagation | Module, name: str) -> Answer:
    if not isinstance(program, Partitioned):
        return _propagated(program).explain(name)
    whole = program.propagation.module if program.propagation is not None else program.module
    if whole.find(name.removeprefix("%")) is None and any(one.name == name for one in program.collectives):
        return program.explain_collectives(name)[0]
    if name in whole.paths and program.propagation is not None:
        return program.propagation.explain(name)
    return program.explain(name)


def _of_line(program: Partitioned | Propagation | Module, line: str) -> tuple[Answer, ...]:
    answers = list[Answer]()
    with suppress(ModuleError):  # no collective is at that line
        answers += _partitioned(program).explain_collectives(line)
    propagation = program.propagation if isinstance(program, Partitioned) else _propagated(program)
    if propagation is None:
        return tuple(answers)
    return (*answers, *explain_line(propagation, line))


def explain_line(propagation: Propagation, line: str) -> tuple[Explanation | LostOffer, ...]:
    """The values of a source line, each with its conflicts; then those that go back to an annotation of that line.

    Raises ModuleError, with near misses, where no value is made there.
    """
    made = made_at(propagation.module, line)
    # A copy that XLA's pass puts behind the root is at the root's line, and has the root's answer.
    values = dict.fromkeys(propagation.explain(inst.name) for inst in made)
    told = {lost.pair for value in values for lost in value.conflicts}
    return (*values, *(lost for lost in propagation.conflicts if lost.is_at(line) and lost.pair not in told))


def made_at(module: Module, line: str) -> Sequence[Instruction]:
    """The values of a source line; those inside reducers and their like have no sharding and are left out.

    Raises ModuleError, with near misses, where there is none.
    """
    made = [inst for inst in module.instructions if is_at(inst.location, line)]
    if not made:
        near = get_close_matches(line, sorted({inst.location for inst in module.instructions} - {""}), 3)
        remedy = f"did you mean {', '.join(near)}?" if near else "the program names no source lines"
        raise ModuleError(f"no value is made at {line}", remedy=remedy)
    return [i for i in made if i.computation.is_entry or module.sharding(i) is not None] or made


def _partitioned(program: Partitioned | Propagation | Module) -> Partitioned:
    return program if isinstance(program, Partitioned) else partition(program)


def _propagated(program: Propagation | Module) -> Propagation:
    return program if isinstance(program, Propagation) else propagate(program)
