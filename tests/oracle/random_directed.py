"""Modules that aim at cells of the coverage table: one op in a neighbourhood that brings a kind at a level to it.

The op comes from `opcode_modules`; sizes, shardings, device orders and the way in which the kind arrives are random.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.oracle.coverage import Cell
from tests.oracle.opcode_modules import REGIONS, bodies
from tests.oracle.policy_cells import possible_cells
from tests.oracle.random_levels import array_of, in_group, late_operand, late_reader, late_value, one_of, tuple_parts
from tests.oracle.random_modules import ModuleWriter

_LINE = re.compile(r"^  (?:ROOT )?%([\w.]+) = (.+?) ([\w-]+)\(([^()]*)\)(.*)$")
_GIVEN = re.compile(r", sharding=(\{\{.*\}\}|\{[^{}]*\})")
_NAME = re.compile(r"%([A-Za-z_]\w*)")
_OPERAND = re.compile(r"[A-Za-z_][\w.]*")
_PARAMETER = re.compile(r" parameter\(\d+\)")
_SIZE = re.compile(r"(?<=[\[{,:])(16|128)(?=[\]},])")
_NOISE = 0.05
_FIRST: dict[tuple[str, str], int] = {}
"""The level at which an opcode first gives a kind to its operands."""
for _opcode, _direction, _level, _kind in sorted(possible_cells(), reverse=True):
    if _direction == "B":
        _FIRST[_opcode, _kind] = _level


@dataclass(frozen=True, slots=True)
class _Line:
    name: str
    shape: str
    opcode: str
    operands: list[str]
    rest: str

    def __str__(self) -> str:
        operands = ", ".join(f"%{o}" if _OPERAND.fullmatch(o) else o for o in self.operands)
        return f"  %{self.name} = {self.shape} {self.opcode}({operands}){self.rest}"


def directed_module(seed: int, cells: list[Cell], *, unreduced: bool = False) -> str:
    """A module with a neighbourhood for each of those cells."""
    w = ModuleWriter(seed, unreduced=unreduced)
    w.density = 0.0
    w.devices = w.random.choice((4, 4, 8, 8, 6, 12, 16))
    results = [result for cell in cells for result in _neighbourhood(w, cell)]
    shapes, names = ", ".join(shape for _, shape in results), ", ".join(f"%{name}" for name, _ in results)
    entry = "ENTRY %main {\n" + "\n".join(w.body.lines) + f"\n  ROOT %root = ({shapes}) tuple({names})\n}}\n"
    return f"HloModule directed\n\n{''.join(r + chr(10) for r in w.regions)}{entry}"


def _neighbourhood(w: ModuleWriter, cell: Cell) -> list[tuple[str, str]]:
    """Write the op and what surrounds it; returns results (name, shape) for the root."""
    opcode, direction, _, kind = cell
    forms = bodies("call" if opcode == "parameter" else opcode)
    if kind == "M":
        # One device travels only with a tuple.
        forms = [form for form in forms if "%op = (" in form] or [form for form in forms if "(%t" in form] or forms
    lines, regions = _renamed(w, w.random.choice(forms))
    w.regions += regions
    shapes = {line.name: line.shape for line in lines}
    target, way = _target(lines, shapes), _way(w, cell)
    results: list[tuple[str, str]] = []
    for line in lines:
        if line.name.startswith("root_"):
            continue
        if line.name.startswith("after_"):
            results.append((line.name, line.shape))
        is_op = line.name.startswith("op_")
        written = _rewired(w, line, shapes, cell, way) if line is target else line
        text = str(written) if is_op or line is target else _noisy(w, written)
        w.body.lines.append(_PARAMETER.sub(f" parameter({w.parameters})", text))
        if direction == "B" and is_op:
            _wake_up(w, line, shapes, cell, way)
        elif direction == "F" and line is target and not is_op and w.random.random() < 0.4:
            w.body.lines[-1] += f", sharding={_written(w, line.shape, kind)}"
    return results


def _target(lines: list[_Line], shapes: dict[str, str]) -> _Line:
    """The op, or what feeds it where its operand must be what it is (the start of a done, a token)."""
    op = next(line for line in lines if line.name.startswith("op_"))
    fixed = op.opcode.endswith(("-done", "-update"))
    if op.operands and (fixed or not _places(op, shapes)):
        return next((line for line in lines if line.name == op.operands[0]), op)
    return op


def _renamed(w: ModuleWriter, body: str) -> tuple[list[_Line], list[str]]:
    """The lines without shardings, under names and sizes of their own, and the computations that they call."""
    suffix, size = f"_{w.fresh('n').partition('.')[2]}", w.random.choice((5, 6, 8, 12, 16, 16, 24))
    sizes = {"16": str(size), "128": str(8 * size)}

    def own(text: str) -> str:
        return _SIZE.sub(lambda found: sizes[found[1]], _NAME.sub(rf"%\1{suffix}", text))

    lines = []
    for text in body.splitlines():
        bare = text if '"Sharding"' in text else _GIVEN.sub("", text)
        found = _LINE.match(own(bare))
        assert found, text
        operands = [o.strip().lstrip("%") for o in found[4].split(", ")] if found[4] else []
        lines.append(_Line(found[1], found[2], found[3], operands, found[5]))
    called = re.findall(r"%(\w+) \([^\n]*\{(.*?\n\})", REGIONS, re.DOTALL)
    return lines, [own(f"%{name} {{{text}\n") for name, text in called if f"%{name}" in body]


def _noisy(w: ModuleWriter, line: _Line) -> str:
    """Now and then an annotation that nobody asked for."""
    free = "sharding=" in line.rest or "[" not in line.shape or tuple_parts(line.shape) is not None
    if free or "<=" in line.shape or w.random.random() > _NOISE:
        return str(line)
    return f"{line}, sharding={w.sharding(array_of(line.shape)[0])}"


def _deliverable(shape: str) -> bool:
    return shape != "token[]" and "<=" not in shape


def _places(line: _Line, shapes: dict[str, str]) -> list[int]:
    return [n for n, name in enumerate(line.operands) if name in shapes and _deliverable(shapes[name])]


def _way(w: ModuleWriter, cell: Cell) -> str:
    """How an op gets what it gives to its operand: written on it, from a shard group, or from a user."""
    opcode, _, level, kind = cell
    written = 0.5 if level == _FIRST.get((opcode, kind), level) else 0.3 if level == 2 else 0.0
    grouped = 0.0 if kind in "RM" else 0.5
    roll = w.random.random()
    return "written" if roll < written else "group" if roll < written + (1 - written) * grouped else "user"


def _rewired(w: ModuleWriter, line: _Line, shapes: dict[str, str], cell: Cell, way: str) -> _Line:
    """The op with an operand that brings the kind (forward), or one that can take it (backward)."""
    _, direction, level, kind = cell
    operands, places = list(line.operands), _places(line, shapes)
    if not places:
        return line
    place = w.random.choice(places[:1] * 2 + places)
    if direction == "F":
        late = [n for n in places if n == place or (w.random.random() < 0.2 and kind != "M")]
    else:
        late_taker = level == 2 and (way == "written" or w.random.random() < 0.1)
        operands[place] = _receiver(w, operands[place], shapes[operands[place]], late_taker)
        late = [n for n in places if n != place and w.random.random() < 0.2 and kind != "M"]
    for n in late:
        operands[n] = late_operand(w, shapes[operands[n]], kind, level)
    return _Line(line.name, line.shape, line.opcode, operands, line.rest)


def _receiver(w: ModuleWriter, name: str, shape: str, late: bool) -> str:
    """A value of that shape that takes shardings from its users: a broadcast, only from level 2 on, or a copy."""
    if late and tuple_parts(shape) is None:
        dims, element_type = array_of(shape)
        if dims:
            scalar = w.emit("constant", (), one_of(element_type), "", element_type, free=True)
            return w.emit("broadcast", dims, f"%{scalar.name}", "dimensions={}", element_type, free=True).name
    copy = w.fresh("copy")
    w.body.lines.append(f"  %{copy} = {shape} copy(%{name})")
    return copy


def _wake_up(w: ModuleWriter, op: _Line, shapes: dict[str, str], cell: Cell, way: str) -> None:
    """Let the op itself get the kind at that level."""
    _, _, level, kind = cell
    if "sharding=" in op.rest:
        return
    if way == "written" or op.shape == "token[]":
        # An outfeed is annotated for its operands.
        shape = f"({shapes[op.operands[0]]}, token[])" if op.opcode == "outfeed" else op.shape
        w.body.lines[-1] += f", sharding={_written(w, shape, kind)}"
    elif "<=" in op.shape or (way == "group" and tuple_parts(op.shape) is None):
        dims, element_type = array_of(op.shape.replace("<=", ""))
        late = late_value(w, dims, element_type, kind, level)
        member = w.emit("copy", dims, f"%{late.name}", "", element_type, free=True)
        at = next(n for n, line in enumerate(w.body.lines) if line.startswith(f"  %{op.name} = "))
        w.body.lines[at] += f", sharding={in_group(w, member)}"
    else:
        late_reader(w, op.name, op.shape, kind, level)


def _written(w: ModuleWriter, shape: str, kind: str) -> str:
    """A sharding for a shape, one of its leaves (or all, if that must be) of the kind."""
    leaves = re.findall(r"(\w+)\[([^\]]*)\]", shape.replace("<=", ""))
    chosen = w.random.randrange(len(leaves))
    texts = [
        w.of_kind(kind if n == chosen or kind in "NR" else w.random.choice("RT"), array_of(f"{word}[{dims}]")[0])
        for n, (word, dims) in enumerate(leaves)
    ]
    return "{" + ", ".join(texts) + "}" if shape.startswith("(") else texts[0]
