"""`hs.simulate`: one run of a partitioned program on a machine, with computing and communication side by side.

Floor: cost.  All devices run the same program, so one stands for all: a compute stream and a communication stream, each
taking the first op, in program order, whose operands are there (as a latency-hiding scheduler would).  A loop is one
event: the time of one trip, times the trips; no overlap from trip to trip.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from hlosharding.cost import machines
from hlosharding.cost.host_offload import leaves_on_host
from hlosharding.cost.machine import Machine
from hlosharding.cost.model import NOTHING_STATED, CostReport, cost
from hlosharding.cost.simulation import Simulation
from hlosharding.cost.timeline import Event, Stream
from hlosharding.cost.topology import Topology, machine_of
from hlosharding.deep_stack import deep_stack
from hlosharding.ir import (
    COLLECTIVES,
    Computation,
    Instruction,
    Module,
    Trips,
    trip_count,
    while_parts,
    with_trip_counts,
)
from hlosharding.spmd import devices_of, module_of

_ONCE = Trips(1, True)


@deep_stack
def simulate(
    program: Any,
    machine: Machine | Topology | None = None,
    *,
    trips: Mapping[str, int] = NOTHING_STATED,
    combine: bool = True,
) -> Simulation:
    """Simulate a partitioned program (a Partitioned, or any local Module) on a machine preset.

    `trips`, `combine`: as of `cost`.  Collectives that XLA's combiner joins begin when the operands of all are there.

    >>> import hlosharding.ir as ir
    >>> b = ir.Builder("m", num_partitions=8)
    >>> main = b.computation("main")
    >>> x = main.parameter(0, ir.Shape.array("f32", (4096, 4096)))
    >>> y = main.add("dot", x.shape, (x, x), dot_dims=ir.DotDims((1,), (0,)))
    >>> z = main.add("all-reduce", x.shape, (x,), channel_id=1)  # of all partitions
    >>> _ = main.add("tuple", ir.Shape.tuple((y.shape, z.shape)), (y, z))
    >>> found = simulate(b.finish(main))
    >>> found.time_s < found.compute_s + found.comm_s  # they overlap
    True
    """
    module = with_trip_counts(module_of(program), trips)
    machine = machine_of(machine) if machine else machines.h100(devices_of(module).count)
    report = cost(module, machine, combine=combine)
    run = _Run(module, report)
    timeline, end = run.computation(module.entry, 0.0)
    return Simulation(
        time_s=end,
        peak_memory_bytes=report.peak_memory_bytes,
        timeline=tuple(sorted(timeline, key=lambda e: e.start)),
        machine=machine,
        compute_s=report.compute_s,
        comm_s=report.comm_s,
        memory=tuple(_memory(module, timeline)),
        host_memory_bytes=report.host_memory_bytes,
        guessed_loops=report.guessed_loops,
    )


class _Run:
    """Executes computations: each stream takes the first op, in program order, whose operands are there."""

    def __init__(self, module: Module, report: CostReport) -> None:
        self.module = module
        self.rows = {row.instruction: row for row in report.rows}
        named = {op.name: op for op in self.rows} if report.combined else {}
        self.joined: dict[Instruction, tuple[Instruction, ...]] = {}
        """Of the first of collectives that run as one, the others."""
        for group in report.combined:
            first, *others = (named[one.name] for one in group)
            self.joined[first] = tuple(others)

    def computation(self, computation: Computation, start: float) -> tuple[list[Event], float]:
        """Events of one execution that starts at `start`, and when all of it is done."""
        schedule = _Schedule(computation, self, start)
        schedule.run()
        return schedule.events, max((e.end for e in schedule.events), default=start)

    def price(self, inst: Instruction) -> tuple[float, Stream, Trips]:
        """(seconds, stream, trips) of one execution of an op, what it calls included."""
        if inst.opcode == "while":
            body, condition = while_parts(inst)
            trips = trip_count(inst)
            once = self.computation(body, 0.0)[1] + self.computation(condition, 0.0)[1]
            return trips.count * once, "compute", trips
        if inst.opcode in ("conditional", "call"):
            return max(self.computation(c, 0.0)[1] for c in inst.called), "compute", _ONCE
        row = self.rows.get(inst)
        if row is None or not row.executions:
            return 0.0, "compute", _ONCE
        seconds = row.time_s + sum(self.rows[other].time_s for other in self.joined.get(inst, ()))
        return seconds / row.executions, "communication" if inst.opcode in COLLECTIVES else "compute", _ONCE

    def received(self, inst: Instruction) -> float:
        """Bytes received in one execution, by what runs as one with it, too."""
        row = self.rows.get(inst)
        if row is None or not row.executions:
            return 0.0
        others = sum(self.rows[other].comm_bytes for other in self.joined.get(inst, ()))
        return (row.comm_bytes + others) / row.executions


class _Schedule:
    """One execution of one computation, event by event."""

    def __init__(self, computation: Computation, run: _Run, start: float) -> None:
        self.ops, self.run_, self.now = computation.instructions, run, start
        self.place = {inst: n for n, inst in enumerate(self.ops)}
        self.missing = [len(set(inst.operands)) for inst in self.ops]
        for first, others in run.joined.items():
            if first in self.place:
                self._join(first, others)
        self.latest: dict[Instruction, Event | None] = {}
        """Of a finished op: the event that its users had to wait for."""
        self.ready: dict[Stream, list[int]] = {"compute": [], "communication": []}
        self.busy: dict[Stream, Event | None] = {"compute": None, "communication": None}
        self.before: dict[Stream, Event | None] = {"compute": None, "communication": None}
        self.running: list[tuple[float, int, Event]] = []
        self.prices: dict[int, tuple[float, Stream, Trips]] = {}
        self.events: list[Event] = []

    def _join(self, first: Instruction, others: Sequence[Instruction]) -> None:
        """Collectives that are one stand at the place of the first, and wait for the operands of all."""
        for other in others:
            self.missing[self.place[first]] += self.missing[self.place[other]]
            self.place[other] = self.place[first]

    def run(self) -> None:
        for number, inst in enumerate(self.ops):
            if not inst.operands:
                self._arrive(number)
        self._start()
        while self.running:
            self.now, number, event = heappop(self.running)
            self.busy[event.stream] = None
            self._finish(number, event)
            self._start()

    def _arrive(self, number: int) -> None:
        """All operands of an op are there."""
        inst = self.ops[number]
        price = self.run_.price(inst)
        if price[0] == 0.0:
            self._finish(number, max(self._waited(inst), key=lambda e: e.end, default=None))
        else:
            self.prices[number] = price
            heappush(self.ready[price[1]], number)

    def _start(self) -> None:
        for stream, waiting in self.ready.items():
            if self.busy[stream] is None and waiting:
                number = heappop(waiting)
                seconds, _, trips = self.prices[number]
                inst = self.ops[number]
                event = Event(
                    inst,
                    stream,
                    self.now,
                    self.now + seconds,
                    self._cause(inst, stream),
                    self.run_.received(inst),
                    *trips,
                    self.run_.joined.get(inst, ()),
                )
                self.busy[stream] = self.before[stream] = event
                self.events.append(event)
                heappush(self.running, (event.end, number, event))

    def _cause(self, inst: Instruction, stream: Stream) -> Event | None:
        before = self.before[stream]
        return max([*self._waited(inst), *([before] if before else [])], key=lambda e: e.end, default=None)

    def _waited(self, inst: Instruction) -> list[Event]:
        """What made the operands."""
        ops = (inst, *self.run_.joined.get(inst, ()))
        return [e for op in ops for o in op.operands if (e := self.latest[o]) is not None]

    def _finish(self, number: int, event: Event | None) -> None:
        """An op is done: `event` is what its users had to wait for."""
        first = self.ops[number]
        for inst in (first, *self.run_.joined.get(first, ())):
            self.latest[inst] = event
        for inst in (first, *self.run_.joined.get(first, ())):
            for user in inst.users:
                place = self.place[user]
                self.missing[place] -= 1
                if self.missing[place] == 0:
                    self._arrive(place)


def _memory(module: Module, timeline: list[Event]) -> Iterator[tuple[float, int]]:
    """Bytes alive on the device over time: a value lives from the start of its op to the end of its last user."""
    ends, away = {op: event for event in timeline for op in event.instructions}, leaves_on_host(module)
    alive = sum(p.shape.byte_size for p in module.entry.parameters)
    last = max((e.end for e in timeline), default=0.0)
    changes: list[tuple[float, int]] = []
    for op, event in ends.items():
        gone = away.get(op, ())
        size = sum(leaf.byte_size for n, leaf in enumerate(op.shape.leaves) if n not in gone)
        users = [ends[u].end for u in op.users if u in ends]
        is_kept = op.is_root or any(u.is_root for u in op.users)
        changes += [(event.start, size), (last if is_kept else max(users, default=event.end), -size)]
    yield 0.0, alive
    for when, change in sorted(changes):
        alive += change
        yield when, alive
