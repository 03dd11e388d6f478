"""The kernels of a program: which values they keep to themselves, and which of them are one and write several results.

Floor: cost.  On accelerators, in the spirit of XLA's multi-output fusion: kernels that go over the same elements and
read the same array, or each other's elements, are one, unless one of them waits for what another kernel makes of the
other.  Kernels have levels, each behind all whose results it needs; only those of one level are joined, so that none
ever waits for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from hlosharding.cost.fusing import (
    POINTWISE,
    Reads,
    find_hidden,
    find_ops_inside,
    find_read_in_place,
    hide_more,
    is_fused,
    kernel_bytes,
    kernel_reads,
    num_elements,
)
from hlosharding.ir import RENAMES, Computation, Instruction, Module

_MOST_RESULTS = 32
"""Of one kernel.  XLA bounds what one reads and writes together, at 96; a third of that is for results.  No group of a
step of two of Llama's layers has more than 8: with 8, 16, 64 or 1,000 it is priced the same, to the last digit."""

Before = dict[Instruction, set[Instruction]]
"""Of each kernel that is one with others before it, by the op that it ends with: arrays that those read or made."""


class Kernel(NamedTuple):
    """What runs where the last of its ops stands."""

    nbytes: float
    """Read and written."""
    others: Iterable[Instruction]
    """Ops that it computes beside the last one."""
    starts: bool = True
    """Or is it one with a kernel that has started?"""


class Kernels(dict[Computation, dict[Instruction, Reads]]):
    """Of each computation of a module the values that are never written to memory, and what a kernel reads that
    computes them: found when it is asked for, and once.

    `joins`: as compilers for accelerators do, which also keep rows in a kernel that reduces them.

    >>> import hlosharding as hs
    >>> module = hs.load("HloModule m\\nENTRY e {\\n x = f32[8] parameter(0)\\n y = f32[8] negate(x)\\n"
    ...     " z = f32[8] tanh(x)\\n ROOT t = (f32[8], f32[8]) tuple(y, z)\\n}")
    >>> kernels = Kernels(module, joins=True)
    >>> [kernels.kernel_ending_in(module.by_name(name), 64.0).nbytes for name in "yz"]
    [64.0, 32.0]
    """

    def __init__(self, module: Module, *, joins: bool = False) -> None:
        super().__init__()
        self._fuses, self._joins = not is_fused(module), joins
        self._before: Before = {}

    def __missing__(self, computation: Computation) -> dict[Instruction, Reads]:
        hidden = find_hidden(computation, is_accelerator=self._joins) if self._fuses else {}
        # With this, rows kept inside, and rates as measured, steps on an H100 are priced 5 % off, not 34.
        if self._fuses and self._joins:
            hidden, before = join_kernels(computation, hidden)
            self._before |= before
        self[computation] = hidden
        return hidden

    def kernel_ending_in(self, op: Instruction, nbytes: float) -> Kernel | None:
        """The kernel that ends in an op which alone moves `nbytes`; None: another one computes it."""
        hidden = self[op.computation]
        if op in hidden:
            return None
        before = self._before.get(op, ())
        moved = kernel_bytes(op, nbytes, hidden, before)
        return Kernel(moved, find_ops_inside(op, hidden), op not in self._before)


def join_kernels(computation: Computation, hidden: dict[Instruction, Reads]) -> tuple[dict[Instruction, Reads], Before]:
    """Join the kernels of a computation of which some values are `hidden`: what is hidden then."""
    groups = _Joining(computation, hidden).find_groups()
    inside = {op for group in groups for op in _find_kept_inside(group, computation, hidden)}
    if inside:
        hidden = hide_more(computation, hidden, inside)
    return hidden, _find_read_before(groups, hidden)


Key = tuple[int, int, Instruction]
"""A level, over how many elements kernels go, and an array that they read or make."""


class _KernelGroup(NamedTuple):
    """Kernels that are one, by the ops with which they end."""

    ops: list[Instruction]
    keys: list[Key]


def _array_behind(value: Instruction) -> Instruction:
    """The array that a value may be another name of."""
    while value.opcode in RENAMES:
        value = value.operands[0]
    return value


class _Joining:
    """Puts kernels into groups, each at the first level that it can have."""

    def __init__(self, computation: Computation, hidden: Mapping[Instruction, Reads]) -> None:
        self.levels: dict[Instruction, int] = {}
        """Of arrays, and of other names of them."""
        self.at: dict[Key, _KernelGroup] = {}
        self.places = {op: place for place, op in enumerate(computation.instructions)}
        for op in computation.instructions:
            if op in hidden:
                continue
            if op.opcode in RENAMES and op is not computation.root:
                self.levels[op] = self.levels[op.operands[0]]
            elif op.opcode in POINTWISE or op.opcode == "reduce":
                self._place(op, hidden)
            else:
                self.levels[op] = max([self.levels[value] for value in kernel_reads(op, hidden)], default=-1) + 1

    def find_groups(self) -> list[list[Instruction]]:
        """Those of several kernels, in the program's order."""
        # By identity: a group stands there under several keys, and its lists have no hash.
        found = {id(group): group.ops for group in self.at.values() if len(group.ops) > 1}.values()
        return [sorted(ops, key=self.places.__getitem__) for ops in found]

    def _place(self, op: Instruction, hidden: Mapping[Instruction, Reads]) -> None:
        size = num_elements(op)
        values = [_array_behind(value) for value in find_read_in_place(op, hidden) if value.shape.size == size]
        # Behind what it reads; beside what makes, element by element, what it reads so.
        beside = {value for value in values if value.opcode in POINTWISE}
        reads = kernel_reads(op, hidden)
        level = max([self.levels[value] + (_array_behind(value) not in beside) for value in reads], default=0)
        self.levels[op] = level
        self._join(_KernelGroup([op], [(level, size, value) for value in (*values, op)]))

    def _join(self, group: _KernelGroup) -> None:
        """With those that read or make what it does, which are one then, too."""
        others = {id(self.at[key]): self.at[key] for key in group.keys if key in self.at}.values()
        if len(group.ops) + sum(len(other.ops) for other in others) <= _MOST_RESULTS:
            for other in others:
                group.ops.extend(other.ops)
                group.keys.extend(other.keys)
        # Where it would be too large it stays by itself, and who comes later joins this one, not the full ones.
        for key in group.keys:
            self.at[key] = group


def _find_kept_inside(
    group: list[Instruction], computation: Computation, hidden: Mapping[Instruction, Reads]
) -> Iterable[Instruction]:
    """Values that nobody reads but the kernels of their group."""
    ends = set(group)
    for op in group:
        waiting, is_inside = list(op.users), op is not computation.root and bool(op.users)
        while waiting and is_inside:
            user = waiting.pop()
            if user in hidden or (user.opcode in RENAMES and not user.is_root):
                waiting += user.users
            else:
                is_inside = user in ends
        if is_inside:
            yield op


def _find_read_before(groups: Iterable[list[Instruction]], hidden: Mapping[Instruction, Reads]) -> Before:
    before: Before = {}
    for group in groups:
        ends = [op for op in group if op not in hidden]
        seen: set[Instruction] = set()
        for number, op in enumerate(ends):
            reads = kernel_reads(op, hidden)
            if number:
                before[op] = {value for value in reads if _array_behind(value) in seen}
            seen.update(map(_array_behind, reads), [op])
    return before
