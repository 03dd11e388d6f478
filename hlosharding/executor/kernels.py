"""Pallas kernels that are split: each device calls the user's function on its pieces, for the code of the call is for
the shapes that it was traced with.

Floor: executor.  The functions are those of `hs.register_rule(..., kernel=)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hlosharding.errors import ExecutionError
from hlosharding.executor.text import string_text
from hlosharding.ir import Instruction, Module
from hlosharding.rules import is_whole_kernel, registered_name, users_calls


def is_users_kernel(inst: Instruction) -> bool:
    """Is it a Pallas kernel of which a user said how it is split, in a program for several devices?"""
    return is_whole_kernel(inst) and inst.module.num_partitions > 1 and registered_name(inst) in users_calls


def kernels_of(module: Module) -> dict[str, Callable[..., Any]]:
    """By name, what makes the calls of a module.  Raises ExecutionError for one of which only the rule is known."""
    return {registered_name(inst): _kernel(inst) for inst in module.instructions if is_users_kernel(inst)}


def _kernel(inst: Instruction) -> Callable[..., Any]:
    kernel = users_calls[registered_name(inst)].kernel
    if kernel is None:
        raise ExecutionError(
            f"the code of Pallas kernel {registered_name(inst)!r} is for the shapes it was traced with, not for pieces",
            where=inst.where,
            remedy="give what calls it: hs.register_rule(..., like=..., kernel=...)",
        )
    return kernel


def kernel_text(inst: Instruction, arguments: str) -> str:
    """The expression of a call."""
    call = f"KERNELS[{string_text(registered_name(inst))}]({arguments})"
    return f"tuple({call})" if inst.shape.is_tuple else call


def call_kernel(inst: Instruction, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What a call gives, one array a result leaf."""
    import jax

    return [np.asarray(leaf) for leaf in jax.tree.leaves(_kernel(inst)(*arguments))]
