"""The smallest sets of annotations that reach a goal: all single ones are tried before pairs, and pairs before triples.

Floor: search.  Bounded; says whether every smaller set of the candidates was tried in vain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

from hlosharding.errors import HloShardingError
from hlosharding.frontends import annotate
from hlosharding.ir import Module
from hlosharding.progress import Progress
from hlosharding.propagation import Propagation
from hlosharding.search.candidates import Annotation

LARGEST_SET = 3
"""Annotations that are tried together."""
_CANDIDATES = 60
"""Single annotations that are tried, nearest first; the best of the examples tried is among the first 15."""
_MOST_TRIALS = 600
"""Sets: a third of all pairs of the candidates.  Where single ones do, as in all examples tried, 75 find the same."""
_MOST_INSTRUCTIONS = 500_000
"""That are propagated in all: on a large program fewer sets are tried."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A set that reaches the goal."""

    annotations: tuple[Annotation, ...]
    propagation: Propagation
    is_smallest: bool
    """Were all smaller sets of the candidates tried, in vain?  Else it may be that two of three do."""


def smallest_sets(
    module: Module,
    wanted: list[Annotation],
    grade: Callable[[Propagation], int | None],
    propagate: Callable[[Module], Propagation],
    progress: Progress,
    *,
    largest: int = LARGEST_SET,
) -> tuple[list[Hit], list[Hit]]:
    """All sets of the least size that reach the goal (grade 0), and of the least that do half of it (grade 1).

    As far as the bound allows; once the goal is reached, half of it counts no more.
    """
    known = wanted[:_CANDIDATES]
    # At least all single ones, however large the program is.
    most = max(_CANDIDATES, min(_MOST_TRIALS, _MOST_INSTRUCTIONS // max(1, len(module.instructions))))
    tried, is_smallest = 0, True
    half: list[Hit] = []
    for size in range(1, largest + 1):
        hits: tuple[list[Hit], list[Hit]] = ([], [])
        for trial in _sets_of_size(known, size)[: most - tried]:
            progress(tried, most)
            tried += 1
            propagation = try_annotations(module, trial, propagate)
            reached = None if propagation is None else grade(propagation)
            if propagation is not None and reached is not None:
                hits[reached].append(Hit(trial, propagation, is_smallest))
        if hits[0]:
            return hits[0], []
        half = half or hits[1]
        # Once the trials are used up, some of this size may not have been tried.
        is_smallest &= tried < most
    return [], half


def _sets_of_size(known: list[Annotation], size: int) -> list[tuple[Annotation, ...]]:
    """Sets of a size, those of near candidates first; one value has one sharding."""
    # By their farthest member: combinations() alone would pair the nearest with the sixtieth before the second with the
    # third, and trials are bounded.
    numbers = sorted(combinations(range(len(known)), size), key=lambda numbers: numbers[::-1])
    sets = (tuple(known[n] for n in chosen) for chosen in numbers)
    return [one for one in sets if len({name for name, _ in one}) == size]


def try_annotations(
    module: Module, trial: tuple[Annotation, ...], propagate: Callable[[Module], Propagation]
) -> Propagation | None:
    """The program with these annotations; None where one contradicts another."""
    try:
        return propagate(annotate(module, dict(trial)))
    except HloShardingError:
        return None
