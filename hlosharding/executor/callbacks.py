"""Calls back into Python: a custom call names a function by its number in the list that came with the module.

Floor: executor.  JAX keeps that list beside what it lowers; a module from a file has none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from hlosharding.errors import ExecutionError
from hlosharding.executor.text import shape_text
from hlosharding.ir import Instruction, Module

_TARGET = re.compile(r"xla_(ffi_)?(partitioned_)?python_(cpu|gpu)_callback")
_INDEX = re.compile(r"\bindex = (\d+)")


def is_callback(inst: Instruction) -> bool:
    """Does the instruction call a Python function?"""
    return inst.opcode == "custom-call" and _TARGET.fullmatch(inst.custom_call_target) is not None


def callback_text(inst: Instruction, arguments: str) -> str:
    """The expression of a call: `jax.pure_callback`, or `io_callback` where it acts."""
    shapes = [shape_text(leaf) for leaf in inst.shape.leaves]
    listed = ", ".join(shapes) + ("," if len(shapes) == 1 else "")
    name = "io_callback" if inst.has_side_effect else "jax.pure_callback"
    separator = ", " if arguments else ""
    call = f"{name}(CALLBACKS[{_number(inst)}], ({listed}){separator}{arguments})"
    return call if inst.shape.is_tuple else f"{call}[0]"


def call_python(inst: Instruction, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What the function returns, one array a result leaf."""
    results = inst.module.callbacks[_number(inst)](*arguments)
    return [np.asarray(r, leaf.dtype) for r, leaf in zip(results, inst.shape.leaves, strict=True)]


def check_callbacks(module: Module) -> None:
    """ExecutionError for a call of a Python function that did not come with the module."""
    for inst in module.instructions:
        if is_callback(inst) and _number(inst) >= len(module.callbacks):
            raise ExecutionError(
                f"custom call {inst.custom_call_target} calls back into Python, and the module lacks the function",
                where=f"%{inst.name} {inst.location}".strip(),
                remedy="trace the function in this process, or take its callbacks out",
            )


def _number(inst: Instruction) -> int:
    found = _INDEX.search(inst.opaque)
    if found is None:
        raise ExecutionError(
            f"custom call {inst.custom_call_target} does not say which function it calls",
            where=f"%{inst.name} {inst.location}".strip(),
        )
    return int(found[1])
