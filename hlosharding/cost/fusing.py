"""Which values a fusing compiler never writes to memory: the difference between HLO as text and HLO as kernels.

Floor: cost.  A guess in the spirit of XLA's instruction and priority fusion, the same for every program: cheap
producers disappear into the kernels that read them, where fewer bytes move so.  A module that XLA has fused already is
taken as it stands.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from hlosharding.cost.work import PART_READERS, TRANSCENDENTAL
from hlosharding.ir import ELEMENTWISE, Computation, Instruction, Module

POINTWISE = ELEMENTWISE | {"map"}
"""Ops that make each element of the same elements of their operands."""
_NAMES = frozenset({"bitcast", "reshape"})
"""Other names for a value: there or not as the value is."""
_PART = frozenset({"broadcast", "dynamic-slice", "iota", "reverse", "slice", "transpose"})
_CHEAP = (ELEMENTWISE - TRANSCENDENTAL) | _PART
_ONCE = TRANSCENDENTAL | frozenset({"concatenate", "copy", "divide", "gather", "pad", "remainder"})
"""Fused where there is a single reader; nobody computes these twice."""
_READERS = _CHEAP | _ONCE | frozenset({"dynamic-update-slice", "map", "reduce", "scatter"})
_IN_PLACE = frozenset({"dynamic-update-slice", "scatter"})
_READS_TRANSPOSED = frozenset({"convolution", "dot"})
"""Products read their operands in any layout."""
_MOST_READ = 96
"""Arrays that one kernel reads, as XLA bounds it."""

Reads = dict[Instruction, int]
"""Values in memory, and how many bytes a kernel reads of each."""


class Kernel(NamedTuple):
    """What runs where the last of its ops stands."""

    nbytes: float
    """Read and written."""
    others: Iterable[Instruction]
    """Ops that it computes beside the last one."""


def is_fused(module: Module) -> bool:
    """Has XLA fused this module already?"""
    return any(i.opcode == "fusion" for i in module.instructions)


class Hidden(dict[Computation, dict[Instruction, Reads]]):
    """Of each computation of a module what is `absorbed`: found when it is asked for, and once."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        self.fuses = not is_fused(module)

    def __missing__(self, computation: Computation) -> dict[Instruction, Reads]:
        found = self[computation] = absorbed(computation) if self.fuses else {}
        return found

    def kernel(self, op: Instruction, nbytes: float) -> Kernel | None:
        """The kernel that ends in an op which alone moves `nbytes`; None: another one computes it."""
        hidden = self[op.computation]
        if op in hidden:
            return None
        return Kernel(kernel_bytes(op, nbytes, hidden), computed_inside(op, hidden))


def absorbed(computation: Computation) -> dict[Instruction, Reads]:
    """Instructions whose values need no memory of their own, and what a kernel reads that computes them.

    >>> import hlosharding.ir as ir
    >>> b = ir.Builder("m")
    >>> main = b.computation("main")
    >>> x = main.parameter(0, ir.Shape.array("f32", (8,)))
    >>> y = main.add("negate", x.shape, (x,))
    >>> z = main.add("abs", x.shape, (y,))
    >>> _ = b.finish(main)
    >>> {i.name: reads == {x: 32} for i, reads in absorbed(main.computation).items()}
    {'negate': True}
    """
    root = computation.root
    hidden: dict[Instruction, Reads] = {}
    for i in computation.instructions:
        if i is root:
            continue
        if i.opcode in _NAMES:
            if i.operands[0] in hidden:
                hidden[i] = hidden[i.operands[0]]
        elif i.opcode == "constant":
            if not i.shape.dims:
                hidden[i] = {}
        elif i.opcode in _CHEAP or i.opcode in _ONCE:
            readers = _kernels_that_read(i, root)
            if readers == 1 or (readers and i.opcode in _CHEAP):
                reads = read_by(i, hidden)
                if len(reads) <= _MOST_READ and _moves_less(sum(reads.values()), i.shape.byte_size, readers):
                    hidden[i] = reads
    return hidden


def kernel_bytes(op: Instruction, nbytes: float, hidden: Mapping[Instruction, Reads]) -> float:
    """What the kernel that ends in `op` moves, of which the op alone takes `nbytes`; 0 for one inside a kernel."""
    if op in hidden:
        return 0.0
    for place, operand in enumerate(op.operands):
        if operand in hidden:
            nbytes -= _share(op, place) * operand.shape.byte_size
    further = (read for source, read in read_by(op, hidden).items() if source not in op.operands)
    return max(0.0, nbytes) + sum(further)


def computed_inside(op: Instruction, hidden: Container[Instruction]) -> set[Instruction]:
    """The `hidden` ops that the kernel which ends in `op` computes on its way."""
    found: set[Instruction] = set()
    waiting = [*op.operands]
    while waiting:
        operand = waiting.pop()
        if operand in hidden and operand not in found:
            found.add(operand)
            waiting += operand.operands
    return found


def read_in_place(op: Instruction, hidden: Mapping[Instruction, Reads]) -> list[Instruction]:
    """Values of which the kernel that ends in `op` reads the element that it writes, and no other: it may write there.

    >>> import hlosharding.ir as ir
    >>> b = ir.Builder("m")
    >>> main = b.computation("main")
    >>> x, y = (main.parameter(n, ir.Shape.array("f32", (8, 8))) for n in range(2))
    >>> z = main.add("negate", x.shape, (x,))
    >>> turned = main.add("transpose", x.shape, (y,), dimensions=(1, 0))
    >>> read_in_place(main.add("add", x.shape, (z, turned)), {z: {x: 256}, turned: {y: 256}})
    [%param_0 = f32[8,8] parameter()]
    """
    found: dict[Instruction, None] = {}
    elsewhere: set[Instruction] = set()
    waiting, seen = [op], {op}
    while waiting:
        for operand in waiting.pop().operands:
            if operand not in hidden:
                found[operand] = None
            elif operand.opcode not in POINTWISE:
                elsewhere.update(hidden[operand])
            elif operand not in seen:
                seen.add(operand)
                waiting.append(operand)
    return [value for value in found if value not in elsewhere]


def read_by(op: Instruction, hidden: Mapping[Instruction, Reads]) -> Reads:
    """Operands in memory, and what is read to compute those that are not."""
    reads: Reads = {}
    for place, operand in enumerate(op.operands):
        share = _share(op, place)
        for source, nbytes in hidden.get(operand, {operand: operand.shape.byte_size}).items():
            reads[source] = max(reads.get(source, 0), int(share * nbytes))
    return reads


def _share(op: Instruction, place: int) -> float:
    """The part of an operand that an op reads."""
    if place or op.opcode not in PART_READERS:
        return 1.0
    return min(1.0, op.shape.size / max(1, op.operands[0].shape.size))


def _moves_less(read: int, written: int, readers: int) -> bool:
    """Are fewer bytes moved where all readers compute a value again than where it is written and read?"""
    return readers * read < read + written + readers * written


def _kernels_that_read(i: Instruction, root: Instruction) -> int:
    """How many readers could compute the value themselves; 0 where one of them cannot."""
    readers = 0
    stack = [(i, user) for user in i.users]
    while stack:
        value, user = stack.pop()
        if user.opcode in _NAMES:
            if user is root:
                return 0
            stack += [(user, further) for further in user.users]
        elif _reads_in_kernel(user, value, i.opcode):
            readers += 1
        else:
            return 0
    return readers


def _reads_in_kernel(reader: Instruction, value: Instruction, opcode: str) -> bool:
    if reader.opcode in _READERS:
        return not (reader.opcode in _IN_PLACE and reader.operands[0] is value)
    return opcode == "transpose" and reader.opcode in _READS_TRANSPOSED
