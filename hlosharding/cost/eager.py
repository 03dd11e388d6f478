"""Kernels of a framework that compiles nothing, as PyTorch runs a model: one for each op that the program calls.

Floor: cost.  What one source line computes element by element is one op there, and so is what a function under
`jax.jit` or a `jax.named_scope` does, if it holds no product (`jax.nn.gelu`, a norm, an update of all weights):
forward, backward and computed again each.  A product, a gather, a collective are one by themselves.  Between ops every
value is in memory.  Views, integer scalars and what is put into a stack of layers cost nothing: a framework has
pointers, Python's own numbers, and a tensor for each layer.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from hlosharding.cost.fusing import POINTWISE, Reads, kernel_bytes, kernel_reads
from hlosharding.cost.kernels import Kernel, Kernels
from hlosharding.cost.work import FREE
from hlosharding.ir import RENAMES, Computation, Instruction, Module

_GROUPED = POINTWISE | {"reduce"}
_VIEWS = RENAMES | {"broadcast", "constant", "dynamic-slice", "iota", "reverse", "slice", "transpose"}
_ALONE = frozenset({"convolution", "custom-call", "dot", "while"})
"""What no function of one kernel holds."""

_NAME = re.compile(r"(?:\w+\()*([^()]*)\)*")
"""In a component of an op name, as `jvp(gelu)`, what the program calls it; nothing in `jvp()`."""
_CONTROL = frozenset({"", "body", "checkpoint", "closed_call", "cond", "rematted_computation", "while"})
"""What JAX itself calls so."""

Group = tuple[object, int]
"""What is called, and behind how many other kernels."""


class EagerKernels(Kernels):
    """As `Kernels`, where nothing is compiled.

    >>> import hlosharding as hs
    >>> ops = "x = f32[8] parameter(0)\\n y = f32[8] negate(x)\\n ROOT z = f32[8] abs(y)"
    >>> module = hs.load(f"HloModule m\\nENTRY e {{\\n {ops}\\n}}")
    >>> hs.cost(module).num_kernels, hs.cost(module, runtime="eager").num_kernels
    (1.0, 2.0)
    """

    def __init__(self, module: Module) -> None:
        super().__init__(module)
        self._wide = frozenset(_prefixes(op for op in module.instructions if op.opcode in _ALONE))
        self._members: dict[Instruction, tuple[Instruction, ...]] = {}
        """By the last of them, the ops of one kernel."""

    def __missing__(self, computation: Computation) -> dict[Instruction, Reads]:
        groups = self._group_ops(computation)
        found = self[computation] = _find_hidden(computation, groups)
        members: defaultdict[Group, list[Instruction]] = defaultdict(list)
        for op, group in groups.items():
            members[group].append(op)
        self._members |= {ops[-1]: tuple(ops) for ops in members.values()}
        return found

    def kernel_ending_in(self, op: Instruction, nbytes: float) -> Kernel | None:
        hidden = self[op.computation]
        if op in hidden or op.opcode == "dynamic-update-slice" or _is_view(op):
            return None
        if op.opcode not in _GROUPED:
            return Kernel(kernel_bytes(op, nbytes, hidden), ())
        members = self._members.get(op)
        return None if members is None else Kernel(_bytes_moved(members, hidden), members[:-1])

    def _group_ops(self, computation: Computation) -> dict[Instruction, Group]:
        """Of each op that may share a kernel.  What a group reads lies behind fewer kernels, or in the group.  What one
        kernel alone reads is computed there."""
        found: dict[Instruction, Group] = {}
        behind: dict[Instruction, Group] = {}
        for op in computation.instructions:
            deepest = max((behind[operand][1] for operand in op.operands), default=0)
            before = {behind[operand][0] for operand in op.operands if behind[operand][1] == deepest}
            if op.opcode in FREE or _is_view(op):
                behind[op] = (before.pop() if len(before) == 1 else None, deepest)
                continue
            call = self._called_scope(op) if op.opcode in _GROUPED else op
            behind[op] = (call, deepest if before == {call} else deepest + 1)
            if op.opcode in _GROUPED:
                found[op] = behind[op]
        # Backwards, so that a group moves with its readers' group.  No key comes or goes, so the walk may go on.
        for op in reversed(found):
            readers = _reading_groups(op, found)
            later = readers.pop() if len(readers) == 1 else None
            if later is not None and later[0] == found[op][0]:
                found[op] = later
        return found

    def _called_scope(self, op: Instruction) -> object:
        """What the program calls there: the outermost scope that holds no product, or a source line."""
        if not op.op_name:
            return op
        path = op.op_name.split("/")[:-1]
        # The first is the whole program, as `jit(step)`.
        for place in range(1, len(path)):
            called = "/".join(path[: place + 1])
            if called not in self._wide and _called_name(path[place]) not in _CONTROL:
                return called
        return "/".join(path), op.location


def _called_name(component: str) -> str:
    found = _NAME.fullmatch(component)
    return found[1] if found else component


def _prefixes(ops: Iterator[Instruction]) -> Iterator[str]:
    """Of their op names, at each component."""
    for name in {op.op_name for op in ops}:
        path = name.split("/")
        yield from ("/".join(path[:count]) for count in range(1, len(path)))


def _is_view(op: Instruction) -> bool:
    return op.opcode in _VIEWS or _is_number(op)


def _is_number(op: Instruction) -> bool:
    """Python has it, not the device."""
    # pred, and integers with and without a sign.
    return op.shape.is_array and not op.shape.dims and op.shape.element_type[0] in "psu"


def _find_hidden(computation: Computation, groups: Mapping[Instruction, Group]) -> dict[Instruction, Reads]:
    """Views, and what only its own kernel reads."""
    hidden: dict[Instruction, Reads] = {}
    for op in computation.instructions:
        if op is computation.root:
            continue
        is_alias = op.opcode in RENAMES and op.operands[0] not in hidden
        if (_is_view(op) and not is_alias) or (op in groups and _reading_groups(op, groups) == {groups[op]}):
            hidden[op] = {} if _is_number(op) else kernel_reads(op, hidden)
    return hidden


def _reading_groups(op: Instruction, groups: Mapping[Instruction, Group]) -> set[Group | None]:
    """The groups whose kernels read it; None: another one does."""
    return {groups.get(reader) for reader in _readers(op)}


def _readers(op: Instruction) -> Iterator[Instruction]:
    """Who reads a value, or a view of it; a view that nobody reads is one itself."""
    waiting = [*op.users]
    while waiting:
        user = waiting.pop()
        if _is_view(user) and user.users and not user.is_root:
            waiting += user.users
        else:
            yield user


def _bytes_moved(members: tuple[Instruction, ...], hidden: Mapping[Instruction, Reads]) -> float:
    """Bytes that a kernel reads, each value once, and writes."""
    own = set(members)
    written = [op for op in members if op not in hidden]
    reads: Reads = {}
    for op in written:
        for source, nbytes in kernel_reads(op, hidden).items():
            if source not in own:
                reads[source] = max(reads.get(source, 0), nbytes)
    return float(sum(reads.values()) + sum(op.shape.byte_size for op in written))
