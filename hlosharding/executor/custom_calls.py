"""Which custom calls of a program may run, and what they need before they do.

Floor: executor.  A file is a stranger's: of native code only what is known to be safe runs unasked.
"""

from __future__ import annotations

from hlosharding import xla_bridge
from hlosharding.errors import ExecutionError
from hlosharding.executor.callbacks import check_callback, is_callback
from hlosharding.executor.kernels import is_users_kernel
from hlosharding.executor.native_calls import has_its_shapes, is_known, is_lapack
from hlosharding.ir import Instruction, Module


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
