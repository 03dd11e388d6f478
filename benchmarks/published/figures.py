"""How well predictions tell what was measured: a row a run, a line a set."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import nan
from statistics import mean, median

from benchmarks.published.pricing import Outcome, Prediction
from benchmarks.published.runs import Run, UnsaidError
from hlosharding.search.rank_figures import regret, spearman

Told = tuple[Run, Prediction]


@dataclass(frozen=True)
class Line:
    """Of a set.  Errors are shares of what was measured; nan where nothing says it."""

    rows: int
    told: int
    median_error: float
    worst_error: float
    mean_error: float
    memory_error: float
    """Mean, of the runs whose memory was measured."""
    rank: float
    """Rank correlation of times, of the whole set."""
    rank_in_groups: float
    """Among the runs of one model on as many devices: the mean, each group by its rows."""
    regret: float
    """Of the plan that is predicted to be the fastest over the fastest measured, among those of one model, number of
    devices and batch: the mean over these groups."""
    worst_regret: float


def line_of(rows: Sequence[tuple[Run | UnsaidError, Outcome]]) -> Line:
    """Of the rows of a set, with what became of each."""
    told = told_of(rows)
    errors = [abs(found.seconds / run.seconds - 1) for run, found in told]
    memory = [abs(found.gibibytes / run.gibibytes - 1) for run, found in told if run.gibibytes]
    ranked = [(spearman(times), len(times)) for times in _times(told, lambda run: run.group[:2], least=3)]
    lost = [regret(times) for times in _times(told, lambda run: run.group, least=2)]
    return Line(
        rows=len(rows),
        told=len(told),
        median_error=median(errors) if errors else nan,
        worst_error=max(errors, default=nan),
        mean_error=mean(errors) if errors else nan,
        memory_error=mean(memory) if memory else nan,
        rank=spearman([(found.seconds, run.seconds) for run, found in told]),
        rank_in_groups=_weighted(ranked),
        regret=mean(lost) if lost else nan,
        worst_regret=max(lost, default=nan),
    )


def told_of(rows: Iterable[tuple[Run | UnsaidError, Outcome]]) -> list[Told]:
    """Those that were predicted."""
    return [(run, found) for run, found in rows if isinstance(run, Run) and isinstance(found, Prediction)]


def untold(rows: Iterable[tuple[Run | UnsaidError, Outcome]]) -> Counter[str]:
    """Why the others were not, and how many share the reason."""
    return Counter(str(found) for _, found in rows if not isinstance(found, Prediction))


def _times(told: Iterable[Told], key: Callable[[Run], object], least: int) -> list[list[tuple[float, float]]]:
    """(predicted, measured) of groups of so many at least."""
    groups: defaultdict[object, list[tuple[float, float]]] = defaultdict(list)
    for run, found in told:
        groups[key(run)].append((found.seconds, run.seconds))
    return [times for times in groups.values() if len(times) >= least]


def _weighted(values: Sequence[tuple[float, int]]) -> float:
    return sum(value * weight for value, weight in values) / sum(w for _, w in values) if values else nan
