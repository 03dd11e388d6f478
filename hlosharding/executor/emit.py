"""The table of emitters: opcode -> the Python expression that computes it.

Floor: executor.  The families of ops fill it (`lax_*.py`); `functions.py` reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from hlosharding.errors import ExecutionError
from hlosharding.executor.axes import Axes
from hlosharding.ir import Computation, Instruction
from hlosharding.registry import Registry


class WrittenProgram(Protocol):
    """What an emitter may ask of the program that is being written."""

    axes: Axes
    num_devices: int

    def function(self, computation: Computation) -> str:
        """Name of the Python function of a computation (written once for equal ones)."""
        ...

    def constant(self, value: np.ndarray) -> str:
        """An expression for a constant array."""
        ...

    def raw(self, inst: Instruction) -> str:
        """Name of the function that runs the op's own StableHLO."""
        ...

    def groups(self, groups: tuple[tuple[int, ...], ...]) -> str:
        """Name of a module-level constant that holds device groups or pairs."""
        ...


@dataclass(frozen=True, slots=True)
class EmittedOp:
    """An instruction to be written: `args` are the expressions of its operands (nested tuples as Python tuples)."""

    inst: Instruction
    args: tuple[str, ...]
    program: WrittenProgram

    @property
    def arg_list(self) -> str:
        """All operands, separated by commas."""
        return ", ".join(self.args)


WriteOp: TypeAlias = Callable[[EmittedOp], str]
EMITTERS: Registry[str, WriteOp] = Registry("EMITTERS")
REFUSED: Registry[str, str] = Registry("REFUSED")
"""Opcodes that no program we run may hold, each with the reason."""


def emit(op: EmittedOp) -> str:
    """The expression of an op; ExecutionError for the few that cannot run."""
    emitter = EMITTERS.get(op.inst.opcode)
    if emitter is not None:
        return emitter(op)
    reason = REFUSED.get(op.inst.opcode) or "this opcode is unknown"
    where = op.inst.where
    raise ExecutionError(f"{op.inst.opcode} cannot run: {reason}", where=where)


def raw(op: EmittedOp) -> str:
    """The op's own StableHLO, called."""
    return f"{op.program.raw(op.inst)}({op.arg_list})"
