"""The whole program as one picture: its blocks from top to bottom, main values with their shardings, what moves.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from hlosharding.compiler import Partitioned
from hlosharding.ir import Instruction
from hlosharding.printable import printable
from hlosharding.report.drawing import SIZE, sharding_icon
from hlosharding.report.figures import as_bytes, as_count, as_large, as_seconds
from hlosharding.report.places import picture_place, value_place
from hlosharding.report.sections.graph import ComputationPart, parts_of, result_of
from hlosharding.report.sections.layers import Block
from hlosharding.report.sections.reported import ReportedProgram
from hlosharding.report.streams import COLOURS
from hlosharding.report.svg import CHARACTER, label, svg_image
from hlosharding.sharding import spell_short

_WIDTH, _LEFT, _RIGHT = 1060, 12, 12  # pixels, as all that follow
_HEAD, _ROW, _PAD, _ARROW = 42, 21, 8, 34
_OPCODE, _SHAPE, _SPEC, _SOURCE, _MOVES = 46, 150, 320, 560, 690
_BAR, _BAR_WIDTH = 730, 200
_MOST_ROWS, _MOST_BLOCKS = 8, 60
_MORE = 32
_MAIN = frozenset(
    "conditional convolution custom-call dot fft gather ragged-dot scatter sort triangular-solve while".split()
)
"""Ops that are worth a row."""


def program_svg(program: Partitioned) -> str:
    """One SVG image of a partitioned program, layers that repeat drawn once.

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT y = f32[8] negate(x)\\n}"
    >>> program_svg(hs.partition(hs.load(text))).startswith("<svg ")
    True
    """
    about = ReportedProgram(program)
    return parts_svg(about, parts_of(about))


def parts_svg(about: ReportedProgram, parts: Sequence[ComputationPart]) -> str:
    """The same of the parts that were found."""
    pieces, top, room = list[str](), 8.0, _MOST_BLOCKS
    for part in parts:
        drawn = part.blocks[:room]
        room -= len(drawn)
        if part.name and drawn:
            pieces.append(label(_LEFT, top + 22, f"inside {printable(part.name)}"))
            top += 32
        for number, block in enumerate(drawn):
            if number:
                pieces += _arrow(about, drawn[number - 1], top)
                top += _ARROW
            pieces += _block(about, block, top)
            top += _height(about, block)
        top += 18
    rest = sum(len(part.blocks) for part in parts) - _MOST_BLOCKS + room
    if rest:
        pieces.append(label(_LEFT, top + 4, f"{as_count(rest)} more blocks"))
        top += 20
    return svg_image(_WIDTH, int(top), pieces)


def _main_ops(about: ReportedProgram, block: Block) -> list[Instruction]:
    """Those that are worth a row, the dearest of many, in program order."""
    found = [op for op in block.ops if op.opcode in _MAIN or op in about.collectives_of]
    dearest = sorted(found, key=lambda op: -about.total([op]).time_s)[:_MOST_ROWS]
    kept = set(dearest)
    return [op for op in found if op in kept]


def _height(about: ReportedProgram, block: Block) -> float:
    return _HEAD + len(_main_ops(about, block)) * _ROW + _PAD


def _block(about: ReportedProgram, block: Block, top: float) -> Iterator[str]:
    wide, high = _WIDTH - _LEFT - _RIGHT, _height(about, block)
    for shadow in (2, 1) if block.times > 1 else ():
        yield _box(_LEFT + 4 * shadow, top - 4 * shadow, wide - 8 * shadow, 8, "none", 0.35)
    yield _box(_LEFT, top, wide, high, "currentColor", 0.45, fill_opacity=0.03)
    times = f"{as_count(block.times)} × " if block.times > 1 else ""
    title = _cut(f"{times}{block.title}{' (backward)' if block.direction else ''}", _MOVES - _LEFT - 24)
    yield f'<g font-weight="600" font-size="13">{label(_LEFT + 12, top + 18, title)}</g>'
    sums = about.total(block.members)
    said = f"{as_count(len(block.members))} ops, {as_large(sums.flops)} FLOPs, {as_bytes(sums.comm_bytes)} received"
    yield f'<g fill-opacity="0.65">{label(_LEFT + 12, top + 34, said)}</g>'
    yield from _time_bar(about, block, top)
    for number, op in enumerate(_main_ops(about, block)):
        yield from _op(about, op, top + _HEAD + number * _ROW)


def _time_bar(about: ReportedProgram, block: Block, top: float) -> Iterator[str]:
    """How much of the whole time, and of that how much communicating."""
    sums, y = about.total(block.members), top + 11
    talking = sum(one.seconds for op in block.members for one in about.collectives_of.get(op, ()))
    share, talks = map(about.share_of_time, (sums.time_s, talking))
    yield _box(_BAR, y, _BAR_WIDTH, 9, "none", fill_opacity=0.12)
    yield _bar(_BAR, y, share * _BAR_WIDTH, COLOURS["products"])
    yield _bar(_BAR + (share - talks) * _BAR_WIDTH, y, talks * _BAR_WIDTH, COLOURS["all-reduce"])
    yield label(_BAR + _BAR_WIDTH + 8, y + 9, f"{as_seconds(sums.time_s)} {share:.0%}")


def _op(about: ReportedProgram, op: Instruction, y: float) -> Iterator[str]:
    sharding = about.sharding(op)
    yield f'<g id="{escape(picture_place(op.name))}" data-place="{escape(value_place(op.name))}">'
    if sharding is not None and not sharding.is_tuple():
        yield f'<g transform="translate({_LEFT + 14},{y + 2:g})">{sharding_icon(sharding)}</g>'
    base = y + SIZE - 2
    yield label(_LEFT + _OPCODE - 10, base, _cut(op.opcode, _SHAPE - _OPCODE))
    shape = str(op.shape) if len(op.shape.leaves) < 4 else f"tuple of {len(op.shape.leaves)} arrays"
    yield label(_LEFT + _SHAPE - 10, base, _cut(shape, _SPEC - _SHAPE - 8))
    yield label(_LEFT + _SPEC - 10, base, _cut(spell_short(sharding, about.mesh), _SOURCE - _SPEC - 8))
    yield f'<g fill-opacity="0.65">{label(_LEFT + _SOURCE - 10, base, _cut(op.location, _MOVES - _SOURCE - 4))}</g>'
    yield from _moved(about, op, y)
    yield "</g>"


def _moved(about: ReportedProgram, op: Instruction, y: float) -> Iterator[str]:
    """The collectives of an op, as many as there is room for, and the number of the others."""
    moving, x, base = about.collectives_of.get(op, ()), float(_MOVES), y + SIZE - 2
    for number, one in enumerate(moving):
        text = f"{one.collective.kind} {as_bytes(one.collective.bytes_per_device)}"
        rest, wide = len(moving) - number, CHARACTER * len(text) + 22
        # Unless this is the last one, the number of those left must have room behind it.
        if number and x + wide + (_MORE if rest > 1 else 0) > _WIDTH - _RIGHT:
            yield label(x, base, f"+{as_count(rest)}")
            return
        yield _box(x, y + 2, wide, 17, "none", colour=_colour(one.collective.kind), radius=8)
        yield f'<g fill="{_colour(one.collective.kind)}">{_dot(x + 9, y + 10.5)}</g>{label(x + 17, base, text)}'
        x += wide + 6


def _arrow(about: ReportedProgram, before: Block, top: float) -> Iterator[str]:
    """From block to block, with the largest value that is handed on."""
    value, x = result_of(before), _LEFT + 22
    yield f'<path d="M{x} {top + 3:g}V{top + _ARROW - 8:g}" stroke="currentColor" stroke-opacity="0.6"/>'
    yield f'<path d="M{x - 4} {top + _ARROW - 9:g}h8l-4 7z" fill-opacity="0.6"/>'
    sharding = about.sharding(value)
    if sharding is not None and not sharding.is_tuple():
        yield f'<g transform="translate({x + 14},{top + 8:g})">{sharding_icon(sharding)}</g>'
    said = f"{value.shape if value.shape.is_array else 'a tuple'} {spell_short(sharding, about.mesh)}"
    yield label(x + 38, top + 8 + SIZE - 3, _cut(said, _WIDTH - x - 60))


def _colour(kind: str) -> str:
    return COLOURS.get(kind, COLOURS["other transfers"])


def _bar(x: float, y: float, width: float, colour: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:g}" width="{max(0.0, width):.1f}" height="9" fill="{colour}"/>' if width > 0 else ""
    )


def _dot(x: float, y: float) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:g}" r="4"/>'


def _box(
    x: float, y: float, width: float, height: float, stroke: str, stroke_opacity: float = 1.0, *,
    fill_opacity: float = 0.16, colour: str = "currentColor", radius: int = 6,
) -> str:  # fmt: skip
    place = f'x="{x:g}" y="{y:g}" width="{width:.1f}" height="{height:g}" rx="{radius}"'
    line = f'stroke="{stroke}" stroke-opacity="{stroke_opacity:g}"'
    return f'<rect {place} fill="{colour}" fill-opacity="{fill_opacity:g}" {line}/>'


def _cut(text: str, width: float) -> str:
    """As much as there is room for."""
    text, most = printable(text), max(4, int(width / CHARACTER))
    return text if len(text) <= most else text[: most - 1] + "…"
