"""Why a collective is there: the op that needed it, why that op and its operands lie as they do, and what would help.

Floor: compiler.  Only joins what propagation and the partitioner know; prices nothing itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hlosharding.compiler.split_explanation import told
from hlosharding.errors import ModuleError
from hlosharding.ir import Instruction, Module, is_at
from hlosharding.notebook import InNotebooks
from hlosharding.partitioner import SplitAlternatives
from hlosharding.printable import printable
from hlosharding.propagation import Explanation, Propagation, origin
from hlosharding.sharding import MeshInfo
from hlosharding.spmd import Collective

_OPERAND = re.compile(r"operand (\d+)")
_NUMBER = re.compile(r"#(\d+)")
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

    number: int
    """Its place among `Partitioned.collectives`."""
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

    @property
    def removals(self) -> tuple[str, ...]:
        """What would remove it, or make it smaller."""
        return tuple(self._removals())

    def _removals(self) -> Iterator[str]:
        if self.needed_by is None:
            return
        name = f"%{self.needed_by.name}"
        ends = list(dict.fromkeys(origin(why.links[-1]) for _, why in self.operands))
        if "partial results" in self.collective.reason and ends:
            yield f"no split of what {name} adds up: it comes of {' and '.join(ends)}"
        elif self.wanted is not None and ends:
            yield (
                f"the same split on both sides: that of {name} comes of {origin(self.wanted.links[-1])},"
                f" that of what it reads of {' and '.join(ends)}"
            )
        if self.splits is not None and self.splits.others:
            best = min(self.splits.others, key=lambda one: one.comm_bytes)
            if best.comm_bytes < self.splits.chosen.comm_bytes:
                yield f"{name} split {told(best, self.mesh)}; not taken: {best.excluded}"

    @property
    def head(self) -> str:
        """The collective in a line, and the op that needed it."""
        op = self.needed_by
        at = f" at {op.location}" if op is not None and op.location else ""
        where = f"\n  needed by %{op.name} ({op.opcode}{at})" if op is not None else ""
        return f"#{self.number} {self.collective}{where}: {self.collective.reason or 'the program does not say why'}"

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
        return "\n".join(printable(line) for text in lines for line in text.splitlines())


def meant_collectives(found: Sequence[Collective], what: int | str | Collective) -> list[int]:
    """Numbers of those that a number (3, "#3"), a source line ("model.py:31"), a name, or a collective itself means.

    Raises ModuleError where there is none.

    >>> meant_collectives([], "#0")
    Traceback (most recent call last):
    hlosharding.errors.ModuleError: no collective #0; the program has none
    """
    if isinstance(what, Collective):
        numbers = [number for number, one in enumerate(found) if one is what]
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
    collective: Collective,
    source: Module,
    propagation: Propagation | None,
    splits: Mapping[str, SplitAlternatives | None],
) -> CollectiveExplanation:
    """Joins what is known of the op that needed a collective; `splits`: of the ops of `source`, by name."""
    op = source.find(collective.needed_by)
    if op is None or propagation is None:
        return CollectiveExplanation(number, collective, op, None, (), splits.get(collective.needed_by), source.mesh)
    asked = _OPERAND.search(collective.reason)
    numbers = [int(asked[1])] if asked else [n for n, o in enumerate(op.operands) if _is_split(propagation, o)]
    chains = [(n, _why(propagation, op.operands[n])) for n in numbers[:_MOST_OPERANDS] if n < len(op.operands)]
    operands = tuple((n, why) for n, why in chains if why is not None)
    wanted, own = _why(propagation, op), splits.get(op.name)
    return CollectiveExplanation(number, collective, op, wanted, operands, own, source.mesh)


def _why(propagation: Propagation, inst: Instruction) -> Explanation | None:
    """None of what only the result of the propagation has."""
    return propagation.explain(inst.name) if inst.name in propagation.shardings else None


def _is_split(propagation: Propagation, inst: Instruction) -> bool:
    sharding = propagation.shardings.get(inst.name)
    return sharding is not None and any(leaf.num_tiles > 1 for leaf in sharding.leaves)
