"""What a plan is judged by: bytes, seconds, or both in one figure; and the least time that bytes can take.

Floor: reshard.
"""

from __future__ import annotations

from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from hlosharding.cost import Machine
from hlosharding.errors import PartitionError

Number = TypeVar("Number", float, npt.NDArray[np.float64])

Objective = Literal["bytes", "balanced", "time"]

# What a second weighs in bytes.  "bytes": it decides ties alone; "time": it alone decides; "balanced": a collective of
# a few microseconds weighs as much as some tens of kilobytes, so that arrays that are not large travel in few steps
# and large ones in few bytes.
OBJECTIVES = {"bytes": 1e-3, "balanced": 1e10, "time": 1e18}
# "balanced": all seconds together count less than so many times the bytes.  What small arrays move for the sake of few
# steps is in proportion to the least that they may move: then a larger array moves no less than a smaller one, but for
# some hundred bytes.
_MOST_FOR_SECONDS = 15.0
_NEXT_TO_NOTHING = 1024.0
"""Bytes that nobody saves by one more step, nor sends to have a little less to compute."""
_HALF_OF_IT = 1e-4
"""Seconds that count half as much as all may: of a dozen collectives.  Of few of them each counts about alike."""


def check_objective(name: str) -> None:
    """Raises PartitionError for one that nobody knows."""
    if name not in OBJECTIVES:
        raise PartitionError(f"no objective {name!r}", remedy=f"use one of {', '.join(OBJECTIVES)}")


def bytes_of_a_second(objective: str, nbytes: Number, seconds: Number) -> Number | float:
    """What each of the seconds that a transfer of so many bytes takes weighs in bytes.

    >>> [round(bytes_of_a_second("balanced", nbytes, 1e-5) / 1e10, 3) for nbytes in (1e3, 1e5, 1e9)]
    [0.027, 0.579, 1.0]
    """
    rate = OBJECTIVES[objective]
    if objective != "balanced":
        return rate
    most = _MOST_FOR_SECONDS * (nbytes + _NEXT_TO_NOTHING)
    return rate * most / (most + rate * (seconds + _HALF_OF_IT))


def combined(objective: str, nbytes: Number, seconds: Number) -> Number:
    """The one figure to minimise.  More bytes, and more seconds, are always more.

    >>> round(combined("balanced", 1e9, 1e-6))
    1000009999
    >>> combined("balanced", 8e3, 1.0) < 18 * 8e3
    True
    """
    return nbytes + seconds * bytes_of_a_second(objective, nbytes, seconds)


def most_bytes_per_second(machine: Machine) -> float:
    """No collective brings a device more: all links of a torus at once, else one."""
    return machine.inside.bandwidth * max(1, 2 * len(machine.torus))


def least_seconds(nbytes: float, machine: Machine, reach: int = 1) -> float:
    """No collectives by which a device receives `nbytes`, so that it has data of `reach` devices, are faster.

    Each collective of n devices multiplies by n, at most, of how many devices one has data, and takes log2 n hops or
    more; on a torus, where a ring closes, one at least.

    >>> from hlosharding.cost import machines
    >>> least_seconds(0, machines.h100(8))
    0.0
    >>> least_seconds(1e6, machines.h100(8)) < least_seconds(1e6, machines.h100(8), 2)
    True
    """
    if nbytes <= 0:
        return 0.0
    hops = min(reach - 1, 1) if machine.torus else (reach - 1).bit_length()
    latency = min(machine.inside.latency, machine.between.latency)
    return machine.collective_launch + hops * latency + nbytes / most_bytes_per_second(machine)
