"""The programs of all ranks run together: each has its own place and tiles, and meets others only to exchange tiles.

Floor: schedule.  A send ends when its receive does, as NCCL's do, so what runs here runs with any buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, cycle
from typing import Any

import numpy as np

from hlosharding.errors import HloShardingError, ScheduleError
from hlosharding.schedule.ranks.rank_program import RankProgram
from hlosharding.schedule.ranks.steps import (
    BoundaryTile,
    RankApply,
    RankFree,
    RankJoin,
    RankReceive,
    RankSend,
    RankStep,
)
from hlosharding.schedule.tiles import numbers_held, tiles_of, whole_of
from hlosharding.schedule.value_type import numbers_for

RankPrograms = Mapping[int, RankProgram]


def run_ranks(programs: RankPrograms, *arrays: Any, turns: Iterable[int] = ()) -> list[np.ndarray]:
    """Run the programs of all ranks; whole arrays in, one for each parameter of the schedule, and whole arrays out.

    A rank gets only its own tiles.  `turns`: the ranks whose next step is tried, one after the other; round robin where
    that ends.  Their order changes no result.

    Raises ScheduleError where programs do not fit together, with both ranks and the steps at which they are: one sends
    what the other does not receive, two wait for each other, or they do different ops where they meet.

    >>> from hlosharding.schedule import parse_schedule
    >>> schedule = parse_schedule('''
    ... func @main(%x: f32[4] on {0,1} as {devices=[2]<=[2]}) {
    ...   %y = send(%x) to={2} sharding={replicated}
    ...   return %y
    ... }''')
    >>> run_ranks(schedule.ranks(), np.arange(4.0), turns=[2, 1, 0])
    [array([0., 1., 2., 3.], dtype=float32)]
    """
    run = _JointRun(programs)
    run.hand_out(arrays)
    run.run_to_end(turns)
    return run.collect_results()


class _Rank:
    """One rank's place in its program, and its tiles."""

    def __init__(self, program: RankProgram) -> None:
        self.program = program
        self.place = 0
        self.tiles: dict[str, np.ndarray] = {}

    @property
    def step(self) -> RankStep | None:
        """The one at which it is; None at the end."""
        return self.program.steps[self.place] if self.place < len(self.program.steps) else None

    @property
    def where(self) -> str:
        """For messages."""
        step = self.step
        if step is None:
            return f"the end of rank {self.program.device}"
        line = f" ({step.where})" if step.where else ""
        return f"`{step}` of rank {self.program.device}{line}"

    def read_tiles(self, names: Sequence[str]) -> list[np.ndarray]:
        for name in names:
            if name not in self.tiles:
                remedy = "make or receive it earlier, or free it later"
                raise ScheduleError(f"%{name} is not there", where=self.where, remedy=remedy)
        return [self.tiles[name] for name in names]

    def finish_step(self, made: Sequence[np.ndarray]) -> None:
        """Its step is done, with these results."""
        step = self.step
        assert step is not None
        for name, tile in zip(step.makes, made, strict=True):
            if name in self.tiles:
                raise ScheduleError(f"%{name} is defined twice", where=self.where, remedy="name one otherwise")
            self.tiles[name] = tile
        for name in _names_gone(step):
            self.tiles.pop(name, None)
        self.place += 1


def _names_gone(step: RankStep) -> Sequence[str]:
    """What nobody can read after a step."""
    if isinstance(step, RankFree):
        return step.reads
    if not isinstance(step, RankApply):
        return ()
    here = numbers_held(step.tile_op.operands, step.device)
    return [name for name, number in zip(step.reads, here, strict=True) if number in step.tile_op.op.donates]


class _JointRun:
    def __init__(self, programs: RankPrograms) -> None:
        self.ranks = {device: _Rank(program) for device, program in programs.items()}
        for named, rank in self.ranks.items():
            if named != rank.program.device:
                raise ScheduleError(f"the program of rank {rank.program.device} is given as that of rank {named}")
            for device in rank.program.others:
                if device not in self.ranks:
                    where = f"rank {rank.program.device}, which meets it"
                    raise ScheduleError(f"rank {device} has no program", where=where, remedy="give those of all ranks")

    # Before and after

    def hand_out(self, arrays: Sequence[Any]) -> None:
        wanted = _boundary(rank.program.parameters for rank in self.ranks.values())
        if len(arrays) != len(wanted):
            raise ScheduleError(f"{len(arrays)} arrays for {len(wanted)} parameters")
        arrays = [numbers_for(a, wanted[n].shape, where=f"%{wanted[n].name}") for n, a in enumerate(arrays)]
        cut = [tiles_of(array, wanted[number].type) for number, array in enumerate(arrays)]
        for device, rank in self.ranks.items():
            rank.tiles = {tile.name: cut[tile.number][device] for tile in rank.program.parameters}

    def collect_results(self) -> list[np.ndarray]:
        given = _boundary(rank.program.results for rank in self.ranks.values())
        return [self._assemble(given[number]) for number in sorted(given)]

    def _assemble(self, result: BoundaryTile) -> np.ndarray:
        tiles: dict[int, np.ndarray] = {}
        for device in result.type.devices:
            [tiles[device]] = self.ranks[device].read_tiles([result.name])
        return whole_of(tiles, result.type)

    # Turns

    def run_to_end(self, turns: Iterable[int]) -> None:
        at_work = {device for device, rank in self.ranks.items() if rank.step is not None}
        stuck: set[int] = set()
        for device in chain(turns, cycle(sorted(self.ranks)) if self.ranks else ()):
            if not at_work:
                return
            if device not in at_work:
                continue
            done = self.try_step(self.ranks[device])
            stuck = set() if done else {*stuck, device}
            at_work.difference_update(rank for rank in done if self.ranks[rank].step is None)
            # Everybody was tried since a step was last done.
            if at_work and stuck == at_work:
                raise self.describe_deadlock()

    def try_step(self, rank: _Rank) -> Sequence[int]:
        """Try the step of a rank; the ranks that are a step further, none where it has to wait."""
        step, device = rank.step, rank.program.device
        match step:
            case RankApply():
                return self.try_op(step)
            case RankSend():
                return self.try_transfer(rank, self.ranks[step.peers[0]])
            case RankReceive():
                return self.try_transfer(self.ranks[step.peers[0]], rank)
            case RankJoin():
                rank.finish_step([_join_parts(step, rank.read_tiles(step.reads))])
            case RankFree():
                rank.read_tiles(step.reads)
                rank.finish_step(())
            case None:
                return ()
        return (device,)

    # Meetings

    def try_op(self, step: RankApply) -> Sequence[int]:
        ranks = {device: self.ranks[device] for device in step.peers}
        for rank in ranks.values():
            other = rank.step
            if not isinstance(other, RankApply) or other.peers != step.peers:
                return ()
            if (other.tile_op, other.which) != (step.tile_op, step.which):
                raise _misfit(
                    self.ranks[step.device], rank, "they meet for different ops", "let them do the same there"
                )
        tiles = {device: rank.read_tiles(rank.step.reads if rank.step else ()) for device, rank in ranks.items()}
        tile_op = step.tile_op
        try:
            made = tile_op.op.on_tiles(tiles, tile_op.operands, tile_op.results)
        except HloShardingError as error:
            where = self.ranks[step.device].where
            raise ScheduleError(error.what, where=error.where or where, remedy=error.remedy) from error
        for device, rank in ranks.items():
            rank.finish_step(made[device])
        return step.peers

    def try_transfer(self, sender: _Rank, receiver: _Rank) -> Sequence[int]:
        send, receive = sender.step, receiver.step
        if not isinstance(send, RankSend) or not isinstance(receive, RankReceive):
            return ()
        if send.peers != (receiver.program.device,) or receive.peers != (sender.program.device,):
            return ()
        if receive.makes != (send.received,):
            remedy = "put the transfers between the two in one order, and give each send its receive"
            raise _misfit(sender, receiver, f"%{send.received} is sent where %{receive.makes[0]} is received", remedy)
        [tile] = sender.read_tiles(send.reads)
        part = tile if send.cut is None else tile[tuple(slice(*ends) for ends in send.cut)]
        if part.shape != receive.shape.dims or part.dtype != receive.shape.dtype:
            what = f"{part.dtype}{list(part.shape)} is sent where {receive.shape} is received"
            raise _misfit(sender, receiver, what, "let both mean the same value")
        sender.finish_step(())
        receiver.finish_step([part])
        return sender.program.device, receiver.program.device

    # Nobody can go on

    def describe_deadlock(self) -> ScheduleError:
        """What is wrong where every rank waits."""
        first = next(rank for rank in self.ranks.values() if rank.step is not None)
        path = [first]
        while True:
            other = self._awaited(path[-1])
            if other.step is None:
                what = "a rank waits for one that has come to its end"
                return _misfit(path[-1], other, what, "give each send its receive, and let all of a group do the op")
            if other in path:
                ring = path[path.index(other) :]
                break
            path.append(other)
        where = ", ".join(rank.where for rank in ring)
        return ScheduleError("ranks wait for each other", where=where, remedy="put what they exchange into one order")

    def _awaited(self, rank: _Rank) -> _Rank:
        """One that is not where a waiting rank needs it."""
        step = rank.step
        if isinstance(step, RankSend | RankReceive):
            return self.ranks[step.peers[0]]
        # Joins and frees wait for nobody.
        assert isinstance(step, RankApply)
        others = [self.ranks[device] for device in step.peers]
        return next(o for o in others if not isinstance(o.step, RankApply) or o.step.peers != step.peers)


def _boundary(sides: Iterable[Sequence[BoundaryTile]]) -> dict[int, BoundaryTile]:
    return {tile.number: tile for side in sides for tile in side}


def _join_parts(step: RankJoin, parts: Sequence[np.ndarray]) -> np.ndarray:
    tile = np.zeros(step.shape.dims, step.shape.dtype)
    for start, part in zip(step.at, parts, strict=True):
        tile[tuple(slice(a, a + size) for a, size in zip(start, part.shape, strict=True))] = part
    return tile


def _misfit(one: _Rank, other: _Rank, what: str, remedy: str) -> ScheduleError:
    return ScheduleError(what, where=f"{one.where}, {other.where}", remedy=remedy)
