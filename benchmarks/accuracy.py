"""How well do predicted times rank plans?  Plans that are run on eight devices here, against their prices.

`python -m benchmarks.accuracy [PART-OF-A-NAME ...] [--count 70] [--seed 0]`.  Each family is drawn in `--count`
configurations: a plan D/T/P/K, a batch size and a width.  The machine is calibrated first, for each number of devices
that work at once.  On CPU devices of one process XLA runs one program at a time, so stages are priced one after the
other; the table says so.  Then all is run once more: what one round says of the other is the most that any prediction
can say.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import isnan, nan
from random import Random
from statistics import mean, median

from rich.console import Console
from rich.table import Table

import hlosharding as hs
from benchmarks.ranked_models import FAMILIES, Family
from benchmarks.verdict import finish
from examples import devices
from hlosharding.search import Plan, RankedPlan, Ranking, plan_space, rank, rank_figures

Rankings = Mapping[tuple[int, int], Ranking]
"""By batch and width."""
DEVICES, LEAST_SPEARMAN = 8, 0.9
_MICROBATCHES = (2, 4, 8)
_SPEARMAN = f"rank correlation (at least {LEAST_SPEARMAN})"


@dataclass(frozen=True)
class Configuration:
    """A plan of a model in one size."""

    batch: int
    width: int
    plan: Plan


def drawn(family: Family, count: int, seed: int) -> list[Configuration]:
    """So many of all, half of them without stages where that can be, the same for a seed."""
    every = [
        Configuration(batch, width, plan)
        for batch in family.batches
        for width in family.widths
        for plan in sorted(plan_space(DEVICES, _MICROBATCHES))
        if batch % (plan.data * plan.microbatches) == 0
    ]
    random = Random(seed)
    plain = [each for each in every if each.plan.stages == 1]
    staged = [each for each in every if each.plan.stages > 1]
    first = random.sample(plain, min(len(plain), -(-count // 2)))
    return first + random.sample(staged, min(len(staged), count - len(first)))


def main() -> None:
    """Print the tables; fail where a family's rank correlation misses the limit."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--count", type=int, default=70)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    devices.choose_platform()
    columns: list[dict[str, str]] = []
    kept: list[bool] = []
    for family in FAMILIES:
        if not arguments.names or any(name in family.name for name in arguments.names):
            chosen = drawn(family, arguments.count, arguments.seed)
            first, second = (_run(family, chosen, number) for number in (1, 2))
            _print_rows(family, first, second)
            columns.append(_column(family, first, second))
            kept.append(float(columns[-1][_SPEARMAN]) >= LEAST_SPEARMAN)
    finish(_table(columns), kept)


def _run(family: Family, chosen: Sequence[Configuration], round_number: int) -> Rankings:
    """One round."""
    plans: defaultdict[tuple[int, int], list[Plan]] = defaultdict(list)
    for each in chosen:
        plans[each.batch, each.width].append(each.plan)
    found: dict[tuple[int, int], Ranking] = {}
    for number, (sizes, some) in enumerate(sorted(plans.items()), 1):
        sys.stderr.write(f"{family.name}, round {round_number}: {number} of {len(plans)} sizes, {len(some)} plans\n")
        found[sizes] = rank(_traced(family, *sizes), batch=family.batch, plans=sorted(some))
    return found


def repeated(first: Rankings, second: Rankings) -> list[tuple[float, float]]:
    """What each plan took in one round and in the other, of those that ran in both."""
    again = {(sizes, row.plan): row.measured_s for sizes, ranking in second.items() for row in ranking.table}
    return [
        (row.measured_s, again[sizes, row.plan])
        for sizes, ranking in first.items()
        for row in ranking.table
        if (sizes, row.plan) in again
    ]


@cache
def _traced(family: Family, batch: int, width: int) -> hs.Module:
    return family.traced(batch, width)


def _print_rows(family: Family, first: Rankings, second: Rankings) -> None:
    heads = "batch", "width", "plan", "predicted ms", "measured ms", "again", "predicted ratio", "again"
    table = Table(*heads, title=family.name)
    for (batch, width), ranking in first.items():
        again = {row.plan: row.measured_s for row in second[batch, width].table}
        for row in ranking.table:
            second_s = again.get(row.plan, nan)
            seconds = (f"{each * 1e3:.2f}" for each in (row.predicted_s, row.measured_s, second_s))
            ratios = (f"{each / row.measured_s:.2f}" for each in (row.predicted_s, second_s))
            table.add_row(str(batch), str(width), str(row.plan), *seconds, *ratios)
        for plan, why in ranking.refused:
            table.add_row(str(batch), str(width), str(plan), "", "", "", why[:60])
    Console(width=max(120, Console().width)).print(table)


def _table(columns: Sequence[dict[str, str]]) -> Table:
    """A row for each figure, a column for each family."""
    title = "Predicted and measured times of plans on eight devices"
    table = Table("", *(column["family"] for column in columns), title=title)
    for name in list(columns[0])[1:] if columns else ():
        table.add_row(name, *(column[name] for column in columns))
    return table


def _column(family: Family, rankings: Rankings, second: Rankings) -> dict[str, str]:
    rows = [(sizes, row) for sizes, ranking in rankings.items() for row in ranking.table]
    whole = Ranking(tuple(row for _, row in rows), runner=next(iter(rankings.values())).runner)
    several = [ranking for ranking in rankings.values() if len(ranking.table) > 1]
    regrets = [ranking.regret for ranking in several]
    within = [value for value in (ranking.spearman for ranking in several) if not isnan(value)]
    return {
        "family": family.name,
        "ran in": whole.runner,
        "runs": str(len(rows)),
        "refused": str(sum(len(ranking.refused) for ranking in rankings.values())),
        _SPEARMAN: f"{whole.spearman:.3f}",
        "by number of stages": ", ".join(f"{n}: {value:.3f}" for n, value in whole.spearman_by_stages.items()),
        "mean of those within a size": f"{mean(within):.3f}" if within else "",
        "median error": f"{whole.median_error:.1%}",
        "median error after one factor": f"{whole.scaled_median_error:.1%}",
        "top-1 regret, median and worst size": f"{median(regrets):.1%}, {max(regrets):.1%}" if regrets else "",
        "worst inversion": _worst(whole, rows),
        **_repeatability(rankings, second),
    }


def _repeatability(first: Rankings, second: Rankings) -> dict[str, str]:
    """Of the measurements: the same figures, of one round as a prediction of the other."""
    times = repeated(first, second)
    by_size = [repeated({sizes: first[sizes]}, {sizes: second[sizes]}) for sizes in first]
    regrets = [rank_figures.regret(pairs) for pairs in by_size if len(pairs) > 1]
    return {
        "measured again: rank correlation": f"{rank_figures.spearman(times):.3f}",
        "measured again: median difference": f"{rank_figures.median_error(times):.1%}",
        "measured again: top-1 regret": f"{median(regrets):.1%}, {max(regrets):.1%}" if regrets else "",
    }


def _worst(whole: Ranking, rows: Sequence[tuple[tuple[int, int], RankedPlan]]) -> str:
    found = rank_figures.find_inversions(whole.times, most=1)
    if not found:
        return ""
    pair = found[0]
    names = [f"{row.plan} of {batch}x{width}" for (batch, width), row in (rows[pair.first], rows[pair.second])]
    return f"{names[0]} should be {pair.predicted:.2f}x faster than {names[1]}, is {pair.measured:.2f}x slower"


if __name__ == "__main__":
    main()
