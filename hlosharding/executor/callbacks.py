"""Calls back into Python: a custom call names a function by its number in the list that came with the module.

Floor: executor.  JAX keeps that list beside what it lowers; a module from a file has none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from hlosharding.errors import ExecutionError
from hlosharding.executor.text import shape_text, tuple_of
from hlosharding.ir import Instruction

_TARGET = re.compile(r"xla_(ffi_|buffer_)?(partitioned_)?python_(cpu|gpu)_callback")
_INDEX = re.compile(r"\bindex = (\d+)")


def is_callback(inst: Instruction) -> bool:
    """Does the instruction call a Python function?"""
    return inst.opcode == "custom-call" and _TARGET.fullmatch(inst.custom_call_target) is not None


def callback_text(inst: Instruction, arguments: str) -> str:
    """The expression of a call: `jax.pure_callback`, `io_callback` where it acts, or `buffer_callback`."""
    shapes = tuple_of([shape_text(leaf) for leaf in inst.shape.leaves])
    function = f"CALLBACKS[{_number(inst)}]"
    if _takes_buffers(inst):
        call = f"{_buffer_callback_text(inst, function, shapes)}({arguments})"
    else:
        name = "io_callback" if inst.has_side_effect else "jax.pure_callback"
        separator = ", " if arguments else ""
        call = f"{name}({function}, {shapes}{separator}{arguments})"
    return call if inst.shape.is_tuple else f"{call}[0]"


def _takes_buffers(inst: Instruction) -> bool:
    return "_buffer_" in inst.custom_call_target


def _buffer_callback_text(inst: Instruction, function: str, shapes: str) -> str:
    # JAX keeps the function with its results flat behind its arguments.
    flat = f"lambda context, made, *taken: {function}(context, *taken, *made) or None"
    acts = ", has_side_effect=True" if inst.has_side_effect else ""
    # An index is () for an only result, whose number is 0, and else (number,).
    aliases = {a.operand_index: sum(a.output_shape_index) for a in inst.proto.output_operand_aliasing}
    shared = f", input_output_aliases={aliases}" if aliases else ""
    return f"buffer_callback({flat}, {shapes}{acts}{shared})"


def call_python(inst: Instruction, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What the function returns, one array a result leaf."""
    function, leaves = inst.module.callbacks[_number(inst)], list(inst.shape.leaves)
    if _takes_buffers(inst):
        results = [np.zeros(leaf.dims, leaf.dtype) for leaf in leaves]
        for alias in inst.proto.output_operand_aliasing:
            results[sum(alias.output_shape_index)][...] = arguments[alias.operand_index]
        function(None, *arguments, *results)
    else:
        results = function(*arguments)
    return [np.asarray(r, leaf.dtype) for r, leaf in zip(results, leaves, strict=True)]


def check_callback(inst: Instruction) -> None:
    """ExecutionError for a call of a Python function that did not come with the module."""
    if _number(inst) >= len(inst.module.callbacks):
        raise ExecutionError(
            f"custom call {inst.custom_call_target} calls back into Python, and the module lacks the function",
            where=inst.where,
            remedy="trace the function in this process, or take its callbacks out",
        )


def _number(inst: Instruction) -> int:
    found = _INDEX.search(inst.opaque)
    if found is None:
        raise ExecutionError(
            f"custom call {inst.custom_call_target} does not say which function it calls",
            where=inst.where,
        )
    return int(found[1])
