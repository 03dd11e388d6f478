"""Which stage of a pipeline, and which pass, each instruction of one microbatch's program belongs to.

Floor: schedule.  Data flow alone does not tell a backward pass from a forward one; JAX writes `transpose(` into names
of ops that go backwards.  Forward ops are cut in program order into stages of equal time, where little crosses; a
backward op goes where what it reads lies; what runs once stays with the sums that it reads.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from types import MappingProxyType
from typing import Literal

from hlosharding.cost import Machine, cost
from hlosharding.errors import ScheduleError
from hlosharding.ir import Computation, Instruction, Module, trip_count
from hlosharding.schedule.cutting.microbatched import MADE_WHERE_READ, Microbatched, error_at, reads_of
from hlosharding.schedule.cutting.said_stages import place_as_said, said_stage_of, source_of
from hlosharding.schedule.cutting.saved_values import CHEAP, LIGHT

Phase = Literal["opening", "forward", "backward", "weights", "after"]
"""Passes of each microbatch: ahead of all, for sums that all need; forward; backward, and of that perhaps apart what no
other stage waits for, gradients of weights.  What runs once, behind."""

NOWHERE: Mapping[str, int] = MappingProxyType({})
_SLACK = 0.1
"""How much longer than the mean a stage may be so that less crosses.  Layers of one size end where both are best: there
0 and 0.4 give the same.  Of chains of products of unequal widths, in two and four stages, half as much makes the step 0
to 3 % longer, twice as much 0 to 12 %, though but a sixteenth may cross then."""


@dataclass(frozen=True)
class Placement:
    """Phase and stage of each instruction that has one; the others are the same for all microbatches, or made of a
    microbatch's inputs by cheap ops, and are computed where they are read."""

    phase: Mapping[Instruction, Phase]
    stage: Mapping[Instruction, int]
    home: Mapping[Instruction, int]
    """Of each parameter, and of each sum that is made ahead, the stage where it lies."""
    sources: Mapping[str, int]
    """As of `Schedule.stages`."""


def place_stages(
    program: Microbatched,
    num_stages: int,
    seconds: Mapping[Instruction, float],
    *,
    splits_backward: bool = False,
    wanted: Mapping[str, int] = NOWHERE,
    said: Mapping[str, int] = NOWHERE,
    layers: Sequence[int] = (),
) -> Placement:
    """Cut a program into stages.  `seconds`: what each op takes (`seconds_of`).  `splits_backward`: with gradients of
    weights in passes of their own.  `wanted`: of parameters, by name, the stage where they should lie, if program order
    allows it.  `said`: of functions, or nodes, the stage (`said_stages`), in place of program order.  `layers`: how
    many parts of equal time each stage has; by default one.

    Raises ScheduleError where it has not so many stages, or where the backward pass cannot be split.
    """
    found = _Placing(program, layers or (1,) * num_stages, seconds, wanted, said).place()
    return _split_off_weights(program, found) if splits_backward else found


def forward_in_order(program: Microbatched) -> list[Instruction]:
    """Forward ops in the order in which stages take them."""
    placing = _Placing(program, (1,), {}, NOWHERE, NOWHERE)
    placing.find_phases()
    return [inst for inst in placing.ops_of("forward") if inst not in placing.late]


@dataclass
class _Placing:
    program: Microbatched
    layers: Sequence[int]
    seconds: Mapping[Instruction, float]
    wanted: Mapping[str, int]
    said: Mapping[str, int]

    def __post_init__(self) -> None:
        self.count, self.entry = len(self.layers), self.program.module.entry
        self.phase: dict[Instruction, Phase] = {}
        self.stage: dict[Instruction, int] = {}
        self.read_at: defaultdict[Instruction, set[int]] = defaultdict(set)
        """Stages at which a forward value, or a parameter, lies: where it is made, and where forward ops read it."""
        self.late: set[Instruction] = set()
        """Light forward ops that stand behind the first backward one: metrics, and what backward ops read beside.
        They stay where the last of what they read is made; others go with program order."""
        self.sources: dict[Instruction, tuple[Instruction, ...]] = {}
        """Of what is made where it is read the parameters, and the early sums, it is made of."""

    def place(self) -> Placement:
        self.find_phases()
        self._place_forward()
        self._check_stages()
        self._join_last_passes()
        for inst in self.ops_of("backward"):
            if inst not in self.stage:
                self.stage[inst] = self._backward_stage(inst)
        for inst in self.ops_of("after"):
            self.stage[inst] = self._stage_behind(inst)
        return Placement(self.phase, self.stage, self._find_homes(), self._find_sources() | dict(self.said))

    def ops_of(self, phase: Phase) -> Iterator[Instruction]:
        return (inst for inst in self.entry.instructions if self.phase.get(inst) == phase)

    def find_phases(self) -> None:
        has_begun = False
        for inst in self.entry.instructions:
            # Whoever reads a tuple reads what it is made of (`reads_of`): it needs no place of its own.
            if inst.opcode == "tuple":
                continue
            if inst in self.program.opening or inst.opcode == "parameter":
                self.sources[inst] = (inst,)
            elif inst in self.program.after:
                self.phase[inst] = "after"
            elif self._is_made_where_read(inst):
                found = dict.fromkeys(source for operand in reads_of(inst) for source in self.sources.get(operand, ()))
                self.sources[inst] = tuple(found)
            else:
                self.phase[inst] = self._pass(inst)
                has_begun |= self.phase[inst] == "backward"
                if has_begun and self.phase[inst] == "forward" and inst.opcode in LIGHT:
                    self.late.add(inst)

    def _is_made_where_read(self, inst: Instruction) -> bool:
        """Is it the same for all microbatches, or made of a microbatch's inputs by cheap ops alone?"""
        if inst not in self.program.varying or inst in self.program.ahead:
            return True
        # What is said to be in a stage runs there, cheap as it may be: else a stage of cheap ops alone would be
        # refused.
        if inst.opcode not in MADE_WHERE_READ and said_stage_of(inst, self.said) is not None:
            return False
        is_cheap = inst.opcode in CHEAP or (inst.opcode in LIGHT and inst in self.read_back)
        return is_cheap and inst not in self.given and all(operand in self.sources for operand in reads_of(inst))

    @cached_property
    def read_back(self) -> frozenset[Instruction]:
        """What only ops with a backward op's name are made of; a mask may be scaled for a gradient first of all."""
        forward: set[Instruction] = set()
        for inst in reversed(self.entry.instructions):
            is_once = inst in self.program.after or inst in self.program.opening or inst.is_root
            if inst in forward or not (is_once or inst.is_backward):
                forward.update((inst, *inst.operands))
        return frozenset(inst for inst in self.entry.instructions if inst not in forward)

    @cached_property
    def given(self) -> frozenset[Instruction]:
        """What the caller gets, and terms of sums: one part makes them."""
        return frozenset((*self.entry.root.operands, *(inst.operands[0] for inst in self.program.sums)))

    def _pass(self, inst: Instruction) -> Literal["forward", "backward"]:
        """What reads nothing of the forward pass is no part of the backward one, whatever its name."""
        before = list(reads_of(inst))
        # A loop that is named as a backward one, but reads nothing of the forward pass, is forward.  So are its
        # elements, which have its name and do read something forward.
        if inst.opcode == "get-tuple-element" and before[0] in self.phase:
            return "backward" if self._is_gradient(before[0]) else "forward"
        if any(map(self._is_gradient, before)):
            return "backward"
        reads_forward = any(self.phase.get(operand) == "forward" for operand in before)
        return "backward" if inst.is_backward and reads_forward else "forward"

    # Forward

    def _place_forward(self) -> None:
        forward = list(self.ops_of("forward"))
        found = place_as_said(forward, self.said) if self.said else self._place_by_time(forward)
        for inst in forward:
            self.stage[inst] = found[inst] if inst in found else self._stage_of_last(inst)
            self.read_at[inst].add(self.stage[inst])
            for value in self._values_read(inst):
                self.read_at[value].add(self.stage[inst])

    def _place_by_time(self, forward: Sequence[Instruction]) -> dict[Instruction, int]:
        """In program order, stages of equal time; without those that stay where what they read is made."""
        paced = [inst for inst in forward if inst not in self.late]
        starts = self._choose_starts(paced)
        in_order = ((bisect_left(starts, number + 1), inst) for number, inst in enumerate(paced))
        # A loop's carry does not travel: its elements are taken where it runs, wherever the next stage begins.
        return {inst: stage for stage, inst in in_order if inst.opcode != "get-tuple-element"}

    def _values_read(self, inst: Instruction) -> Iterator[Instruction]:
        """Parameters among them in place of what is made of these where it is read."""
        for operand in reads_of(inst):
            yield from self.sources.get(operand, (operand,))

    def _check_stages(self) -> None:
        """Raises ScheduleError where a stage has nothing to do."""
        used = {self.stage[inst] for inst in self.ops_of("forward") if inst.opcode not in MADE_WHERE_READ}
        if len(used) < self.count and self.said:
            empty = next(stage for stage in range(self.count) if stage not in used)
            names = ", ".join(repr(name) for name, stage in self.said.items() if stage == empty)
            what = f"nothing runs in stage {empty}: {names[:200]} is made where it is read, or beforehand"
            raise ScheduleError(what, remedy="say that it is in the stage of what reads it, and leave none out")
        if len(used) < self.count:
            longest = max(self.ops_of("forward"), key=self.seconds.__getitem__)
            trips = f", {trip_count(longest).count} trips" if longest.opcode == "while" else ""
            op = f"%{longest.name} ({longest.opcode}{trips})"
            what = f"the forward pass fills {len(used)} of {self.count} stages: {op} is in one"
            raise error_at(longest, what, "take fewer stages; a loop that is none over layers may be unrolled")

    def _join_last_passes(self) -> None:
        """The last stage goes back at once: what stands late there shares what the backward pass reads."""
        # From the end on, so that what only late ops read joins them.
        for inst in reversed(self.entry.instructions):
            is_read_forward = any(self.phase.get(user) == "forward" for user in _readers(inst))
            if inst in self.late and self.stage[inst] == self.count - 1 and not is_read_forward:
                self.phase[inst] = "backward"

    def _stage_of_last(self, inst: Instruction) -> int:
        """Where the last of what it reads is made."""
        return max((self.stage[operand] for operand in reads_of(inst) if operand in self.stage), default=0)

    def _choose_starts(self, forward: Sequence[Instruction]) -> list[int]:
        """Where, in the order of forward ops, each stage but the first begins."""
        count = len(self.layers) if self.wanted else sum(self.layers)
        # Asked before the parts are listed: a plan of a stranger may say any number of them.
        if len(forward) < count:
            remedy = "take fewer stages" if forward else "let it compute something of the batch, or take fewer stages"
            raise ScheduleError(f"{len(forward)} ops of a microbatch's forward pass for {count} stages", remedy=remedy)
        if self.wanted:  # homes are of stages
            return self._choose_starts_of(self.layers, forward)
        # All parts are cut first, so that they are cut alike however many of them a stage has.
        starts = self._choose_starts_of((1,) * sum(self.layers), forward)
        return [starts[ahead - 1] for ahead in accumulate(self.layers[:-1])]

    def _choose_starts_of(self, parts: Sequence[int], forward: Sequence[Instruction]) -> list[int]:
        """The same of parts, which take as long as these numbers say."""
        before = list(accumulate((self.seconds[inst] for inst in forward), initial=0.0))
        heavy = list(accumulate((self.seconds[inst] * (inst.opcode not in LIGHT) for inst in forward), initial=0.0))
        crossing, wanted = crossing_bytes(forward), list(self._wanted_places(forward))
        inside = self._inside_layers(forward)
        starts, total = list[int](), sum(parts)
        for number, ahead in enumerate(accumulate(parts[:-1]), start=1):
            first = (starts[-1] if starts else 0) + 1
            # Each part behind it has one op at least.
            last = len(forward) - (len(parts) - number)
            ideal, slack = before[-1] * ahead / total, before[-1] / total * _SLACK
            places = _places_wanted(wanted, number, range(first, last + 1))
            # Where barriers hold all of it one place is as good as another.
            places = [n for n in places if n not in inside] or places
            near = [n for n in places if abs(before[n] - ideal) <= slack]
            nearest = min(places, key=lambda n: abs(before[n] - ideal))
            # With the nearest place alone, behind a long loss, what a layer keeps for its backward pass went to the
            # next stage: 530B in 105 chunks was predicted at 1.18 of the measured step, now 0.93.
            # Homes of parameters may force a place far from its share: then all that free ops alone divide are as near.
            near = near or [n for n in places if n == nearest or (wanted and before[n] == before[nearest])]
            # The same place for microbatches of any size: behind the light ops that follow a heavy one.
            middle = heavy[-1] * ahead / total
            starts.append(min(near, key=lambda n: (crossing[n], abs(heavy[n] - middle), -n)))
        return starts

    def _inside_layers(self, forward: Sequence[Instruction]) -> frozenset[int]:
        """Places inside of what `jax.checkpoint` has computed again: one barrier holds its weights, so all of it would
        go back in the stage of the first of them."""
        readers: defaultdict[Instruction, list[int]] = defaultdict(list)
        for place, inst in enumerate(forward):
            for value in self._values_read(inst):
                readers[value].append(place)
        barriers = [inst for inst in self.entry.instructions if inst.opcode == "opt-barrier"]
        held = [{value for value in self._values_read(inst) if value.opcode == "parameter"} for inst in barriers]
        times = Counter(value for weights in held for value in weights)
        found: set[int] = set()
        for weights in held:
            # What several barriers hold, as tied weights, is read in several layers: it does not tell where one ends.
            places = [place for value in weights if times[value] == 1 for place in readers[value]]
            found.update(range(min(places, default=0) + 1, max(places, default=0) + 1))
        return frozenset(found)

    def _wanted_places(self, forward: Sequence[Instruction]) -> Iterator[tuple[int, int]]:
        """(place among forward ops, stage) of those that read parameters which are wanted somewhere."""
        for place, inst in enumerate(forward if self.wanted else ()):
            for value in self._values_read(inst):
                if value.name in self.wanted:
                    yield place, self.wanted[value.name]

    # Backward

    def _backward_stage(self, inst: Instruction) -> int:
        """Gradients come from behind: an op goes down to the stage where the rest of what it reads lies."""
        if inst.opcode == "get-tuple-element":
            return self._stage_of_last(inst)
        gradients = [self.stage[o] for o in reads_of(inst) if self._is_gradient(o)]
        others = [self.read_at[value] for o in reads_of(inst) for value in self._lasting_values(o)]
        if not gradients:
            return max((max(stages) for stages in others if stages), default=self.count - 1)
        found = min(gradients)
        for stages in others:
            if stages:
                # A value lies at several stages where forward ops read it: the nearest on the way down spares a send.
                found = min(found, max((stage for stage in stages if stage <= found), default=min(stages)))
        return found

    def _is_gradient(self, inst: Instruction) -> bool:
        return self.phase.get(inst) == "backward"

    def _lasting_values(self, operand: Instruction) -> tuple[Instruction, ...]:
        """Forward values and parameters of which an operand is made."""
        return () if self._is_gradient(operand) else self.sources.get(operand, (operand,))

    # What runs once

    def _stage_behind(self, inst: Instruction) -> int:
        """Where the largest parameter lies that it updates, if it reads one; else where the largest value is."""
        updated = [
            source for operand in reads_of(inst) for source in self.sources.get(operand, ()) if self.read_at[source]
        ]
        if updated:
            # The lowest stage, as in `_find_homes`: an update runs where its parameter lies.
            return min(self.read_at[max(updated, key=lambda parameter: parameter.shape.byte_size)])
        known = [operand for operand in reads_of(inst) if operand in self.stage]
        return self.stage[max(known, key=lambda operand: operand.shape.byte_size)]

    def _find_homes(self) -> dict[Instruction, int]:
        readers: defaultdict[Instruction, list[int]] = defaultdict(list)
        for inst, stage in self.stage.items():
            for operand in reads_of(inst):
                for source in self.sources.get(operand, ()):
                    readers[source].append(stage)
        lying = (*self.entry.parameters, *self.program.opening)
        return {p: min(self.read_at.get(p) or readers.get(p) or [0]) for p in lying}

    def _find_sources(self) -> dict[str, int]:
        """What is made where it is read counts to its first reader."""
        at, found = dict(self.stage), dict[str, int]()
        for inst in reversed(self.entry.instructions):
            readers = [at[user] for user in inst.users if user in at]
            if inst not in at and readers:
                at[inst] = min(readers)
            if inst in at and self.phase.get(inst, "forward") == "forward" and (name := source_of(inst)):
                found[name] = max(at[inst], found.get(name, 0))
        return dict(reversed(found.items()))


def _split_off_weights(program: Microbatched, found: Placement) -> Placement:
    """What no other stage waits for leaves the backward passes.  Raises ScheduleError where there are none."""
    phase, waited = dict(found.phase), set[Instruction]()
    for inst in reversed(program.module.entry.instructions):
        if phase.get(inst) != "backward":
            continue
        readers = [user for user in _readers(inst) if found.phase.get(user) == "backward"]
        if any(user in waited or found.stage[user] != found.stage[inst] for user in readers):
            waited.add(inst)
        else:
            phase[inst] = "weights"
    for inst in list(phase):  # a loop's results leave it where it runs
        if inst.opcode == "get-tuple-element" and phase[inst] == "weights":
            phase[inst] = phase[inst.operands[0]]
    if "weights" not in phase.values():
        raise ScheduleError("the program has no backward pass to be split", remedy="take another schedule")
    return replace(found, phase=phase)


def _readers(inst: Instruction) -> Iterator[Instruction]:
    """Who reads a value, be it by way of what is made where it is read."""
    for user in inst.users:
        if user.opcode in MADE_WHERE_READ and not user.is_root:
            yield from _readers(user)
        else:
            yield user


def seconds_of(module: Module, machine: Machine) -> Mapping[Instruction, float]:
    """What each op of the entry takes; of a loop what its computations take, all trips together."""
    own: defaultdict[Instruction, float] = defaultdict(float)
    of: defaultdict[Computation, float] = defaultdict(float)
    for row in cost(module, machine).rows:
        own[row.instruction] += row.time_s
    for computation in module.computations:  # the called ones first
        for inst in computation.instructions:
            own[inst] += sum(of[called] for called in inst.called)
            of[computation] += own[inst]
    return own


def _places_wanted(wanted: Sequence[tuple[int, int]], number: int, places: range) -> range:
    """Of the places where a stage may begin those that leave parameters where they are wanted, if there are any."""
    begins = max((place + 1 for place, stage in wanted if stage < number), default=places.start)
    ends = min((place for place, stage in wanted if stage >= number), default=places.stop)
    return range(max(begins, places.start), min(ends + 1, places.stop)) or places


def crossing_bytes(forward: Sequence[Instruction]) -> list[int]:
    """Bytes that forward ops from the n-th on read of those before it."""
    place = {inst: number for number, inst in enumerate(forward)}
    changes = [0] * (len(forward) + 1)
    for inst, number in place.items():
        last = max((place[user] for user in inst.users if user in place), default=number)
        changes[number + 1] += inst.shape.byte_size
        changes[last + 1] -= inst.shape.byte_size
    return list(accumulate(changes))
