"""What each function of the source takes: time by who calls it, bytes received, bytes held at the worst moment.

Floor: report.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from hlosharding.ir import Instruction, Stack
from hlosharding.report.figures import as_seconds
from hlosharding.report.flame import Calls, flame_svg, treemap_svg
from hlosharding.report.model import Column, Kind, Picture, Row, Table, Thread, View, fields_of
from hlosharding.report.places import function_place, line_place
from hlosharding.report.sections.memory import alive_at_worst
from hlosharding.report.sections.reported import ReportedProgram

Path = tuple[str, ...]
"""Of functions that call each other, the outermost first."""
_UNKNOWN, _ARGUMENTS = "(no function)", "(arguments)"
_FUNCTIONS = (
    Column(key="function", heading="function"),
    Column(key="time_s", heading="with what it calls", kind=Kind.SECONDS),
    Column(key="own_s", heading="itself", kind=Kind.SECONDS, sums=True),
    Column(key="share", heading="of all", kind=Kind.SHARE, sums=True, priority=2),
    Column(key="comm_bytes", heading="received", kind=Kind.BYTES, sums=True),
    Column(key="held_bytes", heading="held at the peak", kind=Kind.BYTES, sums=True),
)


@dataclass(slots=True)
class _Sums:
    time_s: float = 0.0
    own_s: float = 0.0
    comm_bytes: float = 0.0
    held_bytes: int = 0


def functions_view(about: ReportedProgram) -> View:
    """A flame graph of the priced time, two maps of bytes, and the table they are drawn from.

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT y = f32[8] negate(x)\\n}"
    >>> [row["function"] for row in functions_view(ReportedProgram(hs.partition(hs.load(text)))).parts[-1].rows]
    ['(no function)', '(arguments)']
    """
    paths = _Paths(about)
    sums, lines, root = defaultdict[str, _Sums](_Sums), defaultdict[str, set[str]](set), Calls("the step")
    for row in about.partitioned.cost.rows:
        path = paths.of(row.instruction)
        root.add(path, row.time_s)
        for name in path:
            sums[name].time_s += row.time_s
        sums[path[-1]].own_s += row.time_s
        sums[path[-1]].comm_bytes += row.comm_bytes
        lines[path[-1]].add(row.instruction.location)
    for life in alive_at_worst(about)[1]:
        name = _ARGUMENTS if life.instruction.opcode == "parameter" else paths.of(life.instruction)[-1]
        sums[name].held_bytes += life.nbytes
    return View(tuple(_parts(sums, lines, root)))


def _parts(sums: dict[str, _Sums], lines: dict[str, set[str]], root: Calls) -> Iterator[Picture | Table]:
    said = ", ".join(f"{name} {as_seconds(one.own_s)}" for name, one in _dearest(sums)[:5])
    yield Picture(flame_svg(root), f"itself: {said}", "Time by function, callers above what they call")
    received = [(name, one.comm_bytes) for name, one in sums.items()]
    yield Picture(treemap_svg(received), title="Bytes received, by function")
    held = [(name, one.held_bytes) for name, one in sums.items()]
    yield Picture(treemap_svg(held), title="Bytes held when a device holds most, by function")
    rows = [_row(name, one, lines[name], root.seconds) for name, one in _dearest(sums)]
    yield Table(key="functions", columns=_FUNCTIONS, rows=rows, total="all", thread="thread")


def _dearest(sums: dict[str, _Sums]) -> list[tuple[str, _Sums]]:
    return sorted(sums.items(), key=lambda item: (-item[1].own_s, -item[1].held_bytes))


def _row(name: str, one: _Sums, lines: set[str], whole_s: float) -> Row:
    return {
        "function": name,
        **fields_of(one, "time_s own_s"),
        "share": one.own_s / whole_s if whole_s else 0.0,
        **fields_of(one, "comm_bytes held_bytes"),
        "thread": Thread((function_place(name),), tuple(line_place(line) for line in sorted(lines))),
    }


class _Paths:
    """Of instructions, without the functions that all have in common: whoever calls the step is no part of it."""

    def __init__(self, about: ReportedProgram) -> None:
        self._known: dict[Stack, Path] = {}
        stacks = {row.instruction.frames for row in about.partitioned.cost.rows}
        paths = [path for stack in stacks if (path := _path(stack)) != (_UNKNOWN,)]
        common = takewhile(lambda names: len(set(names)) == 1, zip(*paths, strict=False))
        self._shared = sum(1 for _ in common)

    def of(self, inst: Instruction) -> Path:
        stack = inst.frames
        if stack not in self._known:
            path = _path(stack)
            # Of an op in a function that all have in common that function stays: no path is empty.
            self._known[stack] = path[min(self._shared, len(path) - 1) :]
        return self._known[stack]


def _path(stack: Stack) -> Path:
    names = [name for frame in reversed(stack.of_user) if (name := frame.function_name).isidentifier()]
    return tuple(dict.fromkeys(names)) or (_UNKNOWN,)
