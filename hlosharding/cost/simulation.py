"""`Simulation`: what users hold of a simulated run; its events: what ran when, on which stream, what it waited for.

Floor: cost.  The run itself stands in `simulator.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from hlosharding.cost.machine import Machine
from hlosharding.cost.step_breakdown import StepBreakdown
from hlosharding.cost.step_figures import StepFigures
from hlosharding.cost.trace import TraceLevel, TraceRow, TraceSlice, trace_text
from hlosharding.cost.utilization import WholeStep, hardware_flops
from hlosharding.ir import GuessedLoop, Instruction, Module
from hlosharding.notebook import InNotebooks
from hlosharding.whole_files import write_whole

Stream = Literal["compute", "communication", "host"]
STREAMS: tuple[Stream, ...] = ("compute", "communication", "host")
"""`host`: moves to the host's memory, and back."""


def streams_of(timeline: Iterable[Event]) -> tuple[Stream, ...]:
    """Those that a run has: the last only where something is moved."""
    return STREAMS if any(event.stream == "host" for event in timeline) else STREAMS[:2]


@dataclass(frozen=True, slots=True)
class Event:
    """One op (or a whole loop) on a stream; times in seconds from the start of the run."""

    instruction: Instruction
    stream: Stream
    start: float
    end: float
    cause: Event | None = field(repr=False)
    """The event that kept this one from starting earlier: an operand, or the op before it on its stream."""
    nbytes: float
    """Bytes received."""
    trips: int = 1
    """Of a loop: how often its body runs."""
    is_exact: bool = True
    """False where that is a guess."""
    joined: tuple[Instruction, ...] = ()
    """Collectives that run as one with `instruction`, as XLA's combiner leaves them."""

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """All that runs then: one op, or collectives that are one."""
        return (self.instruction, *self.joined)

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class Simulation(InNotebooks):
    """What one step takes: seconds, and bytes of one device.

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT y = f32[8] negate(x)\\n}"
    >>> [event.instruction.name for event in hs.simulate(hs.load(text)).critical_path]
    ['y']
    """

    time_s: float
    peak_memory_bytes: int
    """Per device, by liveness."""
    timeline: tuple[Event, ...]
    """Events of the entry computation, by start."""
    machine: Machine
    compute_s: float
    """Time the compute stream is busy; the communication stream likewise."""
    comm_s: float
    memory: tuple[tuple[float, int], ...]
    """(time, bytes alive) at each change, for one device."""
    breakdown: StepBreakdown
    """Where the time goes."""
    host_memory_bytes: int = 0
    """Per device, in its host's memory at the worst moment."""
    guessed_loops: tuple[GuessedLoop, ...] = ()
    """Loops whose trip count nobody can tell: the times are guesses then."""
    host_s: float = 0.0
    """Time the stream between device and host is busy."""
    module: Module = field(kw_only=True, repr=False)
    """What was simulated."""
    whole: Module | None = field(default=None, kw_only=True, repr=False)
    """The program before it was partitioned, where that is known."""

    @cached_property
    def critical_path(self) -> tuple[Event, ...]:
        """The chain of events that makes the step as long as it is, first to last."""
        chain: list[Event] = []
        event = max(self.timeline, key=lambda e: e.end, default=None)
        while event is not None:
            chain.append(event)
            event = event.cause
        return tuple(reversed(chain))

    @property
    def exposed_comm_s(self) -> float:
        """Communication, with the host, too, that no computing hides."""
        return self.breakdown.exposed_s

    @property
    def waiting_s(self) -> float:
        """In which the device waits for the host to launch an op (`runtime="eager"`)."""
        return self.breakdown.waiting_s

    @cached_property
    def figures(self) -> StepFigures:
        """Utilization of the devices, what bounds the step, and how far off such predictions were."""
        if self.whole is not None:
            work = WholeStep.of(self.whole)
        else:
            work = {dtype: self.machine.num_devices * n for dtype, n in hardware_flops(self.module).items()}
        return StepFigures.of(work, self.time_s, self.machine, self.breakdown)

    def save_trace(self, path: Any) -> None:
        """Write a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open; whole or not at all."""
        rows = [TraceRow(f"one device of {self.machine.name}", streams_of(self.timeline))]
        memory = (TraceLevel(0, when, nbytes) for when, nbytes in self.memory)
        write_whole(path, trace_text(rows, map(_slice, self.timeline), memory))

    def __str__(self) -> str:
        return f"{self.headline}\n{self.figures}"

    @property
    def headline(self) -> str:
        """Time and memory, in a line."""
        talking = self.comm_s + self.host_s
        hidden = 1 - self.exposed_comm_s / talking if talking else 1.0
        guess = "~" if self.guessed_loops else ""
        return (
            f"{guess}{self.time_s * 1e3:.3f} ms on {self.machine.name}: {self.compute_s * 1e3:.3f} computing,"
            f" {self.comm_s * 1e3:.3f} communicating"
            + (f", {self.host_s * 1e3:.3f} to the host and back" if self.host_s else "")
            + f" ({min(1.0, max(0.0, hidden)):.0%} hidden),"
            f" peak {self.peak_memory_bytes / 1e6:,.1f} MB"
            + (f", {self.host_memory_bytes / 1e6:,.1f} MB on the host" if self.host_memory_bytes else "")
            + "".join(f"; {loop}" for loop in self.guessed_loops)
        )


def _slice(event: Event) -> TraceSlice:
    inst = event.instruction
    details: dict[str, Any] = {"shape": str(inst.shape), "location": inst.location, "op_name": inst.op_name}
    if event.nbytes:
        details["bytes received"] = event.nbytes
    if event.joined:
        details["joined with it"] = ", ".join(op.name for op in event.joined)
    if event.trips != 1:
        details["trips"] = event.trips
    if not event.is_exact:
        details["trips"] = f"{event.trips}, a guess"
    lane, name = STREAMS.index(event.stream), f"{inst.opcode} {inst.name}"
    return TraceSlice(0, lane, name, event.start, event.seconds, details)
