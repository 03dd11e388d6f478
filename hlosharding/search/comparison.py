"""Why a plan won: for each of its choices the best plan that chooses otherwise, and what that costs.

Floor: search.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields

from hlosharding.cost import Machine
from hlosharding.search.plans import Plan
from hlosharding.search.priced_plan import PricedPlan

EQUAL = 1.01
"""Times as long: no prediction tells apart plans that are so near each other."""


def shared_reason(refused: Sequence[tuple[object, str]]) -> str:
    """The reason for which most are refused.

    >>> shared_reason([("1/1/1/3", "not cut"), ("2/1/1/1", "no such argument"), ("1/1/1/5", "not cut")])
    '2 of 3 refused: not cut'
    """
    if not refused:
        return "none was asked for"
    [(why, count)] = Counter(why for _, why in refused).most_common(1)
    return f"{count} of {len(refused)} refused: {why}"


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """The best plan that chooses otherwise than the winner in some words of a plan."""

    choices: tuple[str, ...]
    """The fields of `Plan` of which this is the best other choice."""
    priced: PricedPlan
    winner: PricedPlan

    @property
    def times_as_long(self) -> float:
        """Below 1 where it does not fit."""
        return self.priced.time_s / self.winner.time_s

    @property
    def gains(self) -> str:
        """Where it loses time against the winner, and where it saves some."""
        lost = {
            "communicating": self.priced.exposed_s - self.winner.exposed_s,
            "idle": self.priced.idle_s - self.winner.idle_s,
            "computing": self.priced.compute_s - self.winner.compute_s,
        }
        least = _TELLING * self.winner.time_s
        said = {what: seconds for what, seconds in lost.items() if abs(seconds) > least}
        return ", ".join(f"{'+' if seconds > 0 else ''}{time_text(seconds)} {what}" for what, seconds in said.items())

    def __str__(self) -> str:
        takes = f"{time_text(self.priced.time_s)}, {self.times_as_long:.2f} times as long"
        holds = memory_text(self.priced.peak_memory_bytes) + ("" if self.priced.fits else ", does not fit")
        why = f" ({self.gains})" if self.gains else ""
        return f"other {', '.join(self.choices)}: {self.priced.plan} takes {takes}{why}, {holds}"


_TELLING = 0.001
"""Part of a step: less is not worth a word."""


def runners_up(table: Sequence[PricedPlan]) -> list[RunnerUp]:
    """Of the first plan, for its batch size: the best that differs in each choice, of equal ones that which differs in
    fewest others; choices that go together share theirs.  The cheapest first.

    `table`: the best first; not empty.

    >>> from hlosharding.cost import StepBreakdown
    >>> plans = {"4/1/1/1 fsdp": 1.0, "4/1/1/1": 1.1, "2/2/1/1 fsdp": 1.2, "2/2/1/1": 1.195}
    >>> table = [PricedPlan(Plan.parse(plan), 8, s, StepBreakdown(flops_s=s), 2e9, True) for plan, s in plans.items()]
    >>> for found in runners_up(table):
    ...     print(found)
    other strategy: 4/1/1/1 takes 1.1 s, 1.10 times as long (+100 ms computing), 2 GB
    other data, tensor: 2/2/1/1 fsdp takes 1.2 s, 1.20 times as long (+200 ms computing), 2 GB
    """
    winner, *rest = table
    others = [each for each in rest if each.batch_size == winner.batch_size]
    found = defaultdict[PricedPlan, list[str]](list)
    for choice in _CHOICES:
        differing = [each for each in others if choice in _differences(each, winner)]
        if differing:
            best = differing[0]
            equal = [each for each in differing if each.fits == best.fits and each.time_s <= EQUAL * best.time_s]
            found[min(equal, key=lambda each: len(_differences(each, winner)))].append(choice)
    return [RunnerUp(tuple(found[each]), each, winner) for each in sorted(found, key=table.index)]


_CHOICES = tuple(field.name for field in fields(Plan))


def _differences(one: PricedPlan, other: PricedPlan) -> list[str]:
    return [name for name in _CHOICES if getattr(one.plan, name) != getattr(other.plan, name)]


def winner_text(winner: PricedPlan, machine: Machine) -> str:
    """What the first plan takes, and where its time goes."""
    spent = {"computing": winner.compute_s, "communicating": winner.exposed_s, "idle": winner.idle_s}
    times = ", ".join(f"{time_text(seconds)} {what}" for what, seconds in spent.items())
    takes = f"takes {time_text(winner.time_s)} on {machine.name}: {times}, {memory_text(winner.peak_memory_bytes)}"
    head = f"{winner.plan} (data/tensor/stages/microbatches) {takes}"
    if winner.fits:
        return head
    limit = "on unlike devices" if machine.parts else f"of {memory_text(machine.memory_bytes)}"
    return f"no plan fits; the fastest, {head} {limit}"


def memory_text(nbytes: float) -> str:
    """Three digits.

    >>> memory_text(22.76e9), memory_text(1.6e12), memory_text(229_376)
    ('22.8 GB', '1,600 GB', '0.229 MB')
    """
    return f"{_digits_text(nbytes / 1e9)} GB" if nbytes >= 1e9 else f"{_digits_text(nbytes / 1e6)} MB"


def time_text(seconds: float) -> str:
    """Three digits.

    >>> time_text(2.034), time_text(-1.81e-3), time_text(34.6e-6), time_text(0.0)
    ('2.03 s', '-1.81 ms', '34.6 us', '0 s')
    """
    if not seconds:
        return "0 s"
    unit, size = next((each for each in _TIMES if abs(seconds) >= each[1]), _TIMES[-1])
    return f"{_digits_text(seconds / size)} {unit}"


_TIMES = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))


def _digits_text(value: float) -> str:
    # From 999.5 on .3g would write 1e+03.
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"
