"""How the fastest plan is sought: how closely, and below which time.

Floor: reshard.  For plans where time decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from hlosharding.cost import Machine, op_time, price_uncombined
from hlosharding.ir import Builder, Shape
from hlosharding.reshard.axis_plans import AxisSearch, axis_plans
from hlosharding.reshard.intermediates import Intermediate
from hlosharding.reshard.layout import Dims, Layout
from hlosharding.reshard.objectives import most_bytes_per_second, weigh
from hlosharding.reshard.piecewise import PiecewiseSearch, groupings, moves_between, pieces_in_rounds
from hlosharding.reshard.request import Reshard, Steps
from hlosharding.reshard.steps import AllToAll, DynamicSlice, Pad, Pieces, Slice, Step
from hlosharding.sharding import HloSharding
from hlosharding.spmd import Emitter, Program

# ---- what steps take as a program: written as local HLO between a producer and a reader, and priced op by op
#
# Dearer than the steps' own prices, and truer: what comes before a collective must be written to memory, what comes
# behind it disappears into its reader.


_NEIGHBOUR = "not"
"""An elementwise op that no step writes."""


def emitted_seconds(steps: Sequence[Step], local: Shape, num_devices: int, machine: Machine) -> float:
    """Predicted seconds of steps that start from local arrays `local`; the neighbours' own time does not count.

    >>> from hlosharding.cost import machines
    >>> from hlosharding.reshard.steps import Permute
    >>> h100 = machines.h100(2)
    >>> step = Permute(((0, 1), (1, 0)))
    >>> emitted_seconds([step], Shape.parse("f32[256]"), 2, h100) == step.seconds(Shape.parse("f32[256]"), h100)
    True
    """
    program = Program(Builder("reshard", num_partitions=num_devices), num_devices)
    main = program.builder.computation("main")
    emitter = Emitter(program, main)
    # The price knows widths, not meanings: integers stand for all types, for which the neighbours have an op.
    shape = local.with_type(_INTEGERS[local.byte_size // max(1, local.size)]) if local.size else local
    x = main.add(_NEIGHBOUR, shape, (main.parameter(0, shape),))
    for step in steps:
        x = step.emit(emitter, x)
    main.root(main.add(_NEIGHBOUR, x.shape, (x,)))
    # One step after the other: what XLA joins depends on what else the program does.
    rows = price_uncombined(program.builder.finish(main), machine)
    return sum(row.time_s for row in rows if row.instruction.opcode != _NEIGHBOUR)


def estimated_seconds(steps: Sequence[Step], local: Shape, machine: Machine) -> float:
    """About `emitted_seconds`, without a program: one kernel for all local work before a collective, none behind the
    last; of an exchange the transpose before it may be no work at all."""
    total, has_local_work = 0.0, False
    for step in steps:
        if isinstance(step, (Pad, Slice, DynamicSlice)):
            has_local_work = True
        else:
            kernel = op_time(0, 2 * local.byte_size, "f32", machine, matrix=False)
            total += step.seconds(local, machine) + has_local_work * kernel
            has_local_work = isinstance(step, (AllToAll, Pieces))
            if isinstance(step, AllToAll):
                # `seconds` of an exchange has a transpose on either side.  The one behind it is counted with what
                # follows, where something does; none stands before it where tiles go from one dim to one other.
                total -= (1 + step.is_simple) * kernel
            elif isinstance(step, Pieces):
                # Likewise what puts the pieces into their places.
                total -= sum(
                    op_time(0, 2 * local.with_dims(turn.sizes).byte_size, "f32", machine, matrix=False)
                    for turn in step.rounds
                    if turn.sizes != step.sizes and not turn.is_local
                )
        local = step.result(local)
    return total


_INTEGERS = {0: "u8", 1: "u8", 2: "u16", 4: "u32", 8: "u64", 16: "c128"}


NEAR = 2.5
"""Plans whose steps take so many times longer than those of the fastest may still be faster as programs.

With half of it one plan takes 1.43 of the time; twice as much changes none, and planning takes 1.1 of the time."""
_ROUNDS = 12
"""Of permutes; no plan wins that takes dozens: half and double give the same plans."""
_CLOSE_LOOK = 32
"""Devices.  With 16, 5 plans are slower (at most 1.24); with 64, 17 are faster (at best 0.54), planning takes 1.14."""


def is_close_look(reshard: Reshard) -> bool:
    """Are devices so few that many plans can be looked at in some milliseconds?"""
    return not reshard.is_part and reshard.num_devices <= _CLOSE_LOOK


def axis_searches_for_time(reshard: Reshard, known_seconds: float = math.inf) -> tuple[AxisSearch, ...]:
    """Axis plans worth a look beside a plan that takes `known_seconds`.

    By themselves exchanges look dearer than they are in a program: at a close look the leanest path counts, too.
    """
    wide = (True,) if math.isfinite(known_seconds) else (False, True)
    fastest = AxisSearch("time", weigh("time", 0.0, NEAR * known_seconds), wide, is_close_look(reshard))
    if not is_close_look(reshard):
        return (fastest,)
    # Bytes that take longer than the plan that is known, at the highest rate there is, cannot win.
    return fastest, replace(fastest, objective="bytes", limit=known_seconds * most_bytes_per_second(reshard.machine))


def piecewise_search_for_time(reshard: Reshard) -> PiecewiseSearch:
    """Piecewise plans worth a look: the best two."""
    return PiecewiseSearch(most_pieces=_ROUNDS * reshard.num_devices, kept=2, near=NEAR)


@dataclass(frozen=True, slots=True)
class TimeSearch:
    """A reshard whose fastest plan is sought, beside a plan that is known."""

    reshard: Reshard
    known_seconds: float = math.inf
    """Estimated, of the best plan known: none that must take longer is worth a look."""

    def seconds(self, steps: Steps) -> float:
        """About what steps take as a program."""
        return estimated_seconds(steps, self.reshard.local, self.reshard.machine)

    def wire_seconds(self, steps: Steps) -> float:
        """What their collectives take: no program of them takes less."""
        local, total = self.reshard.local, 0.0
        for step in steps:
            total += step.wire_seconds(local, self.reshard.machine)
            local = step.result(local)
        return total

    def axis_plans(self, source: HloSharding, target: HloSharding, padded: Dims | None = None) -> tuple[Steps, ...]:
        """Axis plans of a part; with `padded` each dim is padded to that, and tiles may be cut unevenly."""
        part = replace(self.reshard, source=source, target=target)
        found = axis_plans(part, axis_searches_for_time(part, self.known_seconds), padded)
        return tuple(dict.fromkeys(plan.steps for plan in found))

    def part(self, source: HloSharding, target: HloSharding) -> tuple[Steps, ...]:
        """Axis plans of a part, or else the best plan there is."""
        return self.axis_plans(source, target) or (self.reshard.part(source, target),)

    def plans_via(self, ways: Iterable[Intermediate]) -> Iterator[Steps]:
        """Plans by way of intermediate shardings: all pairs of halves."""
        first, last = self.reshard.source, self.reshard.target
        for way in ways:
            ends = self.part(way.sharding, last) if way.last is None else (way.last,)
            for begin in self.part(first, way.sharding) if way.first is None else (way.first,):
                yield from ((*begin, *end) for end in ends)

    def piecewise(self, source: Layout, target: Layout) -> Iterator[Step]:
        """The fastest piecewise plan of a part, unless its pieces are too many."""
        reshard = self.reshard
        moves = moves_between(source, target, reshard.machine, _ROUNDS * reshard.num_devices)
        if moves is not None:
            # Padding that comes along in windows of the same size need not be masked.
            found = groupings(moves, reshard.shape)
            yield pieces_in_rounds(moves, min(found, key=lambda g: (g.seconds, g.rounds, not g.is_padded)))
