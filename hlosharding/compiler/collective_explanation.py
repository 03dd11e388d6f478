"""Why a collective is there: the op that needed it, why that op and its operands lie as they do, and what would help.

Floor: compiler.  Only joins what propagation and the partitioner know; prices nothing itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from hlosharding.compiler.split_explanation import told
from hlosharding.errors import ModuleError
from hlosharding.ir import Instruction, Module, is_at
from hlosharding.notebook import InNotebooks
from hlosharding.partitioner import SplitAlternatives
from hlosharding.printable import printable
from hlosharding.propagation import ChainLink, Explanation, Propagation, origin
from hlosharding.rules import Reduce, Signature, signature_of
from hlosharding.sharding import MeshInfo
from hlosharding.spmd import Collective

# As the partitioner words what it moves an operand for: its number stands nowhere else.
_OPERAND = re.compile(r"operand (\d+)")
_NUMBER = re.compile(r"#(\d+)")
_ASK = "; ask of the program that was compiled: hs.explain(program, this), or `explain FILE xla#0`"
_MOST_OPERANDS = 3
"""Whose chains are told: each is as long as the whole explanation of a value."""


@dataclass(frozen=True, slots=True)
class CollectiveExplanation(InNotebooks):
    """Why one collective is there.  `str` prints the op that needed it, the chains of causes, the splits, the remedies.

    >>> import hlosharding as hs
    >>> text = '''HloModule m, num_partitions=2
    ... ENTRY e {
    ...   x = f32[4,8] parameter(0), sharding={devices=[1,2]<=[2]}
    ...   y = f32[8,4] parameter(1), sharding={devices=[2,1]<=[2]}
    ...   ROOT z = f32[4,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={replicated}
    ... }'''
    >>> found = hs.partition(hs.load(text)).explain(0)
    >>> found.collective.kind, found.collective.reason, found.needed_by.name
    ('all-reduce', 'add of partial results', 'z')
    >>> found.removals[0]
    'no split of what %z adds up: it comes of what the user gave to %x and what the user gave to %y'
    """

    number: int | None
    """Its place among `Partitioned.collectives`, or among XLA's; None where these are not known."""
    collective: Collective
    needed_by: Instruction | None
    """The op of the whole program; None where that is not known."""
    wanted: Explanation | None
    """Why the op lies as it does; None where the program came with its shardings."""
    operands: tuple[tuple[int, Explanation], ...]
    """Those that the collective is about, by number, and why they lie as they do."""
    splits: SplitAlternatives | None
    """How the op is split, and the other splits that were priced; None where there was no choice."""
    mesh: MeshInfo | None = field(default=None, repr=False)
    ours: tuple[Collective, ...] | None = None
    """Of a collective of XLA's own program: what our program has at that op, or at its line; None of our own."""

    @property
    def removals(self) -> tuple[str, ...]:
        """What would remove it, or make it smaller."""
        return tuple(self._removals())

    def _removals(self) -> Iterator[str]:
        if self.needed_by is None:
            return
        name = f"%{self.needed_by.name}"
        ends = list({origin(why.links[-1]): why.links[-1] for _, why in self.operands}.values())
        own = self.wanted.links[-1] if self.wanted is not None else None
        if ends and adds_up(self.collective):
            yield f"no split of what {name} adds up: it comes of {' and '.join(map(origin, ends))}"
        elif ends and own is not None:
            yield _one_split(name, own, ends)
        if self.splits is not None and self.splits.others:
            best = min(self.splits.others, key=lambda one: one.comm_bytes)
            if best.comm_bytes < self.splits.chosen.comm_bytes:
                yield f"{name} split {told(best, self.mesh)}; not taken: {best.excluded}"

    @property
    def head(self) -> str:
        """The collective in a line, the op that needed it, and of XLA's what our program has there."""
        op = self.needed_by
        at = f" at {op.location}" if op is not None and op.location else ""
        where = f"\n  needed by %{op.name} ({op.opcode}{at})" if op is not None else ""
        mark = f"#{self.number} " if self.number is not None else ""
        return f"{mark}{self.collective}{where}: {self._reason}{''.join(self._beside)}"

    @property
    def _reason(self) -> str:
        if self.collective.reason:
            return self.collective.reason
        if self.needed_by is None and self.ours is not None:
            return "XLA made it, and names no op of the program"
        named = f" for {self.collective.op_name}" if self.collective.op_name else ""
        return f"XLA made it{named}, and does not say why" + _ASK * (self.needed_by is None)

    @property
    def _beside(self) -> Iterator[str]:
        """What our program has there."""
        if self.ours == () and self.needed_by is not None:
            yield "\n  our program has none there"
        for kind, times in Counter(map(str, self.ours or ())).items():
            yield f"\n  our program has there{f' {times} times' if times > 1 else ''}: {kind}"

    @property
    def chains(self) -> tuple[tuple[str, str], ...]:
        """Of the op and of what it reads: what the chain is of, and the chain."""
        op = self.needed_by
        own = [(f"%{op.name} itself", self.wanted.text())] if op is not None and self.wanted is not None else []
        return (*own, *((f"operand {number}", why.text()) for number, why in self.operands))

    def __str__(self) -> str:
        lines = [self.head]
        lines += ["  what would remove it, or make it smaller:"] if self.removals else []
        lines += [f"    {removal}" for removal in self.removals]
        for what, chain in self.chains:
            lines += [f"  {what}:", *(f"    {line}" for line in chain.splitlines())]
        if self.splits is not None:
            lines.append(f"  split {told(self.splits.chosen, self.mesh)}")
            lines += [f"    else {told(one, self.mesh)}; not taken: {one.excluded}" for one in self.splits.others]
        # Names and places may be a stranger's text, which must not steer the terminal.
        return "\n".join(printable(line) for text in lines for line in text.splitlines())


def _one_split(name: str, own: ChainLink, ends: Sequence[ChainLink]) -> str:
    """That an op and what it reads be split alike; `ends`: to what the operands' splits go back."""
    others = [end for end in ends if origin(end) != origin(own)]
    theirs = " and ".join(map(origin, others))
    if not others:
        return f"no split of what {name} reads, or another one: it comes of {origin(ends[0])}"
    if not own.is_given:
        return f"a split of {name}, which nothing gave it; that of what it reads comes of {theirs}"
    if own.at and all(end.is_given and end.at == own.at for end in others):
        titles = " and ".join(end.title for end in (own, *others))
        return (
            f"another split in the annotation{own.at}, or none: both sides go back to it, to {titles}"
            " (a value and its gradient, or two calls)"
        )
    return f"the same split on both sides: that of {name} comes of {origin(own)}, that of what it reads of {theirs}"


def meant_collectives(found: Sequence[Collective], what: int | str | Collective) -> list[int]:
    """Numbers of those that a number (3, "#3"), a source line ("model.py:31"), a name, or a collective itself means.

    Raises ModuleError where there is none.

    >>> meant_collectives([], "#0")
    Traceback (most recent call last):
    hlosharding.errors.ModuleError: no collective #0; the program has none
    """
    if isinstance(what, Collective):
        numbers = [number for number, one in enumerate(found) if one == what]
    elif isinstance(what, int) or _NUMBER.fullmatch(what):
        asked = what if isinstance(what, int) else int(what[1:])
        numbers = [asked] if 0 <= asked < len(found) else []
    else:
        numbers = [
            number
            for number, one in enumerate(found)
            if is_at(one.location, what) or one.name == what.removeprefix("%")
        ]
    if not numbers:
        known = f"they are #0 to #{len(found) - 1}" if found else "the program has none"
        raise ModuleError(f"no collective {f'#{what}' if isinstance(what, int) else what}", remedy=known)
    return numbers


def explained_collective(
    number: int,
    ours: Sequence[Collective],
    theirs: Sequence[Collective] | None,
    source: Module,
    propagation: Propagation | None,
    splits_of: Callable[[str], SplitAlternatives | None],
) -> CollectiveExplanation:
    """Joins what is known of the op of `source` which needed one of `ours`, or of `theirs`, XLA's."""
    collective = (ours if theirs is None else theirs)[number]
    op = source.find(collective.needed_by if theirs is None else op_of_xla(source, ours, theirs, number))
    if op is None:
        return CollectiveExplanation(number, collective, None, None, (), None, None, None if theirs is None else ())
    there, splits, mesh = None if theirs is None else ours_at(op, ours), splits_of(op.name), op.module.mesh
    if propagation is None:
        return CollectiveExplanation(number, collective, op, None, (), splits, mesh, there)
    asked = _OPERAND.search(collective.reason)
    numbers = [int(asked[1])] if asked else [n for n, o in enumerate(op.operands) if _is_split(propagation, o)]
    numbers = [n for n in numbers[:_MOST_OPERANDS] if n < len(op.operands)]
    operands = tuple((n, propagation.explain(op.operands[n].name)) for n in numbers)
    return CollectiveExplanation(number, collective, op, propagation.explain(op.name), operands, splits, mesh, there)


def _is_split(propagation: Propagation, inst: Instruction) -> bool:
    sharding = propagation.shardings.get(inst.name)
    return sharding is not None and any(leaf.num_tiles > 1 for leaf in sharding.leaves)


# ---- collectives of XLA's own programs

_OF_SUMS = frozenset({"all-reduce", "reduce-scatter"})


def adds_up(one: Collective) -> bool:
    """Are partial results added up in it?  XLA does not say: its kind tells."""
    return "partial results" in one.reason if one.reason else one.kind in _OF_SUMS


def op_of_xla(source: Module, ours: Sequence[Collective], theirs: Sequence[Collective], number: int) -> str:
    """Name of the op for which XLA made `theirs[number]`; "" where it names none of `source`.

    Of several of one name and line (layers) those count for which our program has such a collective, too, in order.
    """
    one = theirs[number]
    named = _of_one_line(source, one)
    needing = {each.needed_by for each in ours if adds_up(each) == adds_up(one)}
    fitting = [op for op in named if op.name in needing]
    fitting = fitting or [op for op in named if _reduces(op) == adds_up(one)] or named
    before = sum(_place(each) == _place(one) for each in theirs[:number])
    return fitting[min(before, len(fitting) - 1)].name if fitting else ""


def _of_one_line(source: Module, one: Collective) -> list[Instruction]:
    """Those of its name, too, where there are such.  An op without metadata gives it its own name."""
    if not (one.location or one.op_name):
        return []
    at_line = [op for op in source.instructions if op.location == one.location] if one.location else []
    named = [op for op in at_line or source.instructions if op.op_name == one.op_name] or at_line
    own = source.find(one.op_name)
    return named or ([own] if own is not None else [])


def _reduces(op: Instruction) -> bool:
    signature = signature_of(op)
    return isinstance(signature, Signature) and any(isinstance(factor.owes, Reduce) for factor in signature.factors)


def _place(one: Collective) -> tuple[bool, str, str]:
    return adds_up(one), one.location, one.op_name


def ours_at(op: Instruction, ours: Sequence[Collective]) -> tuple[Collective, ...]:
    """Our collectives for an op; where there are none, those of its line."""
    own = tuple(one for one in ours if one.needed_by == op.name)
    return own or tuple(one for one in ours if one.location and one.location == op.location)
