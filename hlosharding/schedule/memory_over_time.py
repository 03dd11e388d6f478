"""How much each class of devices holds over the time of a simulated run.

Floor: schedule.  A value takes its tile's bytes from the start of the op that makes it to the end of its last reader;
one that an op overwrites gives its room to the result.  Parameters and results stay, for they are the caller's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hlosharding.cost import Times
from hlosharding.schedule.device_classes import DeviceClasses
from hlosharding.schedule.recording import AT_START, Recording
from hlosharding.schedule.steps import place_of


class Worst(NamedTuple):
    """The moment at which a device holds most."""

    nbytes: float
    device: int
    at: str
    """The step that begins then."""


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """One class's memory: at each moment of `times`, from then on, `nbytes` are held."""

    times: np.ndarray
    nbytes: np.ndarray

    @property
    def peak(self) -> float:
        return float(self.nbytes.max(initial=0.0))


def held(recording: Recording, times: Times, classes: DeviceClasses) -> list[Held]:
    """Of each class."""
    moments: list[list[float]] = [[] for _ in classes.members]
    changes: list[list[float]] = [[] for _ in classes.members]
    for places, start, end, size in _lives(recording, times, classes):
        for place in places:
            moments[place] += (start, end)
            changes[place] += (size, -size)
    return [_summed(np.array(when), np.array(change)) for when, change in zip(moments, changes, strict=True)]


def _summed(when: np.ndarray, change: np.ndarray) -> Held:
    order = np.lexsort((change, when))  # at one moment first what is given back
    when, level = when[order], np.cumsum(change[order])
    last = np.append(when[1:] != when[:-1], True) if len(when) else np.zeros(0, bool)
    return Held(when[last], level[last])


def _lives(
    recording: Recording, times: Times, classes: DeviceClasses
) -> Iterator[tuple[Sequence[int], float, float, float]]:
    """(classes, from, to, bytes) of every buffer, and of what ops need beside."""
    last, starts = _last_moments(recording, times), times.start
    rooms = {id(kind): (classes.of(kind.devices), float(kind.tile_bytes)) for kind in recording.distinct_types}
    is_view = [done.step.op.is_view for done in recording.applications]
    for kind, maker, end in zip(recording.types, recording.makers, last, strict=True):
        if maker == AT_START or not is_view[maker]:
            places, size = rooms[id(kind)]
            yield places, 0.0 if maker == AT_START else starts[maker], end, size
    for number, done in enumerate(recording.applications):
        if done.work.temporary_bytes:
            yield (
                classes.of(done.sources or done.targets),
                times.start[number],
                times.end[number],
                done.work.temporary_bytes,
            )


def _last_moments(recording: Recording, times: Times) -> list[float]:
    """Until when each value is held."""
    ends, makers = times.end, recording.makers
    found = [0.0 if maker == AT_START else ends[maker] for maker in makers]
    for number, readers in enumerate(recording.readers):
        for reader in readers:
            if ends[reader] > found[number]:
                found[number] = ends[reader]
    callers = [n for n, maker in enumerate(makers) if maker == AT_START and n not in recording.freed_values]
    for number in (*callers, *recording.results):
        found[number] = times.makespan
    _overwritten(recording, times, found)
    return found


def _overwritten(recording: Recording, times: Times, last: list[float]) -> None:
    """What an op overwrites is gone when it starts; what has views stays as long as they do."""
    for number, done in enumerate(recording.applications):
        for place in done.step.op.donated:
            last[done.operands[place]] = times.start[number]
    for done in reversed(recording.applications):
        if done.step.op.is_view:
            whole = done.operands[0]
            last[whole] = max(last[whole], *(last[result] for result in done.results))


def worst(recording: Recording, times: Times, classes: DeviceClasses, memory: Sequence[Held]) -> Worst:
    """The worst moment of all devices."""
    place = max(range(len(memory)), key=lambda n: memory[n].peak, default=None)
    if place is None:
        return Worst(0.0, 0, "")
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
    return Worst(level.peak, device, at)
