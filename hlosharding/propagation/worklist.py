"""What a sweep has yet to try: one byte per place, so that "the next one to try" is a search in a byte string.

Floor: propagation.  Knows levels and the order of a sweep; neither graph nor shardings.

XLA tries everything once a level, and again what had an input changed.  We try only what could end differently: of what
saw no change since it was last tried, the first round of a level is skipped, unless a change comes before its turn.
One sweep forward, in which trying place 1 changes what 3 and 0 read (`.` TODO, `x` DONE, `~` LATER, `s` SKIPPED):

    place           0 1 2 3 4
    before          x . s x .
    1 is next       x x s x .     find(TODO) from the left; what is tried is DONE
    1 changes       . x s . .     whatever reads it is to be tried: 3 in this sweep, 0 in the next one
    then 3, then 4  . x s x x     2 is tried in no sweep of this round: nothing that it reads has changed
"""

from __future__ import annotations

from collections.abc import Iterator

TODO, DONE, LATER, SKIPPED = range(4)
"""To try; tried; has seen a change, but XLA tries it no more within this level; not worth the first round."""

REFINABLE = 10
"""The level of what is provided and yet may be refined: open at every level."""

_ALL_BYTES = range(256)
_SAW_NO_CHANGE = bytes(SKIPPED if state in (DONE, SKIPPED) else 0 for state in _ALL_BYTES)
_ROUND_OVER = bytes(DONE if state == SKIPPED else state for state in _ALL_BYTES)


class Worklist:
    """One direction of the fix point.  `levels`: per place the first level at which it is tried at all."""

    __slots__ = ("first", "last", "levels", "opened", "state")

    def __init__(self, levels: bytearray) -> None:
        self.levels = levels
        self.state = bytearray([DONE]) * len(levels)
        self.opened = bytes(len(levels))
        """Per place its state after an input changed: TODO, or LATER where this level is too early for it."""
        self.first, self.last = 0, -1
        """The places that the present sweep has come past."""

    def start_level(self, level: int) -> None:
        """Begin a level: what has seen a change is to do, the rest is skipped; what belongs to later levels stays shut.

            seen a change?      open at this level      not open
            TODO, LATER: yes    TODO                    LATER
            DONE, SKIPPED: no   SKIPPED                 DONE

        >>> worklist = Worklist(bytearray([0, 1, 0]))
        >>> worklist.state[:2] = bytes([LATER, LATER])
        >>> worklist.start_level(0)
        >>> list(worklist.state) == [TODO, LATER, SKIPPED]
        True
        """
        self.opened = bytes(self.levels.translate(_opened_at(level)))
        self.state[:] = _exclusive_or(self.opened, self.state.translate(_SAW_NO_CHANGE))

    def upwards(self, start: int, end: int) -> Iterator[int]:
        """The places to try from `start` up to `end`; while it runs, places may be added and taken away.

        >>> worklist = Worklist(bytearray(4))
        >>> worklist.state[1] = TODO
        >>> for place in worklist.upwards(0, 4):
        ...     print("try", place)
        ...     if place == 1:
        ...         worklist.state[0] = worklist.state[3] = TODO
        try 1
        try 3
        >>> worklist.has_work(0, 4)
        True
        """
        state, p = self.state, start - 1
        while (p := state.find(TODO, p + 1, end)) >= 0:
            # Before it is tried, for trying it may set it to TODO again: open dims do so until they are refined.
            state[p] = DONE
            self.last = p
            yield p
        # The backward sweep comes behind the whole forward one, also behind places that were not to do.  Downwards
        # needs no such line: no sweep of this computation comes behind it.
        self.last = end - 1

    def downwards(self, start: int, end: int) -> Iterator[int]:
        """The same from `end` down to `start`."""
        state, p = self.state, end
        while (p := state.rfind(TODO, start, p)) >= 0:
            state[p] = DONE
            self.first = p
            yield p

    def end_round(self, start: int, end: int) -> None:
        """The first round of a level is over for these places; nothing is skipped any more."""
        self.state[start:end] = self.state[start:end].translate(_ROUND_OVER)

    def has_work(self, start: int, end: int) -> bool:
        """Is anything to do among these places?"""
        return self.state.find(TODO, start, end) >= 0

    def touch(self, p: int) -> None:
        """Something that `p` reads changed for which XLA does not try it again; but it would have tried a skipped one,
        unless it has come past it.
        """
        state = self.state[p]
        if state != TODO:
            self.state[p] = TODO if state == SKIPPED and not self.first <= p <= self.last else LATER


def _opened_at(level: int) -> bytes:
    """For `bytes.translate`: from the first level of a place to the state that a change gives it at this level."""
    return bytes(LATER if level < first != REFINABLE else TODO for first in _ALL_BYTES)


def _exclusive_or(left: bytes, right: bytes | bytearray) -> bytes:
    """Byte by byte, in one go.  Of `opened` and "saw no change" it is the table in `Worklist.start_level`:

    TODO ^ 0 is TODO, TODO ^ SKIPPED is SKIPPED, LATER ^ 0 is LATER, and LATER ^ SKIPPED (2 ^ 3) is DONE (1).
    """
    return (int.from_bytes(left, "big") ^ int.from_bytes(right, "big")).to_bytes(len(left), "big")
