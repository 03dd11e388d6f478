"""Why a plan won: where the others lose their time.

Floor: search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from hlosharding.cost import Machine
from hlosharding.search.plans import Plan
from hlosharding.search.priced_plan import PricedPlan

_KINDS: Sequence[tuple[str, Callable[[Plan], bool]]] = (
    ("data alone", lambda plan: plan.tensor == plan.stages == 1),
    ("tensors alone", lambda plan: plan.data == plan.stages == 1),
    ("a pipeline alone", lambda plan: plan.data == plan.tensor == 1),
)


def shared_reason(refused: Sequence[tuple[object, str]]) -> str:
    """The reason for which most are refused.

    >>> shared_reason([("1/1/1/3", "not cut"), ("2/1/1/1", "no such argument"), ("1/1/1/5", "not cut")])
    '2 of 3 refused: not cut'
    """
    if not refused:
        return "there was none"
    [(why, count)] = Counter(why for _, why in refused).most_common(1)
    return f"{count} of {len(refused)} refused: {why}"


def explain_winner(table: Sequence[PricedPlan], machine: Machine) -> str:
    """The winner against the next best, and against the best of each pure kind, of its batch size.

    `table`: the best first; not empty.
    """
    winner = table[0]
    table = [priced for priced in table if priced.batch_size == winner.batch_size]
    takes = f"takes {_time_text(winner.time_s)} on {machine.name}: {_spent_text(winner)}"
    head = f"{winner.plan} (data/tensor/stages/microbatches) {takes}"
    if not winner.fits:
        head = f"no plan fits; the fastest, {head}; {_memory_text(winner, machine)}"
    lines = [head]
    if len(table) > 1:
        lines.append(f"next, {_against_text(table[1], winner, machine)}")
    for name, is_kind in _KINDS:
        found = next((priced for priced in table if is_kind(priced.plan)), None)
        if found is not None and found is not winner:
            lines.append(f"{name}, {_against_text(found, winner, machine)}")
    return "\n".join(lines)


def _against_text(other: PricedPlan, winner: PricedPlan, machine: Machine) -> str:
    if not other.fits:
        return f"{other.plan}: {_memory_text(other, machine)}"
    losses = {
        "in communication": other.exposed_s - winner.exposed_s,
        "idle": other.idle_s - winner.idle_s,
        "in computing": other.compute_s - winner.compute_s,
    }
    said = [
        f"{'loses' if lost > 0 else 'saves'} {_time_text(abs(lost))} {what}"
        for what, lost in losses.items()
        if abs(lost) > 1e-9
    ]
    takes = f"{other.plan}: {_time_text(other.time_s)}, {other.time_s / winner.time_s:.2f} times as long"
    return "; ".join(filter(None, (takes, ", ".join(said))))


def _spent_text(priced: PricedPlan) -> str:
    spent = {"computing": priced.compute_s, "communicating": priced.exposed_s, "idle": priced.idle_s}
    times = ", ".join(f"{_time_text(seconds)} {what}" for what, seconds in spent.items())
    return f"{times}, {priced.peak_memory_bytes / 1e9:,.2f} GB"


def _memory_text(priced: PricedPlan, machine: Machine) -> str:
    holds = f"does not fit: {priced.peak_memory_bytes / 1e9:,.2f} GB"
    return (
        f"{holds} at most, on unlike devices" if machine.parts else f"{holds} of {machine.memory_bytes / 1e9:,.2f} GB"
    )


def _time_text(seconds: float) -> str:
    return f"{seconds:,.3g} s" if seconds >= 1 else f"{seconds * 1e3:,.3g} ms"
