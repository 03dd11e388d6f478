"""Which part of a whole a value is, where the whole is worked on piece by piece: microbatches, replicas.

Floor: schedule.  Such an axis is no mesh axis: no device knows of it.  A value is some pieces of what is split along
it, or the sum of some of its terms; a reduction that is missing, or made twice, shows here and nowhere else.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from operator import and_, or_

from hlosharding.errors import ScheduleError, is_count

MOST_PIECES = 1 << 12
"""Along one axis: more than any batch is cut into.  Of each the others are listed in turn: time goes with the
square."""


@dataclass(frozen=True, slots=True, order=True)
class Share:
    """Some members of `size` along one axis: pieces of an array, or terms of a sum.

    >>> str(Share("micro", 4, (0, 1), is_sum=True)), str(Share("micro", 4, (2,)))
    ('sum 0,1/4 of micro', 'piece 2/4 of micro')
    """

    axis: str
    size: int
    members: tuple[int, ...]
    """In rising order."""
    is_sum: bool = False

    def __str__(self) -> str:
        return f"{'sum' if self.is_sum else 'piece'} {','.join(map(str, self.members))}/{self.size} of {self.axis}"

    @classmethod
    def of_text(cls, word: str, members: str, size: str, axis: str) -> Share:
        """What `str` prints, taken apart.  Raises ScheduleError for what is no part of so many.

        >>> str(Share.of_text("sum", "0,1", "4", "micro"))
        'sum 0,1/4 of micro'
        """
        made = cls(axis, check_pieces(int(size)), tuple(int(n) for n in members.split(",")), word == "sum")
        is_rising = list(made.members) == sorted(set(made.members))
        if not is_rising or made.members[-1] >= made.size or len(made.members) == made.size:
            raise ScheduleError(f"no part of a whole: {made}", remedy="name some of its members, in rising order")
        return made

    @property
    def missing(self) -> tuple[int, ...]:
        """Members of the whole that are not here."""
        return tuple(sorted(set(range(self.size)).difference(self.members)))


def check_pieces(count: int) -> int:
    """Into how many pieces a whole is cut.  Raises ScheduleError for none, and for more than can be listed."""
    if not is_count(count):
        raise ScheduleError(f"{count} pieces are no whole", remedy="take one or more")
    if count > MOST_PIECES:
        raise ScheduleError(f"{count} pieces are more than the {MOST_PIECES} that can be listed", remedy="take fewer")
    return count


Shares = tuple[Share, ...]
"""At most one an axis, by name."""


def join_shares(several: Sequence[Shares], *, is_sum: bool) -> Shares:
    """Shares of the sum of several values (`is_sum`), or of their concatenation; the whole has none.

    Pieces join along one axis.  Terms may differ along several, as of data and of microbatches: where none is in the
    sum twice, and they make up all combinations of some members of each axis.  Raises ScheduleError otherwise.

    >>> terms = [(Share("micro", 2, (n,), is_sum=True),) for n in range(2)]
    >>> join_shares(terms, is_sum=True), join_shares(terms[:1], is_sum=True) == terms[0]
    ((), True)
    >>> join_shares([terms[0], terms[0]], is_sum=True)
    Traceback (most recent call last):
        ...
    hlosharding.errors.ScheduleError: term 0 of micro is in the sum twice; reduce each term once
    >>> of_both = [(Share("data", 2, (d,), is_sum=True), *term) for d in range(2) for term in terms]
    >>> [str(share) for share in join_shares(of_both[:2], is_sum=True)], join_shares(of_both, is_sum=True)
    (['sum 0/2 of data'], ())
    """
    found = _add(several) if is_sum else _concatenate(several)
    return tuple(share for share in found if share.missing)


def _concatenate(several: Sequence[Shares]) -> Shares:
    first, *others = several
    places = {_find_differing(first, shares) for shares in others if first or shares}
    if len(places) > 1:
        raise ScheduleError(f"{_text(first)} and the others do not join")
    united = tuple(_unite([shares[n] for shares in several]) for n in range(len(first)))
    for place in places:
        _check_once([shares[place] for shares in several])
    return united


def _find_differing(left: Shares, right: Shares) -> int:
    """The place of the axis along which pieces are joined."""
    if [s.axis for s in left] != [s.axis for s in right]:
        raise ScheduleError(f"{_text(left)} and {_text(right)} are shares of different wholes")
    differing = [n for n, (a, b) in enumerate(zip(left, right, strict=True)) if a != b]
    if not differing:
        raise ScheduleError(f"{_text(left)} is there twice", remedy="join each piece once")
    if len(differing) > 1 or left[differing[0]].is_sum or right[differing[0]].is_sum:
        raise ScheduleError(f"{_text(left)} and {_text(right)} do not join")
    return differing[0]


def _add(several: Sequence[Shares]) -> Shares:
    first, *others = several
    for shares in others:
        if [s for s in shares if not s.is_sum] != [s for s in first if not s.is_sum]:
            raise ScheduleError(f"{_text(first)} and {_text(shares)} do not add")
    axes = {share.axis: share.size for shares in several for share in shares if share.is_sum}
    wholes = [Share(axis, size, tuple(range(size)), is_sum=True) for axis, size in axes.items()]
    terms = {whole.axis: [_terms_along(whole, shares) for shares in several] for whole in wholes}
    unlike = {axis: shares for axis, shares in terms.items() if len(set(shares)) > 1}
    united = [_unite(shares) for shares in terms.values()]
    if len(unlike) > 1:
        _check_tiles(list(unlike.values()))
    elif terms:  # what is alike along all axes is there twice along any
        _check_once(next(iter((unlike or terms).values())))
    return tuple(sorted([*(share for share in first if not share.is_sum), *united]))


def _terms_along(whole: Share, shares: Shares) -> Share:
    """All of them, where a value is summed along an axis already."""
    return next((s for s in shares if s.axis == whole.axis), whole)


def _unite(shares: Sequence[Share]) -> Share:
    first = shares[0]
    other = next((share for share in shares if share.size != first.size), None)
    if other is not None:
        raise ScheduleError(f"{first} and {other} are shares of different wholes")
    return replace(first, members=tuple(sorted({member for share in shares for member in share.members})))


def _check_tiles(axes: Sequence[Sequence[Share]]) -> None:
    """Raises ScheduleError unless values, each the terms in a box of members, are all of a box, and each term once."""
    boxes = list(zip(*axes, strict=True))
    for number, met in enumerate(zip(*map(_find_meeting, axes), strict=True)):
        others = reduce(and_, met) & ~(1 << number)
        if others:
            both = zip(boxes[number], boxes[(others & -others).bit_length() - 1], strict=True)
            term = " and ".join(f"{min({*a.members} & {*b.members})} of {a.axis}" for a, b in both)
            raise ScheduleError(f"term {term} is in the sum twice", remedy="reduce each term once")
    whole = [_unite(shares) for shares in axes]
    # Boxes of which no two overlap fill the box around them just where they have as many terms.
    sizes = ([len(share.members) for share in box] for box in boxes)
    there, wanted = sum(map(prod, sizes)), prod(len(share.members) for share in whole)
    if there != wanted:
        what = f"{there} of {wanted} terms of {' and '.join(share.axis for share in whole)} do not add up to a part"
        raise ScheduleError(what, remedy="sum along one axis after the other, or add the terms that are missing")


def _find_meeting(shares: Sequence[Share]) -> list[int]:
    """Of each share along an axis those that have a member in common with it, as bits: pairs of a thousand values would
    take seconds."""
    places, having = defaultdict[Share, int](int), defaultdict[int, int](int)
    for number, share in enumerate(shares):
        places[share] |= 1 << number
    for share, own in places.items():
        for member in share.members:
            having[member] |= own
    met = {share: reduce(or_, map(having.__getitem__, share.members)) for share in places}
    return [met[share] for share in shares]


def _check_once(shares: Sequence[Share]) -> None:
    """Raises ScheduleError where a member is there twice."""
    first, times = shares[0], Counter(member for share in shares for member in share.members)
    twice = sorted(member for member, count in times.items() if count > 1)
    if twice and first.is_sum:
        raise ScheduleError(f"term {twice[0]} of {first.axis} is in the sum twice", remedy="reduce each term once")
    if twice:
        raise ScheduleError(f"piece {twice[0]} of {first.axis} is there twice", remedy="join each piece once")


def map_shares(operands: Sequence[Shares], sums: Sequence[bool]) -> list[Shares]:
    """Shares of the results of a function of pieces: pieces too, and terms of a sum where `sums` says so.

    Raises ScheduleError for a sum that is not complete, which no function but a linear one may read, and for pieces
    of different members.

    >>> piece = (Share("micro", 4, (2,)),)
    >>> [[str(s) for s in result] for result in map_shares([(), piece], [False, True])]
    [['piece 2/4 of micro'], ['sum 2/4 of micro']]
    >>> map_shares([(Share("micro", 4, (2,), is_sum=True),)], [False])
    Traceback (most recent call last):
        ...
    hlosharding.errors.ScheduleError: operand 0 is a sum without terms 0, 1, 3 of micro; reduce it first
    """
    found: dict[str, Share] = {}
    for number, shares in enumerate(operands):
        for share in shares:
            if share.is_sum:
                missing = ", ".join(map(str, share.missing))
                what = f"operand {number} is a sum without terms {missing} of {share.axis}"
                raise ScheduleError(what, remedy="reduce it first")
            if found.setdefault(share.axis, share) != share:
                raise ScheduleError(f"operand {number} is {share}, one before it {found[share.axis]}")
    pieces = tuple(found[axis] for axis in sorted(found))
    return [tuple(replace(share, is_sum=True) for share in pieces) if is_sum else pieces for is_sum in sums]


def _text(shares: Shares) -> str:
    return ", ".join(map(str, shares)) or "a whole"
