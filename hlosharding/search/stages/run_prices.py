"""What each run of layers takes on each kind of submesh, as arrays: the question that a division into stages answers.

Floor: search.  Plain numbers; knows nothing of programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]


class Stage(NamedTuple):
    """A run of layers, and what it runs on."""

    first: int
    stop: int
    """The layer behind the last one."""
    option: int


@dataclass(frozen=True, eq=False)
class RunPrices:
    """Of each option (a submesh, and a plan for it) and each run of layers four figures, [option, first, last]; of what
    stands below the diagonal nobody asks.  `inf` bytes kept forbid.

    >>> layers = np.array([[1.0, 2.0, 3.0]])
    >>> prices = RunPrices.of_layers([4], seconds=layers, once=0 * layers, kept=layers, held=layers, scratch=layers)
    >>> prices.seconds[0, 0], prices.kept[0, 0]
    (array([1., 3., 6.]), array([2., 5., 9.]))
    """

    devices: npt.NDArray[np.int64]
    """[option]: how many."""
    seconds: Numbers
    """Of a microbatch's passes together."""
    once: Numbers
    """Seconds of what runs once a step: updates."""
    kept: Numbers
    """Bytes a device that stay: weights, moments, gradients; and what passes need beside."""
    held: Numbers
    """Bytes a device of each microbatch in flight: what its forward passes leave for its backward passes."""

    @classmethod
    def of_layers(
        cls, devices: Sequence[int], *, seconds: Numbers, once: Numbers, kept: Numbers, held: Numbers, scratch: Numbers
    ) -> RunPrices:
        """Of figures [option, layer] that add up; of `scratch`, which passes need beside, a run needs the most."""
        lasting = _sum_runs(kept) + _most_of_runs(scratch)
        return cls(np.array(devices), _sum_runs(seconds), _sum_runs(once), lasting, _sum_runs(held))

    @property
    def layers(self) -> int:
        """How many there are."""
        return self.seconds.shape[-1]

    def pace(self, microbatches: int) -> Numbers:
        """[option, first, last]: seconds of a step beyond one microbatch's way through all stages, if the run is that
        on which all others wait."""
        return (microbatches - 1) * self.seconds + self.once

    def times_of(self, stages: Iterable[Stage], microbatches: int) -> tuple[float, float]:
        """Seconds of a microbatch's way through them, and the pace of the slowest: together they are a step's."""
        picked = tuple(np.array([(option, first, stop - 1) for first, stop, option in stages]).T)
        return float(self.seconds[picked].sum()), float(self.pace(microbatches)[picked].max())


def _most_of_runs(layers: Numbers) -> Numbers:
    """[option, first, last]"""
    return np.maximum.accumulate(np.triu(np.repeat(layers[:, None], layers.shape[1], axis=1)), axis=2)


def _sum_runs(layers: Numbers) -> Numbers:
    """[option, first, last]"""
    before = np.concatenate([np.zeros_like(layers[:, :1]), np.cumsum(layers, axis=1)], axis=1)
    return before[:, None, 1:] - before[:, :-1, None]
