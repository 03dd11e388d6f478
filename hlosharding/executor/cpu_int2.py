"""Integers of two bits on XLA's CPU compiler: most ops on them write past their buffers, and end the process.

Floor: executor.  Seen with jaxlib 0.10.2 on one device, without us: `sort` and `concatenate` of s2; likewise every
collective.  What ran right many times over is allowed, all else is refused before it is compiled.
"""

from __future__ import annotations

from hlosharding.errors import ExecutionError
from hlosharding.ir import ELEMENTWISE, PACKS, Instruction, Module

_TYPES = frozenset({"s2", "u2"})
_HARMLESS = ELEMENTWISE | PACKS | set("broadcast constant parameter reduce reshape slice transpose".split())


def refuse_cpu_int2(module: Module) -> None:
    """ExecutionError for an op on s2 or u2 that would end this process; other platforms than the CPU are not asked."""
    found = next((i for i in module.instructions if _touches(i) and i.opcode not in _HARMLESS), None)
    if found is None:
        return
    import jax

    if jax.default_backend() == "cpu":
        raise ExecutionError(
            f"{found.opcode} of 2-bit integers, on which XLA's CPU compiler corrupts memory",
            where=found.where,
            remedy="convert to int4 or int8 around it",
        )


def _touches(inst: Instruction) -> bool:
    leaves = (leaf for i in (inst, *inst.operands) for leaf in i.shape.leaves)
    return any(leaf.element_type in _TYPES for leaf in leaves)
