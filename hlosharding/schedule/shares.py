"""Which part of a whole a value is, where the whole is worked on piece by piece: microbatches, replicas.

Floor: schedule.  Such an axis is no mesh axis: no device knows of it.  A value is some pieces of what is split along
it, or the sum of some of its terms; a reduction that is missing, or made twice, shows here and nowhere else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hlosharding.errors import ScheduleError

MOST_PIECES = 1 << 12
"""Along one axis: more than any batch is cut into.  Of each the others are listed in turn."""


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
    """Into how many pieces a whole is cut.  Raises ScheduleError for more than can be listed."""
    if count > MOST_PIECES:
        raise ScheduleError(f"{count} pieces are more than the {MOST_PIECES} that can be listed", remedy="take fewer")
    return count


Shares = tuple[Share, ...]
"""At most one an axis, by name."""


def joined(several: Sequence[Shares], *, is_sum: bool) -> Shares:
    """Shares of the sum of several values (`is_sum`), or of their concatenation; the whole has none.

    They differ along one axis.  Raises ScheduleError where a term would be in the sum twice, or they do not fit.

    >>> terms = [(Share("micro", 2, (n,), is_sum=True),) for n in range(2)]
    >>> joined(terms, is_sum=True), joined(terms[:1], is_sum=True) == terms[0]
    ((), True)
    >>> joined([terms[0], terms[0]], is_sum=True)
    Traceback (most recent call last):
        ...
    hlosharding.errors.ScheduleError: term 0 of micro is in the sum twice; reduce each term once
    """
    first, *others = several
    places = {place for shares in others if (place := _differing(first, shares, is_sum=is_sum)) is not None}
    if len(places) > 1:
        raise ScheduleError(f"{_text(first)} and the others do not {'add' if is_sum else 'join'}")
    found = list(first)
    for place in places:
        found[place] = _united([shares[place] for shares in several])
    return tuple(share for share in found if share.missing)


def _differing(left: Shares, right: Shares, *, is_sum: bool) -> int | None:
    """The place of the axis along which they are joined; None where there is nothing to be joined."""
    if [s.axis for s in left] != [s.axis for s in right]:
        raise ScheduleError(f"{_text(left)} and {_text(right)} are shares of different wholes")
    differing = [n for n, (a, b) in enumerate(zip(left, right, strict=True)) if a != b or (a.is_sum and is_sum)]
    if not left or (is_sum and not differing):
        return None
    own = [n for n in differing if left[n].is_sum == right[n].is_sum == is_sum]
    if len(differing) == 1 and own == differing:
        return own[0]
    if all(a == b for a, b in zip(left, right, strict=True)) and not is_sum:
        raise ScheduleError(f"{_text(left)} is there twice", remedy="join each piece once")
    raise ScheduleError(f"{_text(left)} and {_text(right)} do not {'add' if is_sum else 'join'}")


def _united(shares: Sequence[Share]) -> Share:
    first = shares[0]
    other = next((share for share in shares if share.size != first.size), None)
    if other is not None:
        raise ScheduleError(f"{first} and {other} are shares of different wholes")
    times = Counter(member for share in shares for member in share.members)
    twice = sorted(member for member, count in times.items() if count > 1)
    if twice and first.is_sum:
        raise ScheduleError(f"term {twice[0]} of {first.axis} is in the sum twice", remedy="reduce each term once")
    if twice:
        raise ScheduleError(f"piece {twice[0]} of {first.axis} is there twice", remedy="join each piece once")
    return replace(first, members=tuple(sorted(times)))


def mapped(operands: Sequence[Shares], sums: Sequence[bool]) -> list[Shares]:
    """Shares of the results of a function of pieces: pieces too, and terms of a sum where `sums` says so.

    Raises ScheduleError for a sum that is not complete, which no function but a linear one may read, and for pieces
    of different members.

    >>> piece = (Share("micro", 4, (2,)),)
    >>> [[str(s) for s in result] for result in mapped([(), piece], [False, True])]
    [['piece 2/4 of micro'], ['sum 2/4 of micro']]
    >>> mapped([(Share("micro", 4, (2,), is_sum=True),)], [False])
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
