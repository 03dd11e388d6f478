"""What a sweep has yet to try: one byte per place, so that "the next one" is a search in a byte string.

Floor: propagation.  Knows levels and the order of a sweep; neither graph nor shardings.

XLA tries everything once a level, and again what had an input changed.  We try only what could end differently: of what
saw no change since it was last tried, the first round of a level is skipped, unless a change comes before its turn.
"""

from __future__ import annotations

TODO, DONE, LATER, SKIPPED = range(4)
"""To try; tried; has seen a change, but XLA tries it no more within this level; not worth the first round."""

DYNAMIC = 10
"""The level of what is provided and yet may be refined: open at every level."""

_FRESH = bytes(SKIPPED if state in (DONE, SKIPPED) else 0 for state in range(256))
_TRIED = bytes(DONE if state == SKIPPED else state for state in range(256))


class Worklist:
    """One direction of the fix point.  `levels`: per place the first level at which it is tried at all."""

    __slots__ = ("first", "last", "levels", "opened", "state")

    def __init__(self, levels: bytearray) -> None:
        self.levels = levels
        self.state = bytearray([DONE]) * len(levels)
        self.opened = bytes(len(levels))
        """Per place its state after an input changed: TODO, or LATER where this level is too early for it."""
        self.first, self.last = 0, -1
        """The places that the present round has come past."""

    def start_level(self, level: int) -> None:
        """Open what is for this level: what has seen a change is to do, the rest skipped.

        >>> worklist = Worklist(bytearray([0, 1, 0]))
        >>> worklist.state[:2] = bytes([LATER, LATER])
        >>> worklist.start_level(0)
        >>> list(worklist.state)
        [0, 2, 3]
        """
        self.opened = bytes(self.levels.translate(bytes(LATER if level < n != DYNAMIC else TODO for n in range(256))))
        # In one go: TODO stays or becomes SKIPPED, LATER (closed) stays or becomes DONE.
        fresh = int.from_bytes(self.state.translate(_FRESH), "big")
        self.state[:] = (int.from_bytes(self.opened, "big") ^ fresh).to_bytes(len(self.state), "big")

    def end_round(self, start: int, end: int) -> None:
        """The first round of a level is over for these places; nothing is skipped any more."""
        self.state[start:end] = self.state[start:end].translate(_TRIED)

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
