"""Calls, loops, branches, and custom calls.

Floor: executor.  Bodies and branches are functions of the program.
"""

from __future__ import annotations

from hlosharding.executor.callbacks import callback_text, is_callback
from hlosharding.executor.custom_calls import attention_text, is_attention, is_users_kernel, kernel_text
from hlosharding.executor.emit import EMITTERS, EmittedOp, raw
from hlosharding.ir import memory_of, while_parts


@EMITTERS.register("call", "fusion")
def _call(op: EmittedOp) -> str:
    return f"{op.program.function(op.inst.called[0])}({op.arg_list})"


@EMITTERS.register("while")
def _while(op: EmittedOp) -> str:
    body, condition = map(op.program.function, while_parts(op.inst))
    return f"lax.while_loop({condition}, {body}, {op.args[0]})"


@EMITTERS.register("conditional")
def _conditional(op: EmittedOp) -> str:
    inst = op.inst
    names = [op.program.function(c) for c in inst.called]
    operands = ", ".join(op.args[1:])
    values = [f"v{i}" for i in range(len(names))]
    branches = [f"lambda {', '.join(values)}: {name}({v})" for name, v in zip(names, values, strict=True)]
    if inst.operands[0].shape.element_type == "pred":
        return f"lax.cond({op.args[0]}, {', '.join(branches)}, {operands})"
    last = len(names) - 1
    # An index out of bounds means the last branch in HLO; lax.switch would take branch 0 for a negative one.
    index = op.args[0]
    if last == 0:
        return f"jax.jit({names[0]})({operands})"
    inside = f"lax.select(lax.lt({index}, np.int32(0)), np.int32({last}), {index})"
    return f"lax.switch({inside}, [{', '.join(branches)}], {operands})"


@EMITTERS.register("custom-call", "scan")
def _custom_call(op: EmittedOp) -> str:
    memory = memory_of(op.inst)
    if memory is not None:
        # Where the backend has but one memory JAX makes nothing of it.
        return f"jax.device_put({op.arg_list}, jax.memory.Space.{memory.capitalize()})"
    if is_users_kernel(op.inst):
        return kernel_text(op.inst, op.arg_list)
    if is_attention(op.inst):
        return attention_text(op.inst, op.arg_list, op.program.raw(op.inst))
    return callback_text(op.inst, op.arg_list) if is_callback(op.inst) else raw(op)
