"""Which links the transfers of a schedule use: what they share that are under way at the same time.

Floor: schedule.  Each device has a way out and a way in, inside its node and between nodes; a transfer uses those of
all that send and receive in it.  How fast what shares links goes is said by `cost.sharing`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache
from math import inf

from hlosharding.cost import LARGEST_FIGURE, LinkUse, Machine
from hlosharding.schedule.op import Op
from hlosharding.schedule.simulation.recording import Recording

_LEVELS = ("inside", "between")


class Links:
    """The links of a machine, numbered as they are first used."""

    def __init__(self, recording: Recording) -> None:
        self.recording, self.machine = recording, recording.machine
        self.endless = _endless(recording.machine)
        self.numbers: dict[tuple[str, str, int], int] = {}

    @property
    def bandwidths(self) -> list[float]:
        """Of the links that are used, by number."""
        return [getattr(self.machine.kind_of((device,)), level).bandwidth for level, _, device in self.numbers]

    def find_uses(self) -> dict[int, LinkUse]:
        """By the number of the application, of those that move bytes between devices; of equal ops on equal types found
        once."""
        types, use_of = self.recording.types, cache(self._use_of)
        return {
            number: use_of(done.step.op, *(tuple(types[n] for n in names) for names in (done.operands, done.results)))
            for number, done in enumerate(self.recording.applications)
            if done.work.is_communication
        }

    def _use_of(self, op: Op, operands: tuple[int, ...], results: tuple[int, ...]) -> LinkUse:
        taken, made = ([self.recording.kinds[n] for n in types] for types in (operands, results))
        # What it takes where bytes take nothing: its start, and its hops.
        latency = op.work(taken, made, self.endless).seconds
        ways = [(*pair, self._level(*pair)) for pair in op.routes(taken, made)]
        ends = dict.fromkeys(way for s, t, level in ways for way in ((level, "out", s), (level, "in", t)))
        speed = min((getattr(self.machine.kind_of((s, t)), level).bandwidth for s, t, level in ways), default=inf)
        return LinkUse(latency, speed, tuple(self.numbers.setdefault(way, len(self.numbers)) for way in ends))

    def _level(self, source: int, target: int) -> str:
        return _LEVELS[self.machine.node_of(source) != self.machine.node_of(target)]


@lru_cache(maxsize=64)
def _endless(machine: Machine) -> Machine:
    """The machine with links that carry any number of bytes in as good as no time."""
    links = {level: replace(getattr(machine, level), bandwidth=LARGEST_FIGURE) for level in _LEVELS}
    # NCCL's protocols have rates of their own: with fast links alone they would still take time.
    nccl = machine.nccl and replace(machine.nccl, ll_bandwidth=LARGEST_FIGURE, ll128_bandwidth=LARGEST_FIGURE)
    return replace(machine, nccl=nccl, parts=tuple(map(_endless, machine.parts)), **links)
