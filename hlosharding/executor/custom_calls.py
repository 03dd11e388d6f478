"""Which custom calls of a program may run, and what they need before they do: split kernels and attention, too.

Floor: executor.  A file is a stranger's: of native code only what is known to be safe runs unasked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hlosharding import xla_bridge
from hlosharding.errors import ExecutionError
from hlosharding.executor.callbacks import check_callback, is_callback
from hlosharding.executor.native_calls import has_its_shapes, is_known, is_lapack
from hlosharding.executor.prelude import attention_in_full
from hlosharding.executor.text import string_text
from hlosharding.ir import Instruction, Module, fused_attention
from hlosharding.rules import is_whole_kernel, registered_name, users_calls


def prepare_custom_calls(module: Module) -> None:
    """Make sure that the module's custom calls have what they call; ExecutionError for those that may not run.

    XLA calls a LAPACK kernel by its address, which JAX fills in when it first lowers one: a module that was not traced
    in this process would end it.
    """
    for inst in module.instructions:
        if inst.opcode != "custom-call":
            continue
        _check(inst, module.custom_calls)
        if is_lapack(inst):
            xla_bridge.load_lapack()


def _check(inst: Instruction, allowed: frozenset[str] | None) -> None:
    target, where = inst.custom_call_target, inst.where
    if target == "CustomSPMDPartitioning":
        raise ExecutionError(
            "a call of custom_partitioning, which only XLA's own partitioner can resolve",
            where=where,
            remedy="trace the function with hs.trace or hs.jit instead of loading what JAX lowered",
        )
    if is_callback(inst):
        check_callback(inst)
    elif is_users_kernel(inst) or allowed is None or target in allowed:
        return
    elif not is_known(inst):
        raise ExecutionError(
            f"custom call {target} is native code, which a program from a file may not run unasked",
            where=where,
            remedy=f"if you trust the file: hs.load(..., custom_calls=[{target!r}]), or --custom-call {target}",
        )
    elif not has_its_shapes(inst):
        taken = ", ".join(str(operand.shape) for operand in inst.operands)
        raise ExecutionError(
            f"custom call {target} of {taken} does not make {inst.shape}, and would write elsewhere",
            where=where,
            remedy="mend the shapes, or write the program anew with jax.jit(f).lower(...)",
        )


# ---- Pallas kernels that are split: each device calls the user's function


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


# ---- cuDNN's flash attention, where there is no cuDNN


def is_attention(inst: Instruction) -> bool:
    """Is it a call whose meaning is known: no bias, no dropout, no lengths?"""
    found = fused_attention(inst)
    return found is not None and found.is_plain


def attention_text(inst: Instruction, arguments: str, call: str) -> str:
    """The expression of a call; `call`: that of cuDNN itself."""
    said = ", ".join(f"{name}={value!r}" for name, value in _meaning(inst).items())
    in_full = f"lambda *operands: attention_in_full(*operands, {said})"
    return f"lax.platform_dependent({arguments}, cpu={in_full}, default={call})"


def attend(inst: Instruction, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What a call gives, one array a result leaf."""
    return [np.asarray(made) for made in attention_in_full(*arguments, **_meaning(inst))]


def _meaning(inst: Instruction) -> dict[str, Any]:
    found = fused_attention(inst)
    assert found is not None, "asked of attention"
    has_sums = not found.is_backward and len(inst.shape.leaves) == 3
    return {"heads": found.heads, "is_causal": found.is_causal, "scale": found.scale, "has_sums": has_sums}
