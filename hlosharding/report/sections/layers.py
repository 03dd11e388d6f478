"""A program folded: what stands in it once, and the layers that stand in it again and again.

Floor: report.  The layers are found where the executor finds its functions (`layers.find_repeats`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hlosharding.ir import Computation, Instruction, Sameness, layers
from hlosharding.report.sections.reported import ReportedProgram

_NO_LINES = frozenset({"parameter", "tuple"})
_FUNCTIONS = 4
"""That name a block."""


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of a program's ops, in program order, and how often its like stands there."""

    ops: tuple[Instruction, ...]
    """Of the first time."""
    times: int
    members: tuple[Instruction, ...]
    """The ops of all times."""

    @property
    def direction(self) -> str:
        """ "backward" for what differentiation made."""
        backward = sum(op.is_backward for op in self.ops)
        return "backward" if 2 * backward > len(self.ops) else ""

    @property
    def functions(self) -> tuple[str, ...]:
        """The user's functions in which most of its ops stand, in program order."""
        names = [op.frames.function_name for op in self.ops]
        common = {name for name, _ in Counter(filter(None, names)).most_common(_FUNCTIONS)}
        return tuple(dict.fromkeys(name for name in names if name in common))

    @property
    def title(self) -> str:
        """What a reader calls it: "attention, mlp"."""
        return ", ".join(self.functions) or (self.ops[0].location or self.ops[0].opcode)


def blocks_of(about: ReportedProgram, computation: Computation) -> list[Block]:
    """The ops of a computation as blocks, in program order; repeated ones where they stand first.

    >>> import hlosharding as hs
    >>> opcodes = ("negate", "tanh", "exponential", "sine") * 40
    >>> ops = [f"  x{n + 1} = f32[8] {opcode}(x{n})\\n" for n, opcode in enumerate(opcodes)]
    >>> text = f"HloModule m\\nENTRY e {{\\n  x0 = f32[8] parameter(0)\\n{''.join(ops)}  ROOT r = f32[8] abs(x160)\\n}}"
    >>> about = ReportedProgram(hs.partition(hs.load(text)))
    >>> [(block.times, len(block.ops)) for block in blocks_of(about, about.whole.entry)]
    [(20, 8), (1, 1)]
    """
    lines = [inst for inst in computation.instructions if inst.opcode not in _NO_LINES]
    if not lines:
        return []
    place = {inst: number for number, inst in enumerate(lines)}
    references = [tuple((place.get(operand, -1), 0) for operand in inst.operands) for inst in lines]
    repeats = layers.find_repeats(_keys(about, lines), references, _alive(lines, place))
    repeat_at = {start: repeat for repeat in repeats for start in repeat.starts}
    return list(_in_order(lines, repeat_at))


def _keys(about: ReportedProgram, lines: Sequence[Instruction]) -> list[int]:
    """Equal numbers: equal ops with equal shardings."""
    sameness, numbers = Sameness(), dict[object, int]()
    return [numbers.setdefault((sameness.op(i), about.sharding(i)), len(numbers)) for i in lines]


def _alive(lines: Sequence[Instruction], place: dict[Instruction, int]) -> list[int]:
    """How many values cross the border before each line."""
    last = [max((place[user] for user in inst.users if user in place), default=n) for n, inst in enumerate(lines)]
    return layers.alive_before(enumerate(last), len(lines))


def _in_order(lines: Sequence[Instruction], repeat_at: dict[int, layers.Repeat]) -> Iterator[Block]:
    """Repeated blocks where they stand first; what lies between them, too, however often it is interrupted."""
    single: list[Instruction] = []
    at = 0
    while at < len(lines):
        repeat = repeat_at.get(at)
        if repeat is None:
            single.append(lines[at])
            at += 1
            continue
        if repeat.starts[0] == at:
            yield from _once(single)
            single = []
            members = [lines[start + n] for start in repeat.starts for n in range(repeat.length)]
            yield Block(tuple(lines[at : at + repeat.length]), len(repeat.starts), tuple(members))
        at += repeat.length
    yield from _once(single)


def _once(ops: Iterable[Instruction]) -> Iterator[Block]:
    """Ops that stand there once."""
    found = tuple(ops)
    if found:
        yield Block(found, 1, found)
