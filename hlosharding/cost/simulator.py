"""`hs.simulate`: one run of a partitioned program on a machine, with computing and communication side by side.

Floor: cost.  All devices run the same program, so one stands for all: a compute stream, a communication stream and one
of moves to the host's memory and back, each taking the first op, in program order, whose operands are there (as a
latency-hiding scheduler would).  A loop is one event.  Its trips overlap as XLA's collective pipeliner lets them: what
the next trip needs of no trip (the weights of the next layer) is fetched while this one computes, and what this one
made is reduced while the next one does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from hlosharding.cost.host_offload import leaves_on_host
from hlosharding.cost.machine import Machine, Overlap, Runtime
from hlosharding.cost.memory import operand_leaves
from hlosharding.cost.model import NOTHING_STATED, CostReport, cost
from hlosharding.cost.simulation import STREAMS, Event, Simulation, Stream
from hlosharding.cost.step_breakdown import Part, Span, StepBreakdown, find_exposed
from hlosharding.cost.tasks import Tasks, Times, run_first_ready
from hlosharding.cost.topology import Topology
from hlosharding.cost.work import CONTROL
from hlosharding.deep_stack import deep_stack
from hlosharding.ir import (
    Computation,
    Instruction,
    Module,
    Trips,
    collective_kind,
    memory_of,
    trip_count,
    while_parts,
    with_trip_counts,
)
from hlosharding.once import remembered
from hlosharding.spmd import module_of

OVERLAPS: Mapping[str, Overlap] = {
    "all-reduce": "gradients",
    "reduce-scatter": "gradients",
    "all-gather": "prefetch",
    "collective-permute": "collective matmul",
    **dict.fromkeys(("all-to-all", "ragged-all-to-all", "collective-broadcast"), "exchanges"),
}
"""By kind of a collective, which overlap it is that `Machine.synchronous` switches off."""
_ONCE = Trips(1, True)
_COMPUTING = STREAMS.index("compute")
_MOST_HANDED_ON = 16
"""Tasks that an op without time names to its readers in its place: a tuple of a thousand values that a thousand ops
read would have them name a million."""


@deep_stack
def simulate(
    program: Any,
    machine: Machine | Topology | None = None,
    *,
    trips: Mapping[str, int] = NOTHING_STATED,
    combine: bool = True,
    runtime: Runtime | None = None,
) -> Simulation:
    """Simulate a partitioned program (a Partitioned, or any local Module) on a machine preset.

    `trips`, `combine`, `runtime`: as of `cost`.  Collectives that XLA's combiner joins begin when the operands of all
    are there.  Run eagerly, an op begins when the host has launched it, too: it does one after the other, ahead of the
    device where kernels are longer than launches.  An all-reduce that no other joins keeps the device then.

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
    whole = getattr(program, "whole_program", None)
    return simulate_priced(module, cost(module, machine, combine=combine, runtime=runtime), whole)


@deep_stack
def simulate_priced(module: Module, report: CostReport, whole: Module | None = None) -> Simulation:
    """The same of a module that is priced already, at those prices.  `whole`: the program before it was partitioned.

    >>> import hlosharding as hs
    >>> module = hs.load("HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT y = f32[8] negate(x)\\n}")
    >>> simulate_priced(module, cost(module)).time_s == simulate(module).time_s
    True
    """
    schedule, times = _ProgramRun(module, report).schedule(module.entry)
    timeline = schedule.events(times)
    return Simulation(
        time_s=times.makespan,
        peak_memory_bytes=report.peak_memory_bytes,
        timeline=tuple(timeline),
        machine=report.machine,
        compute_s=report.compute_s,
        comm_s=report.comm_s,
        host_s=report.host_s,
        memory=tuple(_alive_over_time(module, timeline)),
        breakdown=schedule.breakdown(times),
        host_memory_bytes=report.host_memory_bytes,
        guessed_loops=report.guessed_loops,
        module=module,
        whole=whole,
    )


@deep_stack
def step_seconds(module: Module, report: CostReport) -> float:
    """How long a module that is priced already takes, where nobody asks for more.

    >>> import hlosharding as hs
    >>> module = hs.load("HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT y = f32[8] negate(x)\\n}")
    >>> step_seconds(module, cost(module)) == simulate(module).time_s
    True
    """
    return _ProgramRun(module, report).schedule(module.entry)[1].makespan


@deep_stack
def execute_priced(module: Module, report: CostReport) -> Executed:
    """The same, and where the time goes."""
    return _ProgramRun(module, report).execute(module.entry)


class Executed(NamedTuple):
    """One execution of a computation, or a whole loop."""

    seconds: float
    breakdown: StepBreakdown


class _Price(NamedTuple):
    """Of one execution of an op, what it calls included."""

    seconds: float
    stream: Stream = "compute"
    bound: Part | StepBreakdown = "flops_s"
    trips: Trips = _ONCE


_NOTHING = _Price(0.0)


class _ProgramRun:
    """Executes computations."""

    def __init__(self, module: Module, report: CostReport) -> None:
        self.module, self.machine, self.dispatch = module, report.machine, report.machine.dispatch_seconds
        self.rows = {row.instruction: row for row in report.rows if row.time_s or _kind(row.instruction)}
        """Of what takes time, and of all collectives."""
        named = {op.name: op for op in self.rows} if report.combined else {}
        self.joined: dict[Instruction, tuple[Instruction, ...]] = {}
        """Of the first of collectives that run as one, the others."""
        for group in report.combined:
            first, *others = (named[one.name] for one in group)
            self.joined[first] = tuple(others)

    def schedule(self, computation: Computation) -> tuple[_TaskGraph, Times]:
        """One execution as tasks, and when they run."""
        made = _TaskGraph(computation, self)
        return made, run_first_ready(made.tasks)

    @remembered
    def execute(self, computation: Computation) -> Executed:
        """One execution."""
        made, times = self.schedule(computation)
        return Executed(times.makespan, made.breakdown(times))

    def price_of(self, inst: Instruction) -> _Price:
        """Of an op."""
        row = self.rows.get(_started(inst))
        if row is not None:
            seconds = row.time_s + sum([self.rows[other].time_s for other in self.joined.get(inst, ())])
            return _Price(seconds / row.executions, _stream(inst), row.part) if seconds else _NOTHING
        if inst.opcode == "while":
            return self._loop(inst, trip_count(inst))
        if inst.opcode in ("conditional", "call", "async-start"):
            longest = max((self.execute(each) for each in inst.called), key=lambda found: found.seconds)
            return _Price(longest.seconds, bound=longest.breakdown)
        return _NOTHING

    def _loop(self, inst: Instruction, trips: Trips) -> _Price:
        body, condition = while_parts(inst)
        found, asked = self._trips(body, trips.count), self.execute(condition)
        seconds = found.seconds + trips.count * asked.seconds
        return _Price(seconds, "compute", found.breakdown + asked.breakdown * trips.count, trips)

    @remembered
    def _trips(self, body: Computation, count: int) -> Executed:
        """So many: what a second trip adds to the first, each further one adds."""
        first = self.execute(body)
        # On one stream nothing overlaps.
        if count < 2 or not (self.dispatch or any(_stream(inst) != "compute" for inst in body.instructions)):
            return Executed(count * first.seconds, first.breakdown * count)
        two = _TaskGraph(body, self, trips=2)
        times = run_first_ready(two.tasks)
        # What the second trip does while the first one waits, all further ones cannot do there, too.
        further = max(times.makespan - first.seconds, *two.busy_seconds())
        added = two.breakdown(times).beyond(first.breakdown, further)
        return Executed(first.seconds + (count - 1) * further, first.breakdown + added * (count - 1))

    def received_bytes(self, inst: Instruction) -> float:
        """Bytes received in one execution, by what runs as one with it, too."""
        row = self.rows.get(_started(inst))
        if row is None or not row.executions:
            return 0.0
        others = sum(self.rows[other].comm_bytes for other in self.joined.get(inst, ()))
        return (row.comm_bytes + others) / row.executions


def _started(inst: Instruction) -> Instruction:
    """The collective that an asynchronous op wraps; any other op itself."""
    if inst.opcode == "async-start" and collective_kind(inst.called[0].root.opcode):
        return inst.called[0].root
    return inst


def _kind(inst: Instruction) -> str:
    """The collective that an op is, starts or wraps; "" of any other."""
    return collective_kind(_started(inst).opcode) or ""


def _stream(inst: Instruction) -> Stream:
    if _kind(inst):
        return "communication"
    return "compute" if memory_of(inst) is None else "host"


class _TaskGraph:
    """Executions of one computation as tasks: an op each, collectives that run as one at the place of the first.

    `trips`: executions one after the other, where the computation is the body of a loop.
    """

    def __init__(self, computation: Computation, run: _ProgramRun, trips: int = 1) -> None:
        self.ops, self.run = computation.instructions, run
        self.place = {inst: n for n, inst in enumerate(self.ops)}
        self.firsts = {other: first for first, others in run.joined.items() for other in others if first in self.place}
        """Of collectives that run as one with an earlier one: which."""
        self.prices = [
            run.price_of(inst) if (inst in run.rows or inst.opcode in CONTROL) and inst not in self.firsts else _NOTHING
            for inst in self.ops
        ]
        self.tasks = Tasks()
        self.before: Mapping[Instruction, Sequence[int]] = {}
        """Of each op the tasks of the last trip that its readers wait for: its own, or, where it takes no time, those
        that it waits for itself, if these are few."""
        for _ in range(trips):
            self.before = self._add_trip()
        self.count = len(self.tasks.seconds)
        timed = ((n, _started(inst)) for n, inst in enumerate(self.ops) if self.prices[n].seconds)
        self.launched = [n for n, started in timed if started.opcode not in CONTROL]
        for trip in range(trips if run.dispatch else 0):
            for number in self.launched:
                self._launch(trip * len(self.ops) + number)

    def _lane(self, inst: Instruction, stream: Stream) -> int:
        """Of a stream.  Run eagerly, an all-reduce that no other joins keeps the device: what calls it waits for it."""
        machine = self.run.machine
        waits = machine.runtime == "eager" and inst.opcode == "all-reduce" and inst not in self.run.joined
        return _COMPUTING if waits or OVERLAPS.get(_kind(inst)) in machine.synchronous else STREAMS.index(stream)

    def _launch(self, number: int) -> None:
        """The host's part of a task, which that waits for."""
        launch = self.tasks.add(self.run.dispatch, (len(STREAMS),), ())
        self.tasks.waits[number] = (*self.tasks.waits[number], launch)

    def busy_seconds(self) -> list[float]:
        """Of one execution, by stream, and of the host."""
        busy = [0.0] * len(STREAMS)
        for inst, price in zip(self.ops, self.prices, strict=True):
            busy[self._lane(inst, price.stream)] += price.seconds
        return [*busy, len(self.launched) * self.run.dispatch]

    def _add_trip(self) -> Mapping[Instruction, Sequence[int]]:
        """Tasks of one more execution."""
        first, tasks, count = len(self.tasks.seconds), self.tasks, len(self.ops)
        tasks.seconds += [price.seconds for price in self.prices]
        tasks.lanes += [()] * count
        tasks.waits += [()] * count
        here: dict[Instruction, Sequence[int]] = {}
        for number, (inst, price) in enumerate(zip(self.ops, self.prices, strict=True), first):
            if inst in self.firsts:
                here[inst] = here[self.firsts[inst]]
                continue
            waits = self._waits(inst, first, here)
            # One that was named in front of its place (see `_waits`) must keep that task, though it takes no time.
            if price.seconds or len(waits) > _MOST_HANDED_ON or inst in here:
                here[inst], tasks.waits[number] = (number,), waits
                if price.seconds:
                    tasks.lanes[number] = (self._lane(inst, price.stream),)
            else:
                here[inst] = waits
        return here

    def _waits(self, inst: Instruction, first: int, here: dict[Instruction, Sequence[int]]) -> Sequence[int]:
        """The tasks that an op waits for, of its trip and of the one before."""
        operands = inst.operands
        if inst in self.run.joined:
            operands = [o for op in (inst, *self.run.joined[inst]) for o in op.operands]
            # What a joined one reads may stand behind the first of them: its task gets its number before it is made.
            for later in operands:
                if later not in here:
                    place = self.place[self.firsts.get(later, later)]
                    here[later] = here.setdefault(self.ops[place], (first + place,))
        found = [waits for operand in operands if (waits := here[operand])]
        if self.before:
            found += [self.before[self._given(inst)] for operand in operands if operand.opcode == "parameter"]
        return found[0] if len(found) == 1 else tuple(dict.fromkeys(chain(*found))) if found else ()

    def _given(self, reader: Instruction) -> Instruction:
        """What the trip before hands on to a reader of the loop's carry: the element that it takes."""
        root = reader.computation.root
        is_element = reader.opcode == "get-tuple-element" and root.opcode == "tuple"
        return root.operands[reader.tuple_index] if is_element else root

    def events(self, times: Times) -> list[Event]:
        """Of what takes time, by start: what a task waited for comes before it."""
        made: dict[int, Event] = {}
        timed = [number for number, held in enumerate(self.tasks.lanes[: self.count]) if held]
        for number in sorted(timed, key=lambda n: (times.start[n], times.end[n])):
            inst, price = self.ops[number], self.prices[number]
            cause = made.get(times.cause[number])
            span = times.start[number], times.end[number]
            others = self.run.joined.get(inst, ())
            made[number] = Event(inst, price.stream, *span, cause, self.run.received_bytes(inst), *price.trips, others)
        return list(made.values())

    def breakdown(self, times: Times) -> StepBreakdown:
        """Where the time of all executions goes."""
        inside = StepBreakdown()
        seconds: defaultdict[Part, float] = defaultdict(float)
        spans: list[list[Span]] = [[] for _ in STREAMS]
        for number, held in enumerate(self.tasks.lanes[: self.count]):
            if held:
                bound, talking = self.prices[number % len(self.ops)].bound, None
                if isinstance(bound, StepBreakdown):
                    inside += bound
                elif held[0] == _COMPUTING:
                    seconds[bound] += self.tasks.seconds[number]
                else:
                    talking = bound
                spans[held[0]].append((times.start[number], times.end[number], talking))
        computing, *others = spans
        for part, more in find_exposed(computing, others, times.makespan).items():
            seconds[part] += more
        return inside + StepBreakdown(**seconds)


def _alive_over_time(module: Module, timeline: Sequence[Event]) -> Iterator[tuple[float, int]]:
    """Bytes alive on the device over time: a value lives from the start of its op to the end of its last user."""
    alive = sum(life.nbytes for life in given_lifetimes(module, 0.0))
    changes: list[tuple[float, int]] = []
    for life in lifetimes(module, timeline):
        changes += [(life.start, life.nbytes), (life.end, -life.nbytes)]
    yield 0.0, alive
    # Of one moment, what is freed comes first: a change below zero is sorted before one above.
    for when, change in sorted(changes):
        alive += change
        yield when, alive


class Lifetime(NamedTuple):
    """A value on the device, and the seconds between which it is there."""

    instruction: Instruction
    nbytes: int
    start: float
    end: float


def lifetimes(module: Module, timeline: Sequence[Event]) -> Iterator[Lifetime]:
    """Of every value that an event of the timeline makes; parameters have `given_lifetimes`.

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT y = f32[8] negate(x)\\n}"
    >>> module = hs.load(text)
    >>> [(life.instruction.name, life.nbytes) for life in lifetimes(module, hs.simulate(module).timeline)]
    [('y', 32)]
    """
    ends, away = {op: event for event in timeline for op in event.instructions}, leaves_on_host(module)
    last = max((e.end for e in timeline), default=0.0)
    needed = _needed_until({op: event.end for op, event in ends.items()}, module.entry, last)
    for op, event in ends.items():
        gone = {*away.get(op, ()), *operand_leaves(op, sum(len(o.shape.leaves) for o in op.operands))}
        size = sum(leaf.byte_size for n, leaf in enumerate(op.shape.leaves) if n not in gone)
        yield Lifetime(op, size, event.start, needed[op])


def given_lifetimes(module: Module, end: float) -> list[Lifetime]:
    """Of the parameters, which are there all the time, but for those that lie on the host.

    >>> import hlosharding as hs
    >>> module = hs.load("HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT y = f32[8] negate(x)\\n}")
    >>> [(life.instruction.name, life.nbytes) for life in given_lifetimes(module, 1.0)]
    [('x', 32)]
    """
    away = leaves_on_host(module)
    return [Lifetime(p, p.shape.byte_size, 0.0, end) for p in module.entry.parameters if p not in away]


def _needed_until(ends: Mapping[Instruction, float], entry: Computation, last: float) -> dict[Instruction, float]:
    """When the last reader of a value is done; what takes no time is another name of what it reads."""
    needed: dict[Instruction, float] = {}
    for op in reversed(entry.instructions):
        readers = (ends[user] if user in ends else needed[user] for user in op.users if user.computation is entry)
        needed[op] = last if op.is_root else max(readers, default=ends.get(op, 0.0))
    return needed
