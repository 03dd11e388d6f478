"""The steps of one device of a schedule, on its own tiles.

Floor: schedule.  Data, and its text.  `projection` makes them of a schedule, `runs` and `alone` run them.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlosharding.ir import Shape
from hlosharding.schedule.op import Op
from hlosharding.schedule.spelling import attributes_text
from hlosharding.schedule.stage_program import StageProgram
from hlosharding.schedule.steps import names_text
from hlosharding.schedule.tiles import Box, numbers_held
from hlosharding.schedule.value_type import ValueType, devices_text


@dataclass(frozen=True, slots=True)
class TileOp:
    """An op on values of which several ranks hold the tiles."""

    op: Op
    operands: tuple[ValueType, ...]
    results: tuple[ValueType, ...]

    @property
    def members(self) -> tuple[int, ...]:
        """Of a stage program: the devices in the order in which it numbers them."""
        return self.operands[0].devices if isinstance(self.op, StageProgram) else ()


@dataclass(frozen=True, slots=True)
class RankApply:
    """Do an op's part of one device, alone or with the others of a group."""

    device: int
    tile_op: TileOp
    operands: tuple[str, ...]
    """The values of the op that lie here."""
    results: tuple[str, ...]
    group: tuple[int, ...]
    """Devices that come together; one that needs no other is alone."""
    which: str
    """A value of the op, of all ranks the same: by it they know that they do the same one."""
    where: str = ""

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Of the results' tiles."""
        return tuple(self.tile_op.results[n].tile for n in numbers_held(self.tile_op.results, self.device))

    def __str__(self) -> str:
        op, results = self.tile_op.op, f"{names_text(self.results)} = " if self.results else ""
        members = self.tile_op.members if len(self.tile_op.members) > 1 else self.group
        member = f" member={members.index(self.device)} of={devices_text(members)}" if len(members) > 1 else ""
        if len(self.group) > 1 and self.which not in self.results:
            member += f" as=%{self.which}"
        made = f" : {'; '.join(map(str, self.shapes))}" if self.shapes else ""
        return f"{results}{op.name}({names_text(self.operands)}){attributes_text(op)}{member}{made}"


@dataclass(frozen=True, slots=True)
class RankSend:
    """Give a tile, or a part of one, to a device; both wait until it is there."""

    value: str
    to: int
    received: str
    """What the receiver calls it: by it the two know that they mean the same."""
    cut: Box | None = None
    """Start and end along each dim of the tile; None: all of it."""
    where: str = ""

    def __str__(self) -> str:
        part = "" if self.cut is None else f"[{', '.join(f'{start}:{end}' for start, end in self.cut)}]"
        return f"send(%{self.value}{part}) to={self.to} as=%{self.received}"


@dataclass(frozen=True, slots=True)
class RankReceive:
    """Take a tile, or a part of one, from a device."""

    result: str
    source: int
    shape: Shape
    where: str = ""

    def __str__(self) -> str:
        return f"%{self.result} = receive() from={self.source} : {self.shape}"


@dataclass(frozen=True, slots=True)
class RankJoin:
    """Make a tile of the parts that were received; what is padding is zero."""

    result: str
    parts: tuple[str, ...]
    at: tuple[tuple[int, ...], ...]
    """Where in the tile each part begins."""
    shape: Shape
    where: str = ""

    def __str__(self) -> str:
        at = ",".join(f"[{','.join(map(str, start))}]" for start in self.at)
        return f"%{self.result} = join({names_text(self.parts)}) at={{{at}}} : {self.shape}"


@dataclass(frozen=True, slots=True)
class RankFree:
    """Give back the memory of tiles."""

    values: tuple[str, ...]
    where: str = ""

    def __str__(self) -> str:
        return f"free {names_text(self.values)}"


RankStep = RankApply | RankSend | RankReceive | RankJoin | RankFree


@dataclass(frozen=True, slots=True)
class BoundaryTile:
    """A tile of one of the schedule's parameters or results."""

    name: str
    number: int
    """Of the parameter or result."""
    type: ValueType
    """Of the whole."""

    @property
    def shape(self) -> Shape:
        """Of the tile."""
        return self.type.tile


def values_read(step: RankStep) -> tuple[str, ...]:
    """What a step reads.

    >>> values_read(RankSend("x", to=1, received="y"))
    ('x',)
    """
    match step:
        case RankApply():
            return step.operands
        case RankSend():
            return (step.value,)
        case RankReceive():
            return ()
        case RankJoin():
            return step.parts
        case RankFree():
            return step.values


def values_made(step: RankStep) -> tuple[str, ...]:
    """What a step defines.

    >>> values_made(RankFree(("x",)))
    ()
    """
    match step:
        case RankApply():
            return step.results
        case RankReceive() | RankJoin():
            return (step.result,)
        case RankSend() | RankFree():
            return ()


def peers(step: RankStep) -> tuple[int, ...]:
    """Devices that a step meets, itself among them or not.

    >>> peers(RankSend("x", to=1, received="y"))
    (1,)
    """
    match step:
        case RankApply():
            return step.group
        case RankSend():
            return (step.to,)
        case RankReceive():
            return (step.source,)
        case RankJoin() | RankFree():
            return ()
