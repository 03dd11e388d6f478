"""What a plan is judged by: bytes, seconds, or both in one figure; and the least time that bytes can take.

Floor: reshard.
"""

from __future__ import annotations

from typing import Literal

from hlosharding.cost import Machine

Objective = Literal["bytes", "balanced", "time"]

# What a second weighs in bytes.  "bytes": it decides ties alone; "time": it alone decides; "balanced": a collective of
# a few microseconds weighs as much as some tens of kilobytes, so that small arrays travel in few steps and large ones
# in few bytes.
OBJECTIVES = {"bytes": 1e-3, "balanced": 1e10, "time": 1e18}


def combined(objective: str, nbytes: float, seconds: float) -> float:
    """The one figure to minimise.

    >>> combined("balanced", 1000, 1e-6)
    11000.0
    """
    return nbytes + seconds * OBJECTIVES[objective]


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
