"""`hs.simulate`: of one device's program, or of a schedule.

Floor: schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hlosharding.cost import Machine, Runtime, Topology, machine_of, machines
from hlosharding.cost import simulate as simulate_program
from hlosharding.errors import ScheduleError
from hlosharding.schedule.schedule import Schedule
from hlosharding.schedule.simulation import Semantics

_NO_TRIPS: Mapping[str, int] = {}


def simulate(
    program: Any,
    machine: Machine | Topology | None = None,
    *,
    trips: Mapping[str, int] = _NO_TRIPS,
    combine: bool = True,
    semantics: Semantics = "overlap",
    runtime: Runtime | None = None,
) -> Any:
    """Simulate a partitioned program (a Partitioned, or any local Module) or a Schedule on a machine preset.

    A `Simulation` of the one, a `ScheduleSimulation` of the other.

    `machine`: by default H100s, as many as there are devices.  `trips`, `combine`: as of `cost`, of one program.
    `semantics`: of a schedule, as of `Schedule.simulate`.  `runtime`: who runs it, as of `cost`.

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT y = f32[8] negate(x)\\n}"
    >>> [event.instruction.name for event in simulate(hs.load(text)).critical_path]
    ['y']
    """
    if not isinstance(program, Schedule):
        if semantics != "overlap":
            raise ScheduleError("`semantics` is of schedules", remedy="leave it out")
        return simulate_program(program, machine, trips=trips, combine=combine, runtime=runtime)
    if trips or not combine:
        raise ScheduleError("`trips` and `combine` are of one device's program", remedy="give them where it is priced")
    count = 1 + max(program.devices, default=0)
    target = machine_of(machine) or machines.h100(count)
    return program.simulate(target, semantics=semantics, runtime=runtime)
