"""How much each class of devices holds over the time of a simulated run.

Floor: schedule.  A value takes its tile's bytes from the start of the op that makes it to the end of its last reader,
unless it lies on the host; one that an op overwrites gives its room to the result.  Parameters and results stay, for
they are the caller's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from hlosharding.cost import Times
from hlosharding.schedule.simulation.device_classes import DeviceClasses
from hlosharding.schedule.simulation.recording import AT_START, Application, Recording
from hlosharding.schedule.steps import place_of


class WorstMoment(NamedTuple):
    """The moment at which a device holds most of what it has."""

    nbytes: float
    device: int
    at: str
    """The step that begins then."""


@dataclass(frozen=True, slots=True, eq=False)
class HeldMemory:
    """One class's memory: at each moment of `times`, from then on, `nbytes` are held."""

    times: np.ndarray
    nbytes: np.ndarray

    @property
    def peak(self) -> float:
        return float(self.nbytes.max(initial=0.0))


def find_held(recording: Recording, times: Times, classes: DeviceClasses) -> list[HeldMemory]:
    """Of each class."""
    moments: list[list[np.ndarray]] = [[] for _ in classes.members]
    changes: list[list[np.ndarray]] = [[] for _ in classes.members]
    for places, starts, ends, sizes in (
        *_lives_of_values(recording, times, classes),
        *_lives_of_scratch(recording, times, classes),
    ):
        for place in places:
            moments[place] += (starts, ends)
            changes[place] += (sizes, -sizes)
    joined = [[np.concatenate(each or [np.zeros(0)]) for each in side] for side in (moments, changes)]
    return [_sum_changes(when, change) for when, change in zip(*joined, strict=True)]


def _sum_changes(when: np.ndarray, change: np.ndarray) -> HeldMemory:
    order = np.lexsort((change, when))  # at one moment first what is given back
    when, level = when[order], np.cumsum(change[order])
    last = np.append(when[1:] != when[:-1], True) if len(when) else np.zeros(0, bool)
    return HeldMemory(when[last], level[last])


Lives = tuple[Sequence[int], np.ndarray, np.ndarray, np.ndarray]
"""Classes of devices; from when, until when and how many bytes they hold."""


def _lives_of_values(recording: Recording, times: Times, classes: DeviceClasses) -> Iterator[Lives]:
    """Of all values that have memory of their own."""
    kinds, types = recording.kinds, np.array(recording.types, dtype=np.int64)
    sizes = np.array([kind.device_bytes for kind in kinds], dtype=float)[types]
    views = [recording.applications[step] for step in recording.numbers_where(lambda op: op.is_view)]
    # AT_START is -1, the last place: the appended moment is that at which the caller's values begin.
    starts, ends = np.append(times.start, 0.0)[recording.makers], _last_moments(recording, times, views)
    owns = np.ones(len(types), bool)
    for done in views:
        owns[list(done.results)] = False
    for each, own in _places_of_equal([classes.of(kind.devices) for kind in kinds]).items():
        is_own = np.zeros(len(kinds), bool)
        is_own[own] = True
        chosen = is_own[types] & owns
        yield each, starts[chosen], ends[chosen], sizes[chosen]


def _lives_of_scratch(recording: Recording, times: Times, classes: DeviceClasses) -> Iterator[Lives]:
    """What ops need beside."""
    steps = [n for n, done in enumerate(recording.applications) if done.work.temporary_bytes]
    applied = [recording.applications[n] for n in steps]
    # What reads nothing has no sources.
    for each, own in _places_of_equal([classes.of(done.sources or done.targets) for done in applied]).items():
        chosen = [steps[n] for n in own]
        size = np.array([applied[n].work.temporary_bytes for n in own])
        yield each, np.array([times.start[n] for n in chosen]), np.array([times.end[n] for n in chosen]), size


def _places_of_equal(found: Sequence[Sequence[int]]) -> dict[Sequence[int], list[int]]:
    """Of equal ones the places in the list."""
    places: dict[Sequence[int], list[int]] = {}
    for number, each in enumerate(found):
        places.setdefault(each, []).append(number)
    return places


def _last_moments(recording: Recording, times: Times, views: Sequence[Application]) -> np.ndarray:
    """Until when each value is held; what has views stays as long as they do."""
    ends, makers = np.append(times.end, 0.0), np.array(recording.makers, dtype=np.int64)
    found = ends[makers]
    operands = [done.operands for done in recording.applications]
    counts = np.fromiter(map(len, operands), dtype=np.int64, count=len(operands))
    read = np.fromiter(chain.from_iterable(operands), dtype=np.int64, count=counts.sum())
    # `at`, because a value has several readers: by plain indices only one of equal ones counts.
    np.maximum.at(found, read, np.repeat(ends[:-1], counts))
    is_kept = makers == AT_START
    is_kept[list(recording.freed_values)] = False
    is_kept[list(recording.results)] = True
    found[is_kept] = times.makespan
    # Behind what is kept, for a donated parameter is gone when its update starts.
    _end_overwritten(recording, times, found)
    # Views of views come first, so that what they are of learns of them by way of what is between.
    for done in reversed(views):
        found[done.operands[0]] = found[[done.operands[0], *done.results]].max()
    return found


def _end_overwritten(recording: Recording, times: Times, last: np.ndarray) -> None:
    """What an op overwrites is gone when it starts."""
    for number in recording.numbers_where(lambda op: bool(op.donates)):
        done = recording.applications[number]
        for place in done.step.op.donates:
            last[done.operands[place]] = times.start[number]


def find_worst(recording: Recording, times: Times, classes: DeviceClasses, memory: Sequence[HeldMemory]) -> WorstMoment:
    """The worst moment of all devices, each by what it has."""
    has = [recording.machine.kind_of(members[:1]).memory_bytes for members in classes.members]
    place = max(range(len(memory)), key=lambda n: memory[n].peak / has[n], default=None)
    if place is None:
        return WorstMoment(0.0, 0, "")
    level = memory[place]
    moment = float(level.times[int(level.nbytes.argmax())])
    device = classes.members[place][0]
    at = next(
        (
            place_of(done.function, done.step)
            for number, done in enumerate(recording.applications)
            if times.start[number] == moment and device in (*done.sources, *done.targets)
        ),
        "the start",
    )
    return WorstMoment(level.peak, device, at)
