"""The answer to "why?": a chain of links to what the user wrote, what kept splits out, and the offers that lost.

Floor: propagation.  Text and values; knows no graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hlosharding.ir import is_at
from hlosharding.notebook import InNotebooks
from hlosharding.printable import printable
from hlosharding.propagation.provenance import Direction
from hlosharding.sharding import HloSharding, MeshInfo, spell, spell_short

_WORDS: dict[Direction, str] = {
    "operands": "from its operand",
    "users": "from its user",
    "computation": "same value as",
    "group": "in one shard group with",
    "annotation": "from the annotation on its user",
    "boundary": "put back at the edge of the program",
}
_SHOWN, _REASONS, _NAMES = 12, 6, 3
"""Steps of a chain, reasons and names that are told: a screen of a terminal.  `whole` tells all steps."""


def is_split(sharding: HloSharding | None) -> bool:
    """Does any device lack part of the value?"""
    return sharding is not None and any(leaf.num_tiles > 1 for leaf in sharding.leaves)


@dataclass(frozen=True, slots=True)
class ChainLink:
    """One value in a chain of causes."""

    name: str
    opcode: str
    location: str
    """file:line of the user's code; of a parameter, the argument's path; "" where neither is known."""
    sharding: HloSharding | None
    direction: Direction | None
    """Where the sharding came from; None: it had it from the start."""
    level: int
    also: tuple[str, ...] = ()
    """Other instructions that contributed to the same change."""
    leaf: int | None = None
    """Which leaf of a tuple."""
    is_given: bool = False
    """Is the sharding what the user (or the caller of the pass) wrote?"""
    called_from: str = ""
    """The line that called the helper in which the annotation stands; "" where there is none."""
    mesh: MeshInfo | None = field(default=None, repr=False)

    @property
    def title(self) -> str:
        """The name, with the leaf: `%while.5{2}`."""
        return f"%{self.name}" + ("" if self.leaf is None else f"{{{self.leaf}}}")

    @property
    def at(self) -> str:
        """ " at model.py:31", or nothing."""
        called = f" (called from {self.called_from})" if self.called_from else ""
        return f" at {self.location}{called}" if self.location else ""

    def __str__(self) -> str:
        where = f" at {self.location}" if self.location else ""
        had = "no sharding" if self.sharding is None else spell_short(self.sharding, self.mesh)
        return f"{self.title} ({self.opcode}{where}) {had}"


@dataclass(frozen=True, slots=True)
class LostOffer(InNotebooks):
    """An offer that lost: a neighbour would have a value laid out otherwise, so data moves between the two.

    >>> import hlosharding as hs
    >>> text = '''HloModule m
    ... ENTRY e {
    ...   a = f32[4,4] parameter(0), sharding={devices=[2,1]<=[2]}
    ...   b = f32[4,4] parameter(1), sharding={devices=[1,2]<=[2]}
    ...   ROOT c = f32[4,4] add(a, b)
    ... }'''
    >>> [lost] = hs.propagate(hs.load(text), to_outputs=True).conflicts
    >>> lost.winner.name, lost.role, lost.loser.name, str(lost.offered)
    ('b', 'user', 'c', '{devices=[2,1]<=[2]}')
    """

    loser: ChainLink
    """The neighbour, with its own sharding."""
    role: str
    """What the neighbour is to the value: "operand 1" or "user"."""
    offered: HloSharding
    """What the neighbour's sharding means for the value."""
    winner: ChainLink
    """The value, with what it has."""
    reason: str
    """Why the offer lost."""
    offered_since: ChainLink
    """Where the chain of the neighbour ends."""
    held_since: ChainLink
    """Where the chain of the value ends."""

    @property
    def pair(self) -> frozenset[str]:
        """Names of the two values that disagree."""
        return frozenset((self.winner.name, self.loser.name))

    def is_at(self, line: str) -> bool:
        """Does either side, or the annotation that it goes back to, stand at a source line ("model.py:31")?"""
        sides = (self.winner, self.loser, self.held_since, self.offered_since)
        return any(is_at(link.location, line) for link in sides)

    @property
    def told(self) -> list[str]:
        """What was offered and why it lost; then to what both sides go back."""
        mesh = self.winner.mesh
        return [
            f"{self.role}, {self.loser}, offers {spell(self.offered, mesh)}; it lost: {self.reason}",
            f"  offered because of {origin(self.offered_since)}",
            f"  {self.winner.title} has {spell(self.winner.sharding, mesh)} because of {origin(self.held_since)}",
        ]

    def __str__(self) -> str:
        return "\n  ".join(map(printable, [f"conflict: {self.winner}", *self.told]))


def origin(link: ChainLink) -> str:
    """Where a chain ends, in words."""
    if link.is_given:
        return f"what the user gave to {link.title}{link.at}"
    return f"{link.title}{link.at}"


@dataclass(frozen=True, slots=True)
class Explanation(InNotebooks):
    """Why one value has its sharding.  `str` prints the chain of causes, the value first.

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  ROOT x = f32[4] parameter(0), sharding={devices=[2]<=[2]}\\n}"
    >>> answer = hs.propagate(hs.load(text)).explain("x")
    >>> print(answer)
    %x (parameter) {devices=[2]<=[2]}
      given by the user on %x
    >>> answer.annotation.name, answer.conflicts
    ('x', ())
    """

    links: tuple[ChainLink, ...]
    stopped: tuple[str, ...] = ()
    """Of a value that is not split: what kept each neighbour's tiling out."""
    conflicts: tuple[LostOffer, ...] = ()
    """Offers that lost."""
    lost: tuple[ChainLink, ChainLink, str] | None = None
    """The first value on the chain that is not split though its cause is, that cause, and why."""

    @property
    def annotation(self) -> ChainLink | None:
        """Where the chain ends: what the user (or a default) gave its sharding."""
        return self.links[-1] if self.links[-1].direction is None else None

    def __str__(self) -> str:
        return self.text()

    def text(self, *, whole: bool = False) -> str:
        """The answer in lines; `whole`: however long the chain is."""
        lines = (*self._chain(whole=whole), *self._end(), *self._reasons(), *self._conflicts())
        return "\n".join(map(printable, lines))

    def _chain(self, *, whole: bool) -> Iterator[str]:
        yield str(self.links[0])
        hidden = 0 if whole else len(self.links) - 1 - _SHOWN
        for n, (link, cause) in enumerate(zip(self.links, self.links[1:], strict=False)):
            # The middle is left out: a reader asks what the value took first, and whose annotation the chain ends at.
            if hidden > 0 and _SHOWN - 4 <= n < _SHOWN - 4 + hidden:
                if n == _SHOWN - 4:
                    yield f"  ... {hidden} more"
                continue
            yield _line(link, cause)

    def _end(self) -> Iterator[str]:
        last = self.links[-1]
        if last.is_given:
            yield f"  given by the user on {last.title}{last.at}"
        elif last.direction is None and last.sharding is not None and last.leaf is not None:
            yield f"  nothing reached {last.title}: it is whole because the tuple got a sharding for another element"

    def _reasons(self) -> Iterator[str]:
        yield from (f"  not split: {reason}" for reason in self.stopped[:_REASONS])
        if len(self.stopped) > _REASONS:
            yield f"  ... {len(self.stopped) - _REASONS} more such neighbours"
        if self.lost is not None:
            here, cause, why = self.lost
            where = f" at {here.location}" if here.location else ""
            yield f"  {here.title} ({here.opcode}{where}) loses the split of {cause.title}{why and f': {why}'}"

    def _conflicts(self) -> Iterator[str]:
        for conflict in self.conflicts[:_REASONS]:
            first, *rest = conflict.told
            yield f"  conflict: {first}"
            yield from (f"  {line}" for line in rest)
        if len(self.conflicts) > _REASONS:
            yield f"  ... {len(self.conflicts) - _REASONS} more such neighbours"


def _line(link: ChainLink, cause: ChainLink) -> str:
    word = _WORDS[link.direction or "annotation"]
    level = f", level {link.level}" if link.level >= 0 else ""
    return f"  <- {word}{_and(link.also)}{level}: {cause}"


def _and(also: tuple[str, ...]) -> str:
    if not also:
        return ""
    rest = f" and {len(also) - _NAMES} others" if len(also) > _NAMES else ""
    return f" (and {', '.join('%' + name for name in also[:_NAMES])}{rest})"
