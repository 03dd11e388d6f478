"""How often each computation of a module runs: loops times their trip count, every branch once per conditional.

Floor: ir.  Reads control flow only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hlosharding.ir.control_flow import while_parts
from hlosharding.ir.graph import Computation, Instruction, ModuleGraph, callees_first
from hlosharding.ir.trip_counts import trip_count

_INLINED = frozenset({"call", "async-start"})


class Runs(NamedTuple):
    """How a computation is run in one execution of the module."""

    count: int
    in_conditional: bool
    """Some call site is a branch: the count is an upper bound."""
    is_exact: bool
    """False below a loop whose trip count nobody knows (guessed, see `trip_count`)."""
    is_fused: bool
    """The body of a fusion: part of one op, no op of its own."""


def executions(module: ModuleGraph) -> dict[Computation, Runs]:
    """Runs of every computation that the entry reaches by control flow or fusion; reducers are not listed."""
    runs: dict[Computation, Runs] = {module.entry: Runs(1, False, True, False)}
    # Callers first: when a computation is reached all its runs are counted.
    for computation in reversed(callees_first([module.entry])):
        mine = runs.get(computation)
        if mine is None:
            continue
        for instruction in computation.instructions:
            if instruction.called:
                for callee, added in _calls(instruction, mine):
                    runs[callee] = _join(runs.get(callee), added)
    return runs


class GuessedLoop(NamedTuple):
    """A loop of which nobody can tell how often it runs."""

    name: str
    location: str
    trips: int
    """What is taken in its place."""

    def __str__(self) -> str:
        place = f" at {self.location}" if self.location else ""
        times = f"{self.trips} time{'' if self.trips == 1 else 's'}"
        return f"how often %{self.name}{place} runs is not known, it is counted {times}: state trips of {self.name}"


def guessed_loops(computations: Iterable[Computation]) -> tuple[GuessedLoop, ...]:
    """The loops of these computations (of `executions`: those that run) whose trip count is a guess."""
    loops = [i for c in computations for i in c.instructions if i.opcode == "while"]
    counted = [(loop, trip_count(loop)) for loop in loops]
    return tuple(GuessedLoop(loop.name, loop.location, t.count) for loop, t in counted if not t.is_exact)


def _calls(instruction: Instruction, mine: Runs) -> list[tuple[Computation, Runs]]:
    opcode, called = instruction.opcode, instruction.called
    if opcode == "while":
        trips, is_exact = trip_count(instruction)
        times = mine.count * trips
        inner = mine._replace(is_exact=mine.is_exact and is_exact)
        body, condition = while_parts(instruction)
        # The condition runs once more than the body, to say no.
        return [(body, inner._replace(count=times)), (condition, inner._replace(count=times + mine.count))]
    if opcode == "conditional":
        return [(branch, mine._replace(in_conditional=True)) for branch in called]
    if opcode == "fusion":
        return [(called[0], mine._replace(is_fused=True))]
    if opcode in _INLINED:
        return [(callee, mine) for callee in called]
    return []


def _join(old: Runs | None, new: Runs) -> Runs:
    if old is None:
        return new
    return Runs(
        old.count + new.count,
        old.in_conditional or new.in_conditional,
        old.is_exact and new.is_exact,
        old.is_fused and new.is_fused,
    )
