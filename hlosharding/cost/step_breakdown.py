"""Where the time of a step goes: kernels, links that no computing hides, launches, idling; and what bounds it.

Floor: cost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Literal

Part = Literal["flops_s", "memory_s", "launch_s", "inside_s", "between_s", "host_s", "waiting_s", "idle_s"]
"""A field of `StepBreakdown`."""
Span = tuple[float, float, Part | None]
"""From when until when a stream is busy, and with what; None: with what is counted elsewhere."""
_LEAST = 0.005
"""Of a step: shares below are not said, for they would stand there as 0 %."""


@dataclass(frozen=True, slots=True)
class StepBreakdown:
    """Seconds of one device, which add up to those of the step: what runs side by side counts once.

    >>> print(StepBreakdown(flops_s=2.0, memory_s=1.0, between_s=2.5))
    bound by compute 55% (FLOPs 36%, memory bandwidth 18%), links between nodes 45%
    """

    flops_s: float = 0.0
    """Kernels that arithmetic bounds."""
    memory_s: float = 0.0
    """Kernels that the memory's bandwidth bounds."""
    launch_s: float = 0.0
    """Kernels of which the start takes longest."""
    inside_s: float = 0.0
    """Collectives over links inside nodes, where no computing hides them."""
    between_s: float = 0.0
    """Likewise between nodes."""
    host_s: float = 0.0
    """Moves to the host's memory and back, likewise."""
    waiting_s: float = 0.0
    """For the host to launch kernels (`runtime="eager"`)."""
    idle_s: float = 0.0
    """Of a schedule: for other stages, and for what they send."""

    @property
    def total_s(self) -> float:
        return sum(astuple(self))

    @property
    def exposed_s(self) -> float:
        """Communication, with the host, too, that no computing hides."""
        return self.inside_s + self.between_s + self.host_s

    @property
    def by_bound(self) -> Mapping[str, float]:
        """Seconds by what bounds them: "compute", "launches", "links between nodes", ...; the most first."""
        seconds: defaultdict[str, float] = defaultdict(float)
        for part, (bound, _) in PARTS.items():
            seconds[bound] += getattr(self, part)
        return dict(sorted(seconds.items(), key=lambda item: -item[1]))

    @property
    def bound(self) -> str:
        """What takes most of the step; "" of one that takes no time."""
        return next(iter(self.by_bound)) if self.total_s else ""

    def __add__(self, other: StepBreakdown) -> StepBreakdown:
        return StepBreakdown(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    def __mul__(self, factor: float) -> StepBreakdown:
        return StepBreakdown(*(factor * seconds for seconds in astuple(self)))

    def beyond(self, first: StepBreakdown, seconds: float) -> StepBreakdown:
        """What there is beyond another one, made to take so many seconds: what a further trip of a loop adds."""
        more = StepBreakdown(*(max(0.0, a - b) for a, b in zip(astuple(self), astuple(first), strict=True)))
        return more * (seconds / more.total_s) if more.total_s else more

    def __str__(self) -> str:
        if not self.total_s:
            return "takes no time"
        shares = (self._share(*each) for each in self.by_bound.items() if each[1] >= _LEAST * self.total_s)
        return f"bound by {', '.join(shares)}"

    def _share(self, bound: str, seconds: float) -> str:
        own = {name: getattr(self, part) / self.total_s for part, (of, name) in PARTS.items() if of == bound}
        parts = [f"{name} {share:.0%}" for name, share in own.items() if name != bound and share >= _LEAST]
        return f"{bound} {seconds / self.total_s:.0%}" + f" ({', '.join(parts)})" * bool(parts)


PARTS: Mapping[Part, tuple[str, str]] = {
    "flops_s": ("compute", "FLOPs"),
    "memory_s": ("compute", "memory bandwidth"),
    "launch_s": ("launches", "starts of kernels"),
    "inside_s": ("links inside nodes", "links inside nodes"),
    "between_s": ("links between nodes", "links between nodes"),
    "host_s": ("links to the host", "links to the host"),
    "waiting_s": ("launches", "waiting for launches"),
    "idle_s": ("idle stages", "idle stages"),
}
"""What bounds a step that it takes most of, and its own name."""


def find_exposed(computing: Iterable[Span], others: Sequence[Iterable[Span]], end: float) -> dict[Part, float]:
    """Of a run until `end` what is not spent computing: in which parts another stream is busy (the first of several
    that are); the rest is waiting.

    >>> dict(find_exposed([(0.0, 1.0, None)], [[(0.5, 3.0, "inside_s")]], 3.5))
    {'inside_s': 2.0, 'waiting_s': 0.5}
    """
    found: defaultdict[Part, float] = defaultdict(float)
    left = [(0.0, end)]
    for spans in (computing, *others):
        left = _outside(left, sorted(spans), found)
    found["waiting_s"] += sum(last - first for first, last in left)
    return found


def _outside(
    gaps: Iterable[tuple[float, float]], spans: Sequence[Span], found: defaultdict[Part, float]
) -> list[tuple[float, float]]:
    """What is left of gaps where a stream is not busy; what it fills is added to `found`."""
    left: list[tuple[float, float]] = []
    place = 0
    for start, end in gaps:
        while place < len(spans) and spans[place][0] < end:
            first, last, part = spans[place]
            if first > start:
                left.append((start, first))
            if part is not None and last > start:
                found[part] += min(last, end) - max(first, start)
            start = max(start, min(last, end))
            if last > end:  # the rest of it may fill the next gap
                break
            place += 1
        if start < end:
            left.append((start, end))
    return left
