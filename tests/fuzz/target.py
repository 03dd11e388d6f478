"""What is fuzzed: a reader, what is valid there, and words of its grammar; and when it has failed."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from types import FrameType

from hlosharding import HloShardingError

CPU_SECONDS = 2.0
"""For one input: the longest of them are read in a tenth of that."""
LONGEST = 1 << 14
"""Bytes of an input."""
_FAULT = "fault is ours"


class TooLong(BaseException):
    """It takes longer than anybody waits for; no reader may catch it."""


@dataclass(frozen=True, slots=True)
class Target:
    """A format that strangers write."""

    read: Callable[[bytes], object]
    """Gives anything, or raises HloShardingError; anything else is a failure."""
    given: Sequence[bytes] | Callable[[], Sequence[bytes]]
    """Valid, or nearly: what inputs are made of; a function where it takes long to find them."""
    words: tuple[bytes, ...] = ()
    """Pieces of the grammar that no seed has."""
    change: Callable[[bytes, Random], bytes] | None = None
    """How a seed is changed, where bytes and tokens mean little."""

    @property
    def seeds(self) -> Sequence[bytes]:
        """What is valid."""
        return self.given() if callable(self.given) else self.given

    def failure(self, data: bytes) -> str | None:
        """What is wrong with the way in which the reader takes an input; None where nothing is."""
        try:
            with _within(CPU_SECONDS):
                self.read(data)
        except HloShardingError as error:
            return str(error)[:300] if _FAULT in str(error) else None
        except TooLong:
            return f"no end within {CPU_SECONDS} CPU seconds"
        except Exception as error:  # noqa: BLE001  (that is the question)
            return f"{type(error).__name__}: {str(error)[:300]}"
        return None


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """By CPU time: others may use the machine, too.  An interval, should somebody swallow the first one."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise TooLong

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds, 0.1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
