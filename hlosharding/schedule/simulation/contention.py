"""Which links the transfers of a schedule use: what they share that are under way at the same time.

Floor: schedule.  Each device has a way out and a way in, inside its node and between nodes; a transfer uses those of
all that send and receive in it.  How fast what shares links goes is said by `cost.sharing`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import inf
from typing import Any

from hlosharding.cost import LARGEST_FIGURE, LinkUse, Machine
from hlosharding.schedule.simulation.recording import Application, Recording

_LEVELS = ("inside", "between")


class Links:
    """The links of a machine, numbered as they are first used."""

    def __init__(self, recording: Recording) -> None:
        self.recording, self.machine = recording, recording.machine
        self.endless = _endless(recording.machine)
        self.numbers: dict[tuple[str, str, int], int] = {}
        self.bandwidths: list[float] = []
        self._found: dict[tuple[Any, ...], LinkUse] = {}

    def find_uses(self) -> dict[int, LinkUse]:
        """By the number of the application, of those that move bytes between devices."""
        done = enumerate(self.recording.applications)
        return {number: self._use_of(each) for number, each in done if each.work.is_communication}

    def _use_of(self, done: Application) -> LinkUse:
        """Of equal ops on equal types once."""
        types = self.recording.types
        key = (done.step.op, *(types[n] for n in done.operands), *(types[n] for n in done.results))
        if key not in self._found:
            self._found[key] = self._use_of_op(done)
        return self._found[key]

    def _use_of_op(self, done: Application) -> LinkUse:
        kinds, types = self.recording.kinds, self.recording.types
        taken, made = ([kinds[types[n]] for n in names] for names in (done.operands, done.results))
        # What it takes where bytes take nothing: its start, and its hops.
        latency = done.step.op.work(taken, made, self.endless).seconds
        ways = [(*pair, self._level(*pair)) for pair in done.step.op.routes(taken, made)]
        links = {self._number(*way): None for s, t, level in ways for way in ((level, "out", s), (level, "in", t))}
        speed = min((getattr(self.machine.kind_of((s, t)), level).bandwidth for s, t, level in ways), default=inf)
        return LinkUse(latency, speed, tuple(links))

    def _level(self, source: int, target: int) -> str:
        return _LEVELS[self.machine.node_of(source) != self.machine.node_of(target)]

    def _number(self, level: str, way: str, device: int) -> int:
        key = level, way, device
        if key not in self.numbers:
            self.numbers[key] = len(self.bandwidths)
            self.bandwidths.append(getattr(self.machine.kind_of((device,)), level).bandwidth)
        return self.numbers[key]


@lru_cache(maxsize=64)
def _endless(machine: Machine) -> Machine:
    """The machine with links that carry any number of bytes in as good as no time."""
    links = {level: replace(getattr(machine, level), bandwidth=LARGEST_FIGURE) for level in _LEVELS}
    nccl = machine.nccl and replace(machine.nccl, ll_bandwidth=LARGEST_FIGURE, ll128_bandwidth=LARGEST_FIGURE)
    return replace(machine, nccl=nccl, parts=tuple(map(_endless, machine.parts)), **links)
