"""One run of a schedule on a machine: when each step runs, and what each device holds.

Floor: schedule.  Prices are the ops' own, times those of `cost.run_in_order`, or of `cost.run_sharing_links` where
transfers share links: every lane works in the schedule's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from hlosharding.collector import collector_waits
from hlosharding.cost import Machine, Tasks, WholeStep, run_in_order, run_sharing_links
from hlosharding.errors import ScheduleError
from hlosharding.schedule.interpreter import interpret
from hlosharding.schedule.simulation.contention import Links
from hlosharding.schedule.simulation.device_classes import DeviceClasses
from hlosharding.schedule.simulation.recording import AT_START, Recording
from hlosharding.schedule.simulation.schedule_simulation import ScheduleSimulation, Semantics
from hlosharding.schedule.steps import Functions


@collector_waits
def simulate_schedule(
    functions: Functions, machine: Machine, *, semantics: Semantics = "overlap", whole: WholeStep | None = None
) -> ScheduleSimulation:
    """Simulate a schedule.  `whole`: what it is of.

    "overlap": a device computes while its transfers are under way; between two submeshes one transfer runs at a time.
    "synchronous": a step keeps all devices that take part, senders and receivers alike (as in DistIR).
    "contention": as "overlap", but transfers that are under way at the same time share each device's way out and way
    in, inside its node and between nodes; what stage programs send inside themselves takes what it takes alone.

    Raises ScheduleError where the schedule breaks a law, or names a device that the machine lacks.
    """
    if semantics not in get_args(Semantics):
        raise ScheduleError(f"no semantics {semantics!r}", remedy=f"there are {', '.join(get_args(Semantics))}")
    return simulate_recording(record_steps(functions, machine), semantics, whole)


def record_steps(functions: Functions, machine: Machine) -> Recording:
    """The steps, checked and priced.  Raises ScheduleError where the schedule breaks a law."""
    recording = Recording(machine)
    interpret(functions, observer=recording)
    return recording


@collector_waits
def simulate_recording(
    recording: Recording, semantics: Semantics = "overlap", whole: WholeStep | None = None
) -> ScheduleSimulation:
    """As `simulate_schedule`, of steps that were recorded already."""
    machine = recording.machine
    groups = dict.fromkeys(kind.devices for kind in recording.kinds)
    beyond = [device for group in groups for device in group if device >= machine.num_devices]
    if beyond:
        raise ScheduleError(f"there is no device {max(beyond)} in {machine.name}", remedy="take a larger machine")
    classes = DeviceClasses(groups, lambda device: machine.kind_of((device,)))
    tasks = _tasks(recording, _find_lanes(recording, classes, is_apart=semantics != "synchronous"))
    if semantics == "contention":
        links = Links(recording)
        times = run_sharing_links(tasks, links.find_uses(), links.bandwidths)
    else:
        times = run_in_order(tasks)
    return ScheduleSimulation(machine, recording, times, classes, semantics, whole)


def _tasks(recording: Recording, lanes: list[tuple[int, ...]]) -> Tasks:
    makers, done = recording.makers, recording.applications
    waits: list[Sequence[int]] = [[m for n in each.operands if (m := makers[n]) != AT_START] for each in done]
    return Tasks([each.work.seconds for each in done], lanes, waits)


def _find_lanes(recording: Recording, classes: DeviceClasses, *, is_apart: bool) -> list[tuple[int, ...]]:
    """The lanes that each step holds: one of each device that takes part; where moves are apart, these hold one of the
    connection that they move over."""
    connections: dict[tuple[tuple[int, ...], ...], int] = {}
    found: dict[tuple[int, int, bool], tuple[int, ...]] = {}
    lanes: list[tuple[int, ...]] = []
    for done in recording.applications:
        ends, is_move = (done.sources, done.targets), is_apart and done.work.is_communication
        key = id(done.sources), id(done.targets), is_move  # steps of one kind name their devices by the same objects
        if key not in found:
            beyond = len(classes.members) + len(connections)
            found[key] = (connections.setdefault(ends, beyond),) if is_move else classes.of(sum(ends, ()))
        lanes.append(found[key])
    return lanes
