"""What every module must satisfy: order, users, parameters, and the shapes that structure alone decides.

Floor: ir.  Shapes of ops are checked by XLA whenever it parses what we print; here stand the graph's own laws.
"""

from __future__ import annotations

from hlosharding.errors import ModuleError
from hlosharding.ir.instruction import Instruction
from hlosharding.ir.module import Computation, Module
from hlosharding.ir.shape import Shape


def verify(module: Module) -> None:
    """Raise ModuleError at the first law that is broken, naming the instruction."""
    names: set[str] = set()
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.name in names:
                raise ModuleError(f"two instructions are named %{instruction.name}")
            names.add(instruction.name)
        _verify_computation(computation)
    if module.entry not in module.computations:
        raise ModuleError("the entry computation is not in the module")


def _verify_computation(computation: Computation) -> None:
    users: dict[Instruction, set[Instruction]] = {}
    for instruction in computation.instructions:
        _verify_instruction(instruction, users)
        users[instruction] = set(instruction.users)
    if computation.root not in users:
        raise ModuleError("the root is not in its computation", where=f"computation %{computation.name}")
    numbers = [p.parameter_number for p in computation.parameters]
    if numbers != list(range(len(numbers))):
        raise ModuleError(f"parameter numbers are {numbers}", where=f"computation %{computation.name}")


def _verify_instruction(instruction: Instruction, users: dict[Instruction, set[Instruction]]) -> None:
    """`users` holds the instructions before this one."""
    for operand in instruction.operands:
        if operand not in users:
            raise ModuleError(f"operand %{operand.name} is not defined before its use", where=_place(instruction))
        if instruction not in users[operand]:
            raise ModuleError(f"%{operand.name} does not know this user", where=_place(instruction))
    expected = _structural_shape(instruction)
    if expected is not None and expected is not instruction.shape and str(expected) != str(instruction.shape):
        raise ModuleError(f"shape {instruction.shape}, but the operands make {expected}", where=_place(instruction))


def _place(instruction: Instruction) -> str:
    return f"{instruction!r} {instruction.location}".strip()


def _structural_shape(instruction: Instruction) -> Shape | None:
    operands = instruction.operands
    match instruction.opcode:
        case "tuple":
            return Shape.tuple(tuple(o.shape for o in operands))
        case "get-tuple-element":
            parts = operands[0].shape.tuple_shapes
            if instruction.tuple_index >= len(parts):
                raise ModuleError(f"index {instruction.tuple_index} of {len(parts)} elements", where=repr(instruction))
            return parts[instruction.tuple_index]
        case "while":
            return operands[0].shape
        case "copy" | "negate":
            return operands[0].shape
        case "add" | "subtract" | "multiply" | "divide" | "maximum" | "minimum":
            return operands[0].shape
        case "transpose":
            return operands[0].shape.with_dims(tuple(operands[0].shape.dims[d] for d in instruction.dimensions))
        case _:
            return None
