"""An op that is done a second time, for the gradients.

Floor: schedule.
"""

from __future__ import annotations

from collections.abc import Iterable

from hlosharding.ir import CONTROL_FLOW, Computation, Edit, Instruction, rewrite

_MARK = "rematted_computation"
"""What JAX writes into the names of such ops."""


def may_be_repeated(op: Instruction) -> bool:
    """Does it make the same a second time, and nothing else?"""
    return op.opcode not in ("parameter", "rng") and not op.channel_id and not op.has_side_effect


def is_recomputed(op: Instruction) -> bool:
    """Does the program make it a second time by itself?"""
    return _MARK in op.op_name


def repeat_op(
    edit: Edit, op: Instruction, operands: Iterable[Instruction], into: Computation, *, backward: bool = False
) -> Instruction:
    """The same of other operands, named as what `jax.checkpoint` makes again; loops and branches get computations of
    their own.  `backward`: it stands among backward ops, which JAX names so, not in a loop that is named.
    """
    made = edit.clone_into(op, operands, into)
    if op.opcode in CONTROL_FLOW:
        rewrite.set_called(made, [_clone(edit, each) for each in op.called])
    rewrite.set_metadata(made, op_name=recomputed_name(op.op_name, backward=backward))
    return made


def _clone(edit: Edit, computation: Computation) -> Computation:
    made = edit.clone_computation(computation)
    for inst in edit.instructions(made):
        if inst.opcode in CONTROL_FLOW:
            rewrite.set_called(inst, [_clone(edit, each) for each in inst.called])
    return made


def recomputed_name(op_name: str, *, backward: bool) -> str:
    """
    >>> recomputed_name("jit(step)/jvp(norm)/mul", backward=True)
    'jit(step)/transpose(jvp(norm))/rematted_computation/mul'
    """
    if _MARK in op_name:
        return op_name
    *scopes, last = op_name.split("/")
    if backward:
        place = next((n for n, scope in enumerate(scopes) if scope.startswith("jvp(")), len(scopes))
        scopes[place : place + 1] = [f"transpose({scopes[place] if place < len(scopes) else 'jvp()'})"]
    return "/".join([*scopes, _MARK, last])
