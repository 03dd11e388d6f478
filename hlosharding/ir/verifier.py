"""What every module must satisfy: order, users, parameters, callees, shapes.

Floor: ir.  What is true of any module; of per-device programs more is (`spmd/verifier.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

from hlosharding.errors import HloShardingError, ModuleError
from hlosharding.ir.attribute_laws import fault_of_attributes
from hlosharding.ir.control_flow import NUM_CALLED
from hlosharding.ir.graph import Computation, Instruction, ModuleGraph
from hlosharding.ir.module import Module
from hlosharding.ir.opcode import ALL_OPCODES, ELEMENTWISE
from hlosharding.ir.shape_laws import OF_ONE_SHAPE, fault_of_shape


def verify(module: ModuleGraph) -> None:
    """Raise ModuleError at the first law that is broken, naming the instruction.

    >>> import hlosharding as hs
    >>> verify(hs.load("HloModule m\\n\\nENTRY e {\\n  ROOT x = f32[2] parameter(0)\\n}\\n"))
    """
    names: set[str] = set()
    lawful: set[tuple[Any, ...]] = set()
    for computation in module.computations:
        _verify_computation(computation, names, lawful)
    if len(names) < sum([len(c.instructions) for c in module.computations]):
        double = Counter(i.name for c in module.computations for i in c.instructions).most_common(1)[0][0]
        raise ModuleError(f"two instructions are named %{double}")
    if module.entry not in module.computations:
        raise ModuleError("the entry computation is not in the module")


def _verify_computation(computation: Computation, names: set[str], lawful: set[tuple[Any, ...]]) -> None:
    """`names` collects those of instructions, `lawful` the ops that need no second look."""
    seen: set[Instruction] = set()
    # Uses and users are counted, and only where their numbers differ looked for in each other's lists, which are long.
    uses = known = 0
    numbers: list[int] = []
    takes, define, name = OF_ONE_SHAPE.get, seen.add, names.add
    for instruction in computation.instructions:
        operands, opcode = instruction.operands, instruction.opcode
        name(instruction.name)
        if not seen.issuperset(operands):
            raise ModuleError("an operand is not defined before its use", where=_place(instruction))
        define(instruction)
        count = len(operands)
        uses += count if count < 2 else _distinct(operands)
        known += len(instruction.users)
        if opcode == "parameter":
            numbers.append(instruction.parameter_number)
            if not count:
                continue
        shape = instruction.shape
        if count == takes(opcode) and operands[0].shape is operands[-1].shape is shape and shape.is_array:
            continue  # most ops: seen without a call
        said = _SAID.get(opcode)
        if said is None:
            _verify_op(instruction)
            continue
        op = (opcode, shape, said(instruction), instruction.called, *[o.shape for o in operands])
        if op not in lawful:
            _verify_op(instruction)
            lawful.add(op)
    if computation.root not in seen:
        raise ModuleError("the root is not in its computation", where=f"computation %{computation.name}")
    if sorted(numbers) != list(range(len(numbers))):
        raise ModuleError(f"parameter numbers are {sorted(numbers)}", where=f"computation %{computation.name}")
    if known != uses:
        raise _users_disagree(computation)


def _nothing(instruction: Instruction) -> None:
    """Of ops without attributes that their laws ask for."""


_SAID: dict[str, Callable[[Instruction], Any]] = dict.fromkeys(ELEMENTWISE | {"reshape"}, _nothing) | {
    "broadcast": attrgetter("dimensions"),
    "dot": attrgetter("dot_dims"),
    "get-tuple-element": attrgetter("tuple_index"),
    "reduce": attrgetter("dimensions"),
    "transpose": attrgetter("dimensions"),
}
"""Ops that programs are full of: what their laws depend on beside opcode, callees and shapes.  Equal ones are verified
once."""


def _verify_op(instruction: Instruction) -> None:
    opcode = instruction.opcode
    if opcode not in ALL_OPCODES:
        raise ModuleError(f"no opcode: {opcode!r}", where=_place(instruction))
    count, wanted = len(instruction.called), NUM_CALLED.get(opcode, 0)
    if count < wanted or (count > wanted > 0 and opcode != "conditional"):
        said = (
            f"{count} computation{'' if count == 1 else 's'} to call, not {wanted}"
            if count
            else "no computation to call"
        )
        raise ModuleError(f"{opcode} names {said}", where=_place(instruction))
    fault = fault_of_attributes(instruction)
    if fault is not None:
        raise ModuleError(fault, where=_place(instruction))
    fault = fault_of_shape(instruction)
    if fault is not None:
        raise ModuleError(f"shape {instruction.shape}, but {fault}", where=_place(instruction))


def _distinct(operands: tuple[Instruction, ...]) -> int:
    """Of two operands or more."""
    if len(operands) == 2:
        return 2 if operands[0] is not operands[1] else 1
    return len(set(operands))


def _users_disagree(computation: Computation) -> ModuleError:
    """Users are not those who use: who is listed and does not, or uses and is not listed?"""
    for instruction in computation.instructions:
        for user in instruction.users:
            if instruction not in user.operands or user not in computation.instructions:
                return ModuleError(f"%{user.name} is listed as a user, and is none", where=_place(instruction))
        for operand in instruction.operands:
            if instruction not in operand.users:
                return ModuleError(f"%{operand.name} does not know this user", where=_place(instruction))
    return ModuleError("a user is listed twice", where=f"computation %{computation.name}")


def _place(instruction: Instruction) -> str:
    return f"{instruction!r} {instruction.location}".strip()


# ---- work that fails on a module: if the module breaks a law, that is what is wrong
#
# Laws are looked at only then: valid modules, which nearly all are, pay nothing.


@contextmanager
def blaming(module: Module) -> Iterator[None]:
    """Turn an error into ModuleError with the law that the module breaks, where it breaks one; Python's own always.

    >>> import hlosharding as hs
    >>> with blaming(hs.load("HloModule m\\n\\nENTRY e {\\n  ROOT x = f32[2] parameter(0)\\n}\\n")):
    ...     raise KeyError("who knows")
    Traceback (most recent call last):
    hlosharding.errors.ModuleError: KeyError: 'who knows'; if XLA takes this module, the fault is ours: please report it
    """
    try:
        yield
    # RecursionError is for `deep_stack`, which makes the call anew.
    except (ModuleError, MemoryError, RecursionError):
        raise
    except HloShardingError as error:
        # What it says may be a consequence: shardings of a tuple that has other elements do not go together.
        _check(error, lambda: verify(module))
        raise
    except Exception as error:
        _check(error, lambda: verify(module))
        # XLA may know a law that stands nowhere here.
        _check(error, module.to_hlo_text)
        raise ModuleError(
            f"{type(error).__name__}: {error}", remedy="if XLA takes this module, the fault is ours: please report it"
        ) from error


def _check(error: Exception, law: Callable[[], object]) -> None:
    try:
        law()
    except HloShardingError as fault:
        raise ModuleError(f"not a valid module: {fault.what}", where=fault.where, remedy=fault.remedy) from error
