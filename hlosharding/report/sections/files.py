"""Where the time goes by source file and line, with the shardings that are found there.

Floor: report.
"""

from __future__ import annotations

from collections import defaultdict

from hlosharding.cost import Subtotal
from hlosharding.ir import Instruction
from hlosharding.report.model import Column, Kind, Row, Shown, Table, Thread, View, figures_of
from hlosharding.report.places import line_place
from hlosharding.report.sections.reported import ReportedProgram, add_subtotals

_FIGURES = (
    Column(key="instructions", heading="ops", kind=Kind.COUNT, sums=True, priority=3),
    Column(key="flops", heading="FLOPs", kind=Kind.LARGE, sums=True, priority=1),
    Column(key="comm_bytes", heading="received", kind=Kind.BYTES, sums=True, priority=1),
    Column(key="time_s", heading="predicted", kind=Kind.SECONDS, sums=True),
    Column(key="share", heading="of all", kind=Kind.SHARE, sums=True, priority=2),
)
_FILES = (Column(key="file", heading="file"), *_FIGURES)
_LINES = (
    Column(key="location", heading="line", kind=Kind.LOCATION),
    *_FIGURES,
    Column(key="shape", heading="largest value", kind=Kind.SHAPE),
    Column(key="sharding", heading="lies as", kind=Kind.SHARDING),
)


def files_view(about: ReportedProgram) -> View:
    """A row for each source file, the dearest first; it opens to its lines.

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT y = f32[8] negate(x)\\n}"
    >>> [row["file"].text for row in files_view(ReportedProgram(hs.partition(hs.load(text)))).parts[0].rows]
    ['(unknown)']
    """
    files: dict[str, dict[str, Subtotal]] = defaultdict(dict)
    for line, part in about.partitioned.cost.by_location.items():
        # From the right: a path may have a colon of its own.
        files[line.rpartition(":")[0]][line] = part
    largest = _largest_by_line(about)
    dearest = sorted(files.items(), key=lambda item: -sum(part.time_s for part in item[1].values()))
    rows: list[Row] = [
        {
            "file": Shown(file or "(unknown)", file),
            **_figures(about, add_subtotals(lines.values())),
            "detail": View((_lines_table(about, lines, largest),)),
        }
        for file, lines in dearest
    ]
    table = Table(key="files", columns=_FILES, rows=rows, total="all", detail="detail")
    return View((table,))


def _lines_table(about: ReportedProgram, lines: dict[str, Subtotal], largest: dict[str, Instruction]) -> Table:
    rows = [_line_row(about, line, part, largest.get(line)) for line, part in lines.items()]
    return Table(key="lines", columns=_LINES, rows=rows, mesh=about.mesh, thread="thread")


def _line_row(about: ReportedProgram, line: str, part: Subtotal, value: Instruction | None) -> Row:
    return {
        "location": Shown(line or "(unknown)", line),
        **_figures(about, part),
        "shape": value.shape if value is not None else "",
        "sharding": about.sharding(value) if value is not None else "",
        "thread": Thread((line_place(line),)) if line else None,
    }


def _figures(about: ReportedProgram, part: Subtotal) -> Row:
    return {
        "instructions": part.instructions,
        **figures_of(part, "flops comm_bytes time_s", is_exact=part.is_exact),
        "share": about.share_of_time(part.time_s),
    }


def _largest_by_line(about: ReportedProgram) -> dict[str, Instruction]:
    found: dict[str, Instruction] = {}
    for inst in about.whole.instructions:
        known = found.get(inst.location)
        if inst.shape.is_array and (known is None or inst.shape.byte_size > known.shape.byte_size):
            found[inst.location] = inst
    return found
