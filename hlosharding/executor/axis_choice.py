"""Which axes a program's mesh gets: the user's own, cut where groups or tilings of the program need it.

Floor: executor.  Asks `axes` what can be said; knows nothing of instructions.

Devices are counted through, the first axis major, and a cut is a stride in that count: axes (2, 4) have one at 4, and
groups {0, 2}, {1, 3} ask for one at 2.  Each need says which cuts it asks for; they go together where each divides the
next.  So nothing is tried that no need asks for, however many ways there are to factor the number of devices.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from hlosharding.executor.axes import Axes, Parts, first_line
from hlosharding.sharding import HloSharding, prime_factors
from hlosharding.spmd import Groups

Cuts = frozenset[int]
"""Strides, each of which divides the next."""

_MOST_TRIES = 500
"""Of choices among cuts that do not go together."""


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


def choose_axes(mesh: Any, num_devices: int, needs: Needs) -> Axes:
    """The coarsest mesh over which as many needs as possible can be said.

    `mesh` is the user's MeshInfo, or None: then one axis `devices` is split as needed.

    >>> groups = ((0, 2), (1, 3), (4, 6), (5, 7))
    >>> axes = choose_axes(None, 8, Needs(unordered=frozenset({groups})))
    >>> axes.names, axes.sizes
    (('devices_0', 'devices_1', 'devices_2'), (2, 2, 2))
    """
    whole = Axes(("devices",), (num_devices,), tuple(range(num_devices)))
    if mesh is not None and math.prod(mesh.sizes) == num_devices:
        whole = Axes(tuple(map(str, mesh.names)), tuple(mesh.sizes), _device_ids(mesh, num_devices))
    asked = [found for cuts in _cuts_asked_for(whole, needs) if (found := _together(whole, cuts)) is not None]
    union = _together(whole, frozenset().union(*asked))
    cuts = union if union is not None else _most_said(whole, asked, needs)
    atoms, owners = _cut(whole, cuts)
    return _joined(atoms, owners, _said(atoms, needs), whole)


def _device_ids(mesh: Any, num_devices: int) -> tuple[int, ...]:
    ids = getattr(mesh, "device_ids", None)
    if ids is None or len(ids) != num_devices or sorted(ids) != list(range(num_devices)):
        return tuple(range(num_devices))
    return tuple(int(i) for i in ids)


# ---- the cuts that needs ask for


def _cuts_asked_for(whole: Axes, needs: Needs) -> Iterator[Cuts]:
    """Of each need the cuts without which it cannot be said; nothing of those that no axes can say."""
    for groups in (*needs.ordered, *needs.unordered):
        members = next((g for g in groups if 0 in g), ())
        places = whole.place[list(members)]
        yield from _cuts_of_line(places if groups in needs.ordered else np.sort(places))
    for pairs in needs.permutes:
        places = whole.place[np.array(pairs, np.int64).reshape(-1, 2)]
        yield _cuts_of_pairs(places[:, 0], places[:, 1], whole)
    for sharding, rank in needs.shardings:
        has_copies_only = set(sharding.subgroup_types) <= {"replicated"}
        if sharding.kind == "tiled" and has_copies_only and sharding.tiles.num_elements == whole.size:
            lines = [list(_cuts_of_line(whole.place[first_line(sharding.tiles.array, dim)])) for dim in range(rank)]
            if all(lines):
                yield frozenset().union(*(cuts for found in lines for cuts in found))


def _cuts_of_line(places: np.ndarray) -> Iterator[Cuts]:
    """Where the digits of places begin and end that count through some axes, the last one fastest.

    >>> [sorted(cuts) for cuts in _cuts_of_line(np.array([0, 4, 1, 5]))]
    [[1, 2, 4, 8]]
    """
    cuts: set[int] = set()
    rest = places - places[:1]
    while len(rest) > 1:
        stride = int(rest[1])
        steady = rest == stride * np.arange(len(rest))
        size = len(rest) if steady.all() else int(steady.argmin())
        if stride < 1 or len(rest) % size:
            return
        cuts |= {stride, stride * size}
        rest = rest[::size]
    yield frozenset(cuts)


def _cuts_of_pairs(sources: np.ndarray, targets: np.ndarray, whole: Axes) -> Cuts:
    """Where the digits begin and end that a permute leaves as they are, the last one first."""
    strides = [s for s in _divisors(whole.size) if _together(whole, frozenset({s})) is not None]
    cuts: set[int] = set()
    at = 1
    while at < whole.size:
        end = _unchanged_to(sources, targets, at, strides)
        if end == at:
            later = (s for s in strides if s > at and s % at == 0)
            end = next((s for s in later if _unchanged_to(sources, targets, s, strides) > s), whole.size)
        cuts |= {at, end}
        at = end
    return frozenset(cuts)


def _unchanged_to(sources: np.ndarray, targets: np.ndarray, at: int, strides: Sequence[int]) -> int:
    """The end of the digit from stride `at` on that is the same in all sources and their targets; `at` if none is."""
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


def _together(whole: Axes, cuts: Cuts) -> Cuts | None:
    """Some cuts with those between the axes, if each divides the next."""
    every = cuts | _ends(whole)
    chain = sorted(every)
    return every if chain[-1] == whole.size and all(b % a == 0 for a, b in pairwise(chain)) else None


def _ends(whole: Axes) -> Cuts:
    """The strides between the axes, and both ends."""
    return frozenset(math.prod(whole.sizes[n:]) for n in range(len(whole.sizes) + 1))


def _most_said(whole: Axes, asked: Sequence[Cuts], needs: Needs) -> Cuts:
    """Of cuts that do not all go together those by which most can be said; of equally many the least sizes first."""
    # What some cuts say whole, a permute above all, a single one of them may say in part.
    choices = Counter([*asked, *(frozenset({cut}) for cuts in set(asked) for cut in cuts)])
    found: list[tuple[int, list[tuple[int, ...]], Cuts]] = []

    def choose(chosen: Cuts, left: list[Cuts]) -> None:
        fitting = [cuts for cuts in left if _together(whole, chosen | cuts) is not None]
        if not fitting:
            atoms, _ = _cut(whole, chosen)
            found.append((-len(_said(atoms, needs)), _least_sizes(whole, chosen), chosen))
            return
        first, *others = fitting
        if len(found) < _MOST_TRIES:
            choose(chosen | first, others)
        if any(_together(whole, chosen | first | cuts) is None for cuts in others) and len(found) < _MOST_TRIES:
            choose(chosen, others)

    choose(_ends(whole), sorted(choices, key=lambda cuts: (-choices[cuts], sorted(cuts))))
    return min(found, key=lambda choice: choice[:2])[2]


def _least_sizes(whole: Axes, cuts: Cuts) -> list[tuple[int, ...]]:
    """Per axis the prime factors in the least order that has these cuts: what decides between equals."""
    atoms, owners = _cut(whole, cuts)
    return [
        tuple(p for size, owner in zip(atoms.sizes, owners, strict=True) if owner == axis for p in prime_factors(size))
        for axis in range(len(whole.sizes))
    ]


def _cut(whole: Axes, cuts: Cuts) -> tuple[Axes, list[int]]:
    """The axes with these cuts, and the axis that each part belongs to."""
    ends = sorted(_ends(whole), reverse=True)
    chain = sorted(cuts | _ends(whole), reverse=True)
    sizes = tuple(high // low for high, low in pairwise(chain))
    # Axes of size 1 have no place in the chain.
    named = [axis for axis, size in enumerate(whole.sizes) if size > 1]
    owners = [named[sum(end >= high for end in ends) - 1] for high in chain[:-1]]
    return Axes(tuple(f"{whole.names[a]}_{i}" for i, a in enumerate(owners)), sizes, whole.device_ids), owners


# ---- what can be said


def _said(atoms: Axes, needs: Needs) -> list[Parts]:
    said: list[Parts] = []
    for groups in needs.ordered:
        said += [p for p in [atoms.parts_of(groups, ordered=True)] if p is not None]
    for groups in needs.unordered:
        said += [p for p in [atoms.parts_of(groups, ordered=False)] if p is not None]
    for pairs in needs.permutes:
        found = atoms.permute_parts(pairs)
        said += [found[0]] if found is not None else []
    for sharding, rank in needs.shardings:
        said += list(atoms.spec_of(sharding, rank) or ())
    return said


def _joined(atoms: Axes, owners: Sequence[int], said: Iterable[Parts], whole: Axes) -> Axes:
    """Join neighbouring parts of one axis that every need uses together, in order."""
    apart = {pair for parts in set(said) for pair in _parted(parts, len(owners))}
    runs: list[list[int]] = []
    for part, owner in enumerate(owners):
        previous = runs[-1][-1] if runs else None
        if previous is not None and owners[previous] == owner and part not in apart:
            runs[-1].append(part)
        else:
            runs.append([part])
    sizes: dict[int, list[int]] = {}
    for run in runs:
        sizes.setdefault(owners[run[0]], []).append(math.prod(atoms.sizes[p] for p in run))
    out_names: list[str] = []
    out_sizes: list[int] = []
    for axis, name in enumerate(whole.names):
        parts = sizes.get(axis, [1])
        out_sizes += parts
        out_names += [name] if len(parts) == 1 else [f"{name}_{i}" for i in range(len(parts))]
    return Axes(tuple(out_names), tuple(out_sizes), atoms.device_ids)


def _parted(parts: Parts, count: int) -> Iterator[int]:
    """The parts that a need uses without the one before, or not right behind it."""
    place = {part: n for n, part in enumerate(parts)}
    for part in range(1, count):
        before, here = place.get(part - 1), place.get(part)
        if (before is None) != (here is None) or (before is not None and here is not None and here != before + 1):
            yield part
