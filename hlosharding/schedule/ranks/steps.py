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


@dataclass(frozen=True, slots=True, kw_only=True)
class _TileStep:
    """What all steps say."""

    reads: tuple[str, ...] = ()
    """Tiles that are here."""
    makes: tuple[str, ...] = ()
    peers: tuple[int, ...] = ()
    """Devices that it meets, itself among them or not."""
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankApply(_TileStep):
    """Do an op's part of one device, alone or with its peers, itself among them."""

    device: int
    tile_op: TileOp
    which: str
    """A value of the op, of all ranks the same: by it they know that they do the same one."""

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Of the results' tiles."""
        return tuple(self.tile_op.results[n].tile for n in numbers_held(self.tile_op.results, self.device))

    def __str__(self) -> str:
        op, results = self.tile_op.op, f"{names_text(self.makes)} = " if self.makes else ""
        members = self.tile_op.members if len(self.tile_op.members) > 1 else self.peers
        member = f" member={members.index(self.device)} of={devices_text(members)}" if len(members) > 1 else ""
        if len(self.peers) > 1 and self.which not in self.makes:
            member += f" as=%{self.which}"
        made = f" : {'; '.join(map(str, self.shapes))}" if self.shapes else ""
        return f"{results}{op.name}({names_text(self.reads)}){attributes_text(op)}{member}{made}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSend(_TileStep):
    """Give a tile, or a part of one, to a device; both wait until it is there.

    >>> print(RankSend(reads=("x",), peers=(1,), received="y", cut=((0, 2), (0, 4))))
    send(%x[0:2, 0:4]) to=1 as=%y
    """

    received: str
    """What the receiver calls it: by it the two know that they mean the same."""
    cut: Box | None = None
    """Start and end along each dim of the tile; None: all of it."""

    def __str__(self) -> str:
        part = "" if self.cut is None else f"[{', '.join(f'{start}:{end}' for start, end in self.cut)}]"
        return f"send({names_text(self.reads)}{part}) to={self.peers[0]} as=%{self.received}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReceive(_TileStep):
    """Take a tile, or a part of one, from a device."""

    shape: Shape

    def __str__(self) -> str:
        return f"{names_text(self.makes)} = receive() from={self.peers[0]} : {self.shape}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankJoin(_TileStep):
    """Make a tile of the parts that were received; what is padding is zero."""

    at: tuple[tuple[int, ...], ...]
    """Where in the tile each part begins."""
    shape: Shape

    def __str__(self) -> str:
        at = ",".join(f"[{','.join(map(str, start))}]" for start in self.at)
        return f"{names_text(self.makes)} = join({names_text(self.reads)}) at={{{at}}} : {self.shape}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFree(_TileStep):
    """Give back the memory of tiles."""

    def __str__(self) -> str:
        return f"free {names_text(self.reads)}"


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
