"""Schedules read from text, line by line; what `printer` prints, types of steps left out or not.

Floor: schedule.  The text is a stranger's: everything is checked, and an error names the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hlosharding.errors import ScheduleError
from hlosharding.executor import BoundaryArray, ShardMapProgram
from hlosharding.frontends import load
from hlosharding.ir import Shape
from hlosharding.schedule.op import Op
from hlosharding.schedule.run_size import check_named, check_run
from hlosharding.schedule.schedule import Schedule
from hlosharding.schedule.spelling import parse_op
from hlosharding.schedule.stage_program import StageProgram
from hlosharding.schedule.steps import Apply, Call, Free, Function, Parameter, Step, located
from hlosharding.schedule.value_type import ValueType, parse_type
from hlosharding.sharding import HloSharding, check_devices

_NO_OPS: Mapping[str, Op] = {}
_NAME = r"[A-Za-z_][\w.\-]*"
_FUNCTION = re.compile(rf"func @({_NAME})\((.*)\)\s*\{{$", re.DOTALL)
# Possessive repetitions: what does not match is looked at once.
_ARRAYS = r"\(((?:[^()]++|\([^()]*+\))*+)\)"
_NUMBERS = r"\{((?:\d{1,9}(?:,\d{1,9})*+)?+)\}"
_PROGRAM = re.compile(
    rf"program @({_NAME}){_ARRAYS} -> {_ARRAYS}(?: sums={_NUMBERS})?(?: donates={_NUMBERS})? devices=(\d{{1,7}}) <<<$"
)
_STEP = re.compile(r"(?:(%[^=]*+)=\s*+)?+(call\s++)?+(@?[A-Za-z][\w.\-]*+)\(([^)]*+)\)(.*)$")
_TYPES = re.compile(r"^(.*?)(?:\s:\s(.*))?$")
_ARRAY = re.compile(r"(\S+) as (\{.*\})$")


def parse_schedule(text: str, ops: Mapping[str, Op] = _NO_OPS) -> Schedule:
    """Read a schedule and verify it.

    `ops`: stage programs and users' ops that the text names and does not hold.  Raises ScheduleError with the line.

    >>> print(parse_schedule('''
    ... func @main(%x: f32[8] on {0}) {
    ...   %a, %b = split(%x) dim=0 parts=2 axis=micro  // two microbatches
    ...   %y = concat(%a, %b) dim=0
    ...   return %y
    ... }'''))
    func @main(%x: f32[8] on {0}) {
      %a, %b = split(%x) dim=0 parts=2 axis=micro : f32[4] on {0}, piece 0/2 of micro; f32[4] on {0}, piece 1/2 of micro
      %y = concat(%a, %b) dim=0 : f32[8] on {0}
      return %y
    }
    """
    check_named(text)
    reader = _Reader(text, dict(ops))
    reader.read_all()
    if "main" not in reader.functions:
        raise ScheduleError("no function @main", remedy="call the one to be run so")
    check_run(reader.functions)  # ahead of `verify`, which runs all steps
    made = Schedule(reader.functions, reader.ops)
    made.verify()
    return made


@dataclass(frozen=True, slots=True)
class _TextLine:
    number: int
    text: str

    @property
    def where(self) -> str:
        return f"line {self.number}"

    def place(self) -> str:
        """For messages."""
        return f"{self.where}: {self.text[:80]}"


class _Reader:
    def __init__(self, text: str, ops: dict[str, Op]) -> None:
        self.lines, self.ops = enumerate(text.splitlines(), 1), ops
        self.functions: dict[str, Function] = {}

    def read_all(self) -> None:
        while (line := self.next_line()) is not None:
            with located(line.place):
                self.read_item(line)

    def next_line(self) -> _TextLine | None:
        """The next line that says anything."""
        for number, text in self.lines:
            if said := text.partition("//")[0].strip():
                return _TextLine(number, said)
        return None

    def read_item(self, line: _TextLine) -> None:
        if line.text.startswith("program "):
            self.read_program(line)
        elif line.text.startswith("func "):
            self.read_function(line)
        else:
            raise ScheduleError("neither a function nor a program", remedy="begin with func @main(...) {")

    # Programs

    def read_program(self, line: _TextLine) -> None:
        match = _PROGRAM.match(line.text)
        if match is None:
            raise ScheduleError("no head of a program", remedy="program @name(f32[8] as {...}) -> (...) devices=2 <<<")
        word, inputs, outputs, sums, donates, devices = match.groups()
        if word in self.ops:
            raise ScheduleError(f"@{word} is there twice", remedy="name one otherwise")
        check_devices(int(devices))
        module = load("".join(f"{text}\n" for text in self.program_lines()), format="hlo")  # a text, and never a path
        module.num_partitions = int(devices)
        program = ShardMapProgram(module, inputs=_parse_arrays(inputs), outputs=_parse_arrays(outputs))
        self.ops[word] = StageProgram(word, program, sums=_parse_numbers(sums), donates=_parse_numbers(donates))

    # Not by `next_line`, which would cut strings of the HLO at a `//`.
    def program_lines(self) -> Iterator[str]:
        for _, text in self.lines:
            if text.strip() == ">>>":
                return
            yield text
        raise ScheduleError("the program has no end", remedy="end it with a line >>>")

    # Functions

    def read_function(self, line: _TextLine) -> None:
        head = line.text
        while not head.endswith("{") and (more := self.next_line()) is not None:
            head += " " + more.text
        match = _FUNCTION.match(head)
        if match is None:
            raise ScheduleError("no head of a function", remedy="func @main(%x: f32[8] on {0}, %y: f32[] on {1}) {")
        name, parameters = match.groups()
        if name in self.functions:
            raise ScheduleError(f"@{name} is there twice", remedy="name one otherwise")
        steps: list[Step] = []
        results: tuple[str, ...] | None = None
        while (step := self.next_line()) is not None and step.text != "}":
            if results is not None:
                raise ScheduleError("a step after return", where=step.where)
            if step.text.split()[0] == "return":
                results = _parse_names(step.text.removeprefix("return"))
            else:
                with located(step.place):
                    steps.append(self.read_step(step))
        if step is None or results is None:
            raise ScheduleError(f"@{name} has no {'end' if step is None else 'return'}", where=line.where)
        self.functions[name] = Function(name, tuple(_parse_parameters(parameters)), tuple(steps), results)

    def read_step(self, line: _TextLine) -> Step:
        if line.text.startswith("free "):
            return Free(_parse_names(line.text.removeprefix("free ")), line.where)
        match = _STEP.match(line.text)
        if match is None:
            raise ScheduleError("no step", remedy="write it like %y = send(%x) to={1}")
        results, call, word, operands, rest = match.groups()
        types = _TYPES.match(rest)
        attributes, stated = types.groups() if types else (rest, None)
        kinds = tuple(parse_type(part) for part in stated.split(";")) if stated else ()
        sides = _parse_names(operands), _parse_names(results or "")
        if call:
            return Call(word.removeprefix("@"), *sides, kinds, line.where)
        return Apply(self.find_op(word, attributes), *sides, kinds, line.where)

    def find_op(self, word: str, attributes: str) -> Op:
        if not word.startswith("@"):
            return parse_op(word, attributes)
        found = self.ops.get(word[1:])
        if found is None:
            known = ", ".join(f"@{each}" for each in self.ops) or "none"
            remedy = f"write it above, as Schedule.to_text does, or give it in `ops`; there are {known}"
            raise ScheduleError(f"no program {word}", remedy=remedy)
        if attributes.strip():
            raise ScheduleError(f"{word} has no attributes: {attributes.strip()!r}")
        return found


def _parse_names(text: str) -> tuple[str, ...]:
    """Raises ScheduleError for what is no name."""
    found = tuple(part.strip() for part in text.split(",")) if text.strip() else ()
    for name in found:
        if not re.fullmatch(rf"%({_NAME}|\d+)", name):
            raise ScheduleError(f"no name: {name!r}", remedy="write it like %x_1")
    return tuple(name[1:] for name in found)


def _parse_parameters(text: str) -> Iterator[Parameter]:
    # Types have commas, too: a parameter begins with the `%` of its name.
    for part in re.split(r",\s*(?=%)", text.strip()) if text.strip() else ():
        name, _, stated = part.partition(":")
        kind: ValueType | None = parse_type(stated) if stated.strip() else None
        names = _parse_names(name)
        if len(names) != 1:
            raise ScheduleError(f"no parameter: {part[:80]!r}", remedy="write it like %x: f32[8] on {0}")
        yield Parameter(names[0], kind)


def _parse_arrays(text: str) -> list[BoundaryArray]:
    found: list[BoundaryArray] = []
    for part in text.split(";") if text.strip() else ():
        match = _ARRAY.match(part.strip())
        if match is None:
            raise ScheduleError(f"no array: {part.strip()!r}", remedy="write it like f32[8,4] as {replicated}")
        shape, sharding = Shape.parse(match.group(1)), HloSharding.parse(match.group(2))
        sharding.validate(shape.dims)
        found.append(BoundaryArray(shape, sharding))
    return found


def _parse_numbers(text: str | None) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split(",") if n) if text else ()
