"""One run of a schedule on a machine: when each step runs, and what each device holds.

Floor: schedule.  Prices are the ops' own, times those of `cost.run_in_order`, or of `cost.run_sharing_links` where
transfers share links: every lane works in the schedule's order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlosharding.collector import collector_waits
from hlosharding.cost import Machine, Tasks, Times, WholeStep, run_in_order, run_sharing_links
from hlosharding.errors import ScheduleError
from hlosharding.schedule.interpreter import interpret
from hlosharding.schedule.simulation.contention import Links
from hlosharding.schedule.simulation.device_classes import DeviceClasses
from hlosharding.schedule.simulation.recording import AT_START, Application, Recording
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
    if semantics not in _SEMANTICS:
        raise ScheduleError(f"no semantics {semantics!r}", remedy=f"there are {', '.join(_SEMANTICS)}")
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
    groups = list(dict.fromkeys(kind.devices for kind in recording.kinds))
    beyond = [device for group in groups for device in group if device >= machine.num_devices]
    if beyond:
        raise ScheduleError(f"there is no device {max(beyond)} in {machine.name}", remedy="take a larger machine")
    together = dict.fromkeys((a.sources, a.targets) for a in recording.applications)
    groups += [(*sources, *targets) for sources, targets in together]
    classes = DeviceClasses(groups, lambda device: machine.kind_of((device,)))
    lanes, timed = _SEMANTICS[semantics]
    times = timed(recording, _tasks(recording, lanes(classes)))
    return ScheduleSimulation(machine, recording, times, classes, semantics, whole)


def _run_alone(recording: Recording, tasks: Tasks) -> Times:
    return run_in_order(tasks)


def _run_with_others(recording: Recording, tasks: Tasks) -> Times:
    links = Links(recording)
    return run_sharing_links(tasks, links.find_uses(), links.bandwidths)


def _tasks(recording: Recording, lanes: _Lanes) -> Tasks:
    makers, done = recording.makers, recording.applications
    waits: list[Sequence[int]] = [[m for n in each.operands if (m := makers[n]) != AT_START] for each in done]
    return Tasks([each.work.seconds for each in done], [lanes.lanes_of(each) for each in done], waits)


class _Lanes:
    """The lanes that a step holds: one of each device that takes part."""

    def __init__(self, classes: DeviceClasses) -> None:
        self.classes = classes
        self.found: dict[tuple[int, int, bool], tuple[int, ...]] = {}

    def lanes_of(self, done: Application) -> tuple[int, ...]:
        """Of one application.  Those of one kind name their devices by the same objects."""
        key = (id(done.sources), id(done.targets), done.work.is_communication)
        if key not in self.found:
            self.found[key] = self.find_lanes(done)
        return self.found[key]

    def find_lanes(self, done: Application) -> tuple[int, ...]:
        """As `lanes_of`, the first time."""
        return self.classes.of((*done.sources, *done.targets))


class _OverlapLanes(_Lanes):
    """Computing steps hold one lane of each device; those who move one of the connection that they move over."""

    def __init__(self, classes: DeviceClasses) -> None:
        super().__init__(classes)
        self.connections: dict[tuple[object, ...], int] = {}

    def find_lanes(self, done: Application) -> tuple[int, ...]:
        if not done.work.is_communication:
            return super().find_lanes(done)
        ends = (done.sources, done.targets)
        return (self.connections.setdefault(ends, len(self.classes.members) + len(self.connections)),)


_SEMANTICS: dict[str, tuple[type[_Lanes], Callable[[Recording, Tasks], Times]]] = {
    "overlap": (_OverlapLanes, _run_alone),
    "synchronous": (_Lanes, _run_alone),
    "contention": (_OverlapLanes, _run_with_others),
}
