"""What a plan is judged by: seconds, or bytes; and the least time that bytes can take.

Floor: reshard.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from hlosharding.cost import Machine, collective_time
from hlosharding.errors import PartitionError
from hlosharding.spmd import bytes_received

Numbers = npt.NDArray[np.float64]
Number = TypeVar("Number", float, Numbers)

Objective = Literal["time", "bytes"]

# What a second weighs in bytes.  "time": it alone decides; "bytes", the yardstick: it decides ties alone.
OBJECTIVES = {"time": 1e18, "bytes": 1e-3}


MARGIN = 0.01
"""Of the least time: so near to it plans are equal, and other figures decide.  A change must promise more than that."""
MORE_WORK = 1.05
"""Of the work of what a plan is compared with: up to that it does as much, and fewer bytes are not bought with work."""


class Figures(NamedTuple):
    """What plans are compared by, of a reshard as of a whole program."""

    seconds: float
    nbytes: float
    """Received by a device, mean over devices."""
    collectives: int = 0
    peak_bytes: float = 0.0


def best(objective: str, plans: Sequence[Figures]) -> int:
    """The number of the best plan: the one comparison for all that is planned.

    Where time decides, of the plans within `MARGIN` of the least that with the fewest bytes, then collectives, then
    the smallest peak; on a tie the first.

    >>> best("time", [Figures(1.0, 5e6), Figures(1.005, 3e6), Figures(1.1, 1e6)])
    1
    >>> best("bytes", [Figures(1.0, 5e6), Figures(1.005, 3e6), Figures(1.1, 1e6)])
    2
    """
    costs = [weigh(objective, plan.nbytes, plan.seconds) for plan in plans]
    margin = MARGIN if objective == "time" else 0.0
    near = [n for n, cost in enumerate(costs) if cost <= (1 + margin) * min(costs)]
    return min(near, key=lambda n: plans[n][1:])


def check_objective(name: str) -> None:
    """Raises PartitionError for one that nobody knows."""
    if name not in OBJECTIVES:
        raise PartitionError(f"no objective {name!r}", remedy=f"use one of {', '.join(OBJECTIVES)}")


def weigh(objective: str, nbytes: Number, seconds: Number) -> Number:
    """The one figure to minimise.  More bytes, and more seconds, are always more.

    >>> weigh("time", 1e9, 1e-6) < weigh("time", 1e3, 2e-6)
    True
    >>> weigh("bytes", 1e9, 1e-6) < weigh("bytes", 1e3, 2e-6)
    False
    """
    return nbytes + seconds * OBJECTIVES[objective]


def most_bytes_per_second(machine: Machine) -> float:
    """No collective brings a device more: all links of a torus at once, else one."""
    return machine.inside.bandwidth * max(1, 2 * len(machine.torus), _summed(machine))


def _summed(machine: Machine) -> float:
    """How much faster sums are where switches add up: 2 (n-1)/n of the bytes count as received, (g+1)/g are sent."""
    if machine.nccl is None:
        return 0.0
    n, g = machine.num_devices, min(machine.num_devices, machine.devices_per_node)
    return 2 * (n - 1) / n * g / (g + 1) * machine.nccl.nvls_efficiency


_KINDS = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")
_POINTS = 2.0 ** np.arange(0, 44.5, 0.5)
_BELOW_CHORDS = 0.99
"""Between two of the points a curve may lie below their chord, by so much: 0.8 % where hops and bytes weigh alike."""


@lru_cache(maxsize=256)
def fastest_collectives(machine: Machine) -> Numbers:
    """Seconds of the fastest single collective by which devices receive each of `_POINTS` bytes.

    That of several collectives is no less: each starts anew.
    """
    sizes = [n for n in range(2, machine.num_devices + 1) if machine.num_devices % n == 0]
    # A permute is priced by its pairs, whatever the size of a group: one is enough.
    ways = [(kind, n) for kind in _KINDS for n in (sizes if kind != "collective-permute" else sizes[:1])]
    seconds = [
        [collective_time(kind, nbytes / bytes_received(kind, 1.0, n), n, None, machine) for nbytes in _POINTS.tolist()]
        for kind, n in ways
    ]
    return np.min(seconds, axis=0) * _BELOW_CHORDS if ways else np.zeros(len(_POINTS))  # one device has all there is


@lru_cache(maxsize=65536)
def least_seconds(nbytes: float, machine: Machine, reach: int = 1) -> float:
    """No collectives by which a device receives `nbytes`, so that it has data of `reach` devices, are faster.

    >>> from hlosharding.cost import machines
    >>> least_seconds(0.0, machines.h100(8))
    0.0
    >>> least_seconds(1e3, machines.tpu_v5p(64)) < least_seconds(1e3, machines.tpu_v5p(64), 64)
    True
    """
    return float(least_seconds_of_each(np.array([nbytes]), machine, reach)[0])


def least_seconds_of_each(nbytes: Numbers, machine: Machine, reach: int = 1) -> Numbers:
    """`least_seconds` of many.

    Each collective of n devices multiplies by n, at most, of how many devices one has data, and takes log2 n hops or
    more; on a torus, where a ring closes, one at least.
    """
    hops = min(reach - 1, 1) if machine.torus else (reach - 1).bit_length()
    latency = min(machine.inside.latency, machine.between.latency)
    by_hops = machine.collective_launch + hops * latency + nbytes / most_bytes_per_second(machine)
    # Beyond the last point the rate alone bounds.
    by_kind = np.interp(nbytes, _POINTS, fastest_collectives(machine), right=0.0)
    return np.where(nbytes > 0, np.maximum(by_kind, by_hops), 0.0)
