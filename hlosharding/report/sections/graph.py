"""The program as a graph that fits on a page: blocks in program order, layers folded, each value with its sharding.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlosharding.ir import CONTROL_FLOW, PRODUCTS, Computation, Instruction, trip_count
from hlosharding.report.model import Cell, Column, Figure, Kind, Row, Shown, Table, Thread, View, fields_of, figures_of
from hlosharding.report.places import line_place, value_place
from hlosharding.report.sections.layers import Block, blocks_of
from hlosharding.report.sections.reported import ReportedProgram

_OPS_SHOWN = 400
"""Of one block."""

_BLOCKS = (
    Column(key="block", heading="block"),
    Column(key="times", heading="times", kind=Kind.COUNT),
    Column(key="ops", heading="ops", kind=Kind.COUNT, sums=True, priority=2),
    Column(key="flops", heading="FLOPs", kind=Kind.LARGE, sums=True, priority=2),
    Column(key="num_collectives", heading="collectives", kind=Kind.COUNT, sums=True, priority=2),
    Column(key="comm_bytes", heading="received", kind=Kind.BYTES, sums=True),
    Column(key="time_s", heading="predicted", kind=Kind.SECONDS, sums=True),
    Column(key="share", heading="of all", kind=Kind.SHARE, sums=True, priority=3),
    Column(key="result_shape", heading="hands on", kind=Kind.SHAPE, priority=1),
    Column(key="result", heading="as", kind=Kind.SHARDING),
)
_OPS = (
    Column(key="value", heading="value"),
    Column(key="opcode", heading="op", priority=2),
    Column(key="shape", heading="shape", kind=Kind.SHAPE, priority=1),
    Column(key="sharding", heading="sharding", kind=Kind.SHARDING),
    Column(key="collectives", heading="moves data"),
    Column(key="time_s", heading="predicted", kind=Kind.SECONDS),
    Column(key="location", heading="source", kind=Kind.LOCATION),
)


@dataclass(frozen=True, slots=True)
class ComputationPart:
    """One computation with what repeats in it."""

    name: str
    """"" for the entry, else whose body it is."""
    blocks: tuple[Block, ...]


def parts_of(about: ReportedProgram) -> list[ComputationPart]:
    """The entry, then the bodies of its loops and calls; reducers and their like are left out.

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT y = f32[8] negate(x)\\n}"
    >>> [part.name for part in parts_of(ReportedProgram(hs.partition(hs.load(text))))]
    ['']
    """
    found, waiting, seen = list[ComputationPart](), [(about.whole.entry, "")], set[Computation]()
    while waiting:
        computation, name = waiting.pop(0)
        if computation in seen:
            continue
        seen.add(computation)
        found.append(ComputationPart(name, tuple(blocks_of(about, computation))))
        inside = [op for op in computation.instructions if op.opcode in CONTROL_FLOW]
        waiting += [(callee, _body_name(op)) for op in inside for callee in op.called]
    return [part for part in found if part.blocks and (not part.name or len(part.blocks[0].ops) > 1)]


def _body_name(op: Instruction) -> str:
    where = f" at {op.location}" if op.location else ""
    if op.opcode != "while":
        return f"%{op.name} ({op.opcode}{where})"
    trips = trip_count(op)
    return f"%{op.name} (loop{where}, {'' if trips.is_exact else '~'}{trips.count} trips)"


def graph_view(about: ReportedProgram, parts: Sequence[ComputationPart]) -> View:
    """A table for each part; a block opens to its ops, each with its sharding and what moves for it."""
    tables = [_table(about, part) for part in parts]
    rows = [{"inside": part.name, **row} for part, table in zip(parts, tables, strict=True) for row in table.rows]
    return View((*tables, Table(key="blocks", columns=_BLOCKS, rows=rows, is_shown=False)))


def _table(about: ReportedProgram, part: ComputationPart) -> Table:
    return Table(
        title=f"Inside {part.name}" if part.name else "",
        columns=_BLOCKS,
        rows=[_block_row(about, block) for block in part.blocks],
        mesh=about.mesh,
        total="all" if len(part.blocks) > 1 else "",
        detail="detail",
    )


def _block_row(about: ReportedProgram, block: Block) -> Row:
    sums, result = about.total(block.members), result_of(block)
    return {
        "block": Shown(f"{block.title}{' (backward)' if block.direction else ''}", block.title),
        "direction": block.direction,
        "times": block.times,
        "ops": len(block.members),
        "products": sum(op.opcode in PRODUCTS for op in block.members),
        "flops": Figure(sums.flops, is_exact=sums.is_exact),
        "num_collectives": sum(len(about.collectives_of.get(op, ())) for op in block.members),
        **figures_of(sums, "comm_bytes time_s", is_exact=sums.is_exact),
        "share": about.share_of_time(sums.time_s),
        "result_shape": result.shape,
        "result": about.sharding(result),
        "detail": View((_ops_table(about, block),)),
    }


def result_of(block: Block) -> Instruction:
    """The largest value that a block hands on, the last of several."""
    mine = set(block.ops)
    handed = [op for op in block.ops if op.is_root or any(user not in mine for user in op.users)]
    return max(reversed(handed or block.ops), key=lambda op: op.shape.byte_size)


def _ops_table(about: ReportedProgram, block: Block) -> Table:
    ops = block.ops[:_OPS_SHOWN]
    left_out = len(block.ops) - len(ops)
    rest = f" ({left_out} more are left out)" if left_out else ""
    return Table(
        title=f"{len(block.ops)} ops{', the first time' if block.times > 1 else ''}{rest}",
        key="ops",
        columns=_OPS,
        rows=[_op_row(about, op, block.members[place :: len(block.ops)]) for place, op in enumerate(ops)],
        mesh=about.mesh,
        thread="thread",
    )


def _op_row(about: ReportedProgram, op: Instruction, alike: Sequence[Instruction]) -> Row:
    """`alike`: it, and its like in the other layers."""
    loops = (value_place(loop.name) for loop in about.loops_of(op))
    return {
        "value": Shown(f"%{op.name}", op.name),
        **fields_of(op, "opcode shape"),
        "sharding": about.sharding(op),
        "collectives": _moves(about, op),
        "time_s": about.figures[op].time_s if op in about.figures else 0.0,
        "location": op.location,
        "thread": Thread(tuple(value_place(each.name) for each in alike), (line_place(op.location), *loops)),
    }


def _moves(about: ReportedProgram, op: Instruction) -> Cell:
    found = about.collectives_of.get(op, ())
    text = ", ".join(f"#{one.number} {one.collective.kind}" for one in found)
    return Shown(text, [one.number for one in found])
