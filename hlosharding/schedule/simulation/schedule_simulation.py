"""`ScheduleSimulation`: what users hold of a simulated schedule.

Floor: schedule.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, Literal, NamedTuple

from hlosharding.cost import (
    NOTHING,
    CostReport,
    FlopsByType,
    Machine,
    StepBreakdown,
    StepFigures,
    Times,
    TraceLevel,
    TraceRow,
    TraceSlice,
    WholeStep,
    streams_of,
    trace_text,
)
from hlosharding.errors import ScheduleError
from hlosharding.notebook import InNotebooks
from hlosharding.schedule.op import Op, Work
from hlosharding.schedule.simulation.device_classes import DeviceClasses
from hlosharding.schedule.simulation.memory_over_time import HeldMemory, WorstMoment, find_held, find_worst
from hlosharding.schedule.simulation.recording import Application, Recording
from hlosharding.schedule.steps import place_of, step_text
from hlosharding.schedule.value_type import devices_text
from hlosharding.whole_files import write_whole

Semantics = Literal["overlap", "synchronous", "contention"]
"""What transfers share, and with whom: see `simulate_schedule`."""


class StepEvent(NamedTuple):
    """A step of the run; times in seconds from its start."""

    number: int
    """In the order of the schedule."""
    text: str
    place: str
    devices: tuple[int, ...]
    start: float
    end: float
    is_communication: bool
    received_bytes: float


class Usage(NamedTuple):
    """How the devices of one class spend the time of the run."""

    devices: tuple[int, ...]
    breakdown: StepBreakdown
    """Idle is what they do not compute: the bubble."""
    peak_bytes: float

    @property
    def busy_s(self) -> float:
        """In ops that compute, with what no computing hides inside these."""
        return self.breakdown.total_s - self.idle_s

    @property
    def exposed_s(self) -> float:
        """Of that, communication inside stage programs that no computing hides."""
        return self.breakdown.exposed_s

    @property
    def waiting_s(self) -> float:
        """Of what is busy, for the host to launch kernels."""
        return self.breakdown.waiting_s

    @property
    def idle_s(self) -> float:
        return self.breakdown.idle_s

    @property
    def share(self) -> float:
        """Busy, of the whole time."""
        whole = self.breakdown.total_s
        return self.busy_s / whole if whole else 0.0


@dataclass(frozen=True, eq=False)
class ScheduleSimulation(InNotebooks):
    """When each step runs, and what each device holds.

    >>> from hlosharding.cost import machines
    >>> from hlosharding.schedule import parse_schedule
    >>> text = "func @main(%x: f32[1000] on {0}) {\\n  %y = send(%x) to={1}\\n  return %y\\n}"
    >>> found = parse_schedule(text).simulate(machines.h100(2))
    >>> found.peak_memory_bytes, [event.text for event in found.critical_path]
    (4000.0, ['%y = send(%x)'])
    """

    machine: Machine
    recording: Recording
    times: Times
    """Of each step, by number."""
    classes: DeviceClasses
    """Devices that do the same, simulated once."""
    semantics: Semantics = "overlap"
    whole: WholeStep | None = None
    """What the schedule is of, where that is known."""
    _reports: dict[tuple[Op, Machine], CostReport | None] = field(default_factory=dict)
    """Of the ops whose source lines were asked for."""

    @cached_property
    def memory(self) -> Sequence[HeldMemory]:
        """Over time, by class."""
        return find_held(self.recording, self.times, self.classes)

    @cached_property
    def worst_memory(self) -> WorstMoment:
        """The moment at which a device holds most of what it has."""
        return find_worst(self.recording, self.times, self.classes, self.memory)

    @property
    def time_s(self) -> float:
        return self.times.makespan

    @property
    def peak_memory_bytes(self) -> float:
        """Of the device that holds most."""
        return max((level.peak for level in self.memory), default=0.0)

    @property
    def fits(self) -> bool:
        """Does every device hold what it must?"""
        each = zip(self.classes.members, self.memory, strict=True)
        return all(held.peak <= self.machine.kind_of(members[:1]).memory_bytes for members, held in each)

    def check_memory(self) -> None:
        """Raise ScheduleError where a device holds more than it has, with the step that begins then."""
        if not self.fits:
            worst = self.worst_memory
            memory = self.machine.kind_of((worst.device,)).memory_bytes
            raise ScheduleError(
                f"device {worst.device} of {self.machine.name} holds {worst.nbytes / 1e9:,.2f} GB,"
                f" it has {memory / 1e9:,.2f} GB",
                where=worst.at,
                remedy="free values earlier, recompute them, or split them over more devices",
            )

    @property
    def timeline(self) -> Iterator[StepEvent]:
        """The steps, in the schedule's order."""
        return (self._event_of(number) for number in range(len(self.recording.applications)))

    def _event_of(self, number: int) -> StepEvent:
        done: Application = self.recording.applications[number]
        return StepEvent(
            number,
            step_text(done.step),
            place_of(done.function, done.step),
            tuple(dict.fromkeys((*done.sources, *done.targets))),
            self.times.start[number],
            self.times.end[number],
            done.work.is_communication,
            done.work.received_bytes,
        )

    @cached_property
    def critical_path(self) -> tuple[StepEvent, ...]:
        """The chain of steps that makes the run as long as it is, first to last."""
        ends = self.times.end
        number = max(range(len(ends)), key=ends.__getitem__, default=NOTHING)
        chain: list[StepEvent] = []
        while number != NOTHING:
            chain.append(self._event_of(number))
            number = self.times.cause[number]
        return tuple(reversed(chain))

    @cached_property
    def usage(self) -> tuple[Usage, ...]:
        """By class of devices."""
        counts: Counter[tuple[int, tuple[int, ...]]] = Counter()
        works: dict[int, Work] = {}
        for done in self.recording.applications:
            if not done.work.is_communication:
                # By identity, for steps of one kind share theirs (`Recording`): no figures are hashed.
                works[id(done.work)] = done.work
                counts[id(done.work), self.classes.of((*done.sources, *done.targets))] += 1
        spent = [StepBreakdown() for _ in self.classes.members]
        for (work, places), count in counts.items():
            for place in places:
                spent[place] += works[work].spent * count
        of_classes = zip(self.classes.members, spent, self.memory, strict=True)
        return tuple(Usage(devices, self._with_idle(busy), level.peak) for devices, busy, level in of_classes)

    def _with_idle(self, busy: StepBreakdown) -> StepBreakdown:
        idle = self.time_s - busy.total_s
        return busy + StepBreakdown(idle_s=idle) if idle > 1e-9 * self.time_s else busy  # else it is rounding

    @cached_property
    def figures(self) -> StepFigures:
        """Utilization of the devices, what bounds the step, and how far off such predictions were; tokens, where the
        schedule is of a program whose batch has them.
        """
        longest = max(self.usage, key=lambda use: use.busy_s, default=None)
        breakdown = longest.breakdown if longest else StepBreakdown()
        return StepFigures.of(self.whole or self._flops, self.time_s, self.machine, breakdown)

    @property
    def _flops(self) -> FlopsByType:
        """Of all devices."""
        runs: Counter[Op] = Counter()
        for done in self.recording.applications:
            runs[done.step.op] += len({*done.sources, *done.targets})
        flops: defaultdict[str, float] = defaultdict(float)
        for op, devices in runs.items():
            for dtype, each in op.flops.items():
                flops[dtype] += each * devices
        return flops

    def source_lines(self, event: StepEvent, most: int = 3) -> dict[str, float]:
        """Of a step that runs a stage program the source lines that cost most ("": unknown), with their seconds on one
        device, the longest first; of other steps none.  The seconds are those of `cost`: nothing is hidden.  Lines
        below a hundredth of the program are left out.
        """
        key = self.recording.applications[event.number].step.op, self.machine.among(event.devices)
        if key not in self._reports:
            self._reports[key] = key[0].report(key[1])
        report = self._reports[key]
        if report is None:
            return {}
        seconds = ((line, part.time_s) for line, part in report.by_location.items())
        return dict(islice((each for each in seconds if each[1] > 0.01 * report.time_s), most))

    def save_trace(self, path: Any) -> None:
        """Write a trace for Perfetto (ui.perfetto.dev): a row for each class of devices; whole or not at all."""
        rows = [
            TraceRow(f"devices {devices_text(each)} of {self.machine.name}", streams_of(()))
            for each in self.classes.members
        ]
        memory = (
            TraceLevel(row, float(when), float(nbytes))
            for row, level in enumerate(self.memory)
            for when, nbytes in zip(level.times, level.nbytes, strict=True)
        )
        write_whole(path, trace_text(rows, self._slices(), memory))

    def _slices(self) -> Iterator[TraceSlice]:
        for event in self.timeline:
            details: dict[str, Any] = {"step": event.text, "at": event.place, "bytes received": event.received_bytes}
            if lines := self.source_lines(event):
                details["seconds by source line"] = lines
            name = self.recording.applications[event.number].step.op.name
            for row in self.classes.of(event.devices):
                yield TraceSlice(row, int(event.is_communication), name, event.start, event.end - event.start, details)

    def __str__(self) -> str:
        rows = [f"{devices_text(u.devices)}: {u.share:.0%} busy, peak {u.peak_bytes / 1e6:,.3g} MB" for u in self.usage]
        return f"{self.time_s * 1e3:.3f} ms on {self.machine.name}; {'; '.join(rows)}\n{self.figures}"
