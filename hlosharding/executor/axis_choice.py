"""Which axes a program's mesh gets: the user's own, cut where groups or tilings of the program need it.

Floor: executor.  Asks `axes` what can be said; knows nothing of instructions.

Devices are counted through, the first axis major, and a cut is a stride in that count: axes (2, 4) have one at 4, and
groups {0, 2}, {1, 3} ask for one at 2.  Each need says which cuts it asks for; they go together where each divides the
next.  So nothing is tried that no need asks for, however many ways there are to factor the number of devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from hlosharding.executor.axes import Axes, Parts
from hlosharding.sharding import HloSharding, MeshInfo, ends_of, prime_factors
from hlosharding.spmd import Groups

Cuts = frozenset[int]
"""Strides, each of which divides the next."""

_MOST_TRIES = 500
"""Of choices among cuts that do not go together: they double with each.  Half and double give the same axes."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a program wants to say with axes."""

    ordered: frozenset[Groups] = frozenset()
    """Device groups whose members' order matters."""
    unordered: frozenset[Groups] = frozenset()
    permutes: frozenset[Groups] = frozenset()
    """Source and target pairs."""
    shardings: frozenset[tuple[HloSharding, int]] = frozenset()
    """Shardings at the boundary, with the rank of the array."""


def choose_axes(mesh: MeshInfo | None, num_devices: int, needs: Needs) -> Axes:
    """The coarsest mesh over which as many needs as possible can be said.

    `mesh`: the user's; without one, or with one of other devices, one axis `devices` is split as needed.

    >>> groups = ((0, 2), (1, 3), (4, 6), (5, 7))
    >>> axes = choose_axes(None, 8, Needs(unordered=frozenset({groups})))
    >>> axes.names, axes.sizes
    (('devices_0', 'devices_1', 'devices_2'), (2, 2, 2))
    """
    whole = Axes((num_devices,), tuple(range(num_devices)), ("devices",))
    if mesh is not None and mesh.num_devices == num_devices:
        whole = Axes(mesh.sizes, mesh.device_ids, mesh.names)
    asked = [cuts | _ends(whole) for cuts in _cuts_asked_for(whole, needs) if whole.cut_at(cuts) is not None]
    atoms = _cut(whole, frozenset().union(*asked)) or _most_said(whole, asked, needs)
    return _joined(atoms, _said(atoms, needs), whole)


# ---- the cuts that needs ask for


def _cuts_asked_for(whole: Axes, needs: Needs) -> Iterator[Cuts]:
    """Of each need the cuts without which it cannot be said; nothing of those that no axes can say."""
    found = [whole.digits_along(groups, ordered=True) for groups in needs.ordered]
    found += [whole.digits_along(groups, ordered=False) for groups in needs.unordered]
    tilings = (whole.digits_of_spec(sharding, rank) for sharding, rank in needs.shardings)
    found += [tuple(chain(*dims)) for dims in tilings if dims is not None]
    yield from (frozenset(ends_of(digits)) for digits in found if digits is not None)
    for pairs in needs.permutes:
        places = whole.place[np.array(pairs, np.int64).reshape(-1, 2)]
        yield _cuts_of_pairs(places[:, 0], places[:, 1], whole)


def _cuts_of_pairs(sources: np.ndarray, targets: np.ndarray, whole: Axes) -> Cuts:
    """Where the digits begin and end that a permute leaves as they are, the last one first."""
    strides = [s for s in _divisors(whole.num_devices) if whole.cut_at({s}) is not None]
    cuts: set[int] = set()
    at = 1
    while at < whole.num_devices:
        end = _unchanged_to(sources, targets, at, strides)
        if end == at:
            later = (s for s in strides if s > at and s % at == 0)
            end = next((s for s in later if _unchanged_to(sources, targets, s, strides) > s), whole.num_devices)
        cuts |= {at, end}
        at = end
    return frozenset(cuts)


def _unchanged_to(sources: np.ndarray, targets: np.ndarray, at: int, strides: Sequence[int]) -> int:
    """The end of the digit from stride `at` on that is the same in all sources and their targets; `at` if none is."""
    # The digit from `at` to s is the same in both where they differ by a multiple of s / at.
    steady = int(np.gcd.reduce(sources // at - targets // at, initial=0))
    return max(s for s in strides if s % at == 0 and steady % (s // at) == 0)


def _divisors(number: int) -> list[int]:
    """In ascending order.

    >>> _divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    found = [1]
    for prime, times in Counter(prime_factors(number)).items():
        found = [d * prime**n for d in found for n in range(times + 1)]
    return sorted(found)


# ---- cuts that go together


def _ends(whole: Axes) -> Cuts:
    """The strides between the axes, and both ends."""
    return frozenset({whole.num_devices, *(axis.stride for axis in whole.digits)})


def _cut(whole: Axes, cuts: Cuts) -> Axes | None:
    """The axes with these cuts, unnamed; None for cuts that do not go together."""
    found = whole.cut_at(cuts)
    return Axes(found.sizes, found.devices, ()) if found is not None else None


def _most_said(whole: Axes, asked: Sequence[Cuts], needs: Needs) -> Axes:
    """Of cuts that do not all go together those by which most can be said; of equally many the least sizes first."""
    # What some cuts say whole, a permute above all, a single one of them may say in part.
    choices = Counter([*asked, *(frozenset({cut}) for cuts in set(asked) for cut in cuts)])
    found: list[tuple[int, list[list[int]], Axes]] = []

    def choose(chosen: Cuts, left: list[Cuts]) -> None:
        fitting = [cuts for cuts in left if whole.cut_at(chosen | cuts) is not None]
        if not fitting:
            atoms = _cut(whole, chosen)
            assert atoms is not None
            found.append((-len(_said(atoms, needs)), _least_sizes(whole, atoms), atoms))
            return
        first, *others = fitting
        if len(found) < _MOST_TRIES:
            choose(chosen | first, others)
        # Only cuts that stand in the way of others are worth leaving out.
        if any(whole.cut_at(chosen | first | cuts) is None for cuts in others) and len(found) < _MOST_TRIES:
            choose(chosen, others)

    # What most needs ask for comes first, since not all is tried.
    choose(_ends(whole), sorted(choices, key=lambda cuts: (-choices[cuts], sorted(cuts))))
    return min(found, key=lambda choice: choice[:2])[2]


def _least_sizes(whole: Axes, atoms: Axes) -> list[list[int]]:
    """Per axis the prime factors in the least order that has these cuts: what decides between equals."""
    found: list[list[int]] = [[] for _ in whole.sizes]
    for part in atoms.digits:
        found[whole.axis_at(part.stride)] += prime_factors(part.size)
    return found


# ---- what can be said


def _said(atoms: Axes, needs: Needs) -> list[Parts]:
    found = [atoms.parts_of(groups, ordered=True) for groups in needs.ordered]
    found += [atoms.parts_of(groups, ordered=False) for groups in needs.unordered]
    found += [moved[0] for pairs in needs.permutes if (moved := atoms.permute_parts(pairs)) is not None]
    found += [parts for sharding, rank in needs.shardings for parts in atoms.spec_of(sharding, rank) or ()]
    return [parts for parts in found if parts is not None]


def _joined(atoms: Axes, said: Iterable[Parts], whole: Axes) -> Axes:
    """Join neighbouring parts of one axis that every need uses together, in order."""
    apart = {pair for parts in set(said) for pair in _parted(parts, len(atoms.sizes))}
    joined: list[list[int]] = [[] for _ in whole.sizes]
    for part, (stride, size) in enumerate(atoms.digits):
        sizes = joined[whole.axis_at(stride)]
        if sizes and part not in apart:
            sizes[-1] *= size
        else:
            sizes.append(size)
    names: list[str] = []
    for name, sizes in zip(whole.names, joined, strict=True):
        names += [f"{name}_{i}" for i in range(len(sizes))] if len(sizes) > 1 else [name]
    return Axes(tuple(size for sizes in joined for size in sizes or [1]), whole.devices, tuple(names))


def _parted(parts: Parts, count: int) -> Iterator[int]:
    """The parts that a need uses without the one before, or not right behind it."""
    place = {part: n for n, part in enumerate(parts)}
    for part in range(1, count):
        before, here = place.get(part - 1), place.get(part)
        if (before is None) != (here is None) or (before is not None and here is not None and here != before + 1):
            yield part
