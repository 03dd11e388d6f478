"""Backward passes that make anew what forward passes made: time for memory, as by `jax.checkpoint` of each layer.

Floor: schedule.  Of layers in loops (`recomputed_loops`), and of those that are listed (`recomputed_stretches`).
"""

from __future__ import annotations

from hlosharding.ir import Edit, Instruction, Module, rewrite
from hlosharding.schedule.cutting.recomputed_loops import recompute_loops, recomputed_loops
from hlosharding.schedule.cutting.recomputed_stretches import find_stretches, recompute_stretches


def recompute_layers(module: Module) -> Module:
    """The program whose backward pass reads what each layer was given, and makes the rest of it again; the program
    itself where that saves no memory.

    Where layers are in loops that is so of these; else of stretches of the forward pass between which little goes on,
    chosen so that least is held.

    >>> import jax, jax.numpy as jnp, hlosharding as hs
    >>> def step(w, x):
    ...     loss = lambda w: jnp.sum(jax.lax.scan(lambda x, w: (x + jnp.tanh(jnp.sin(x) @ w), None), x, w)[0])
    ...     return jax.grad(loss)(w)
    >>> traced = hs.trace(step)(jnp.ones((4, 16, 16)), jnp.ones((8, 16)))
    >>> for program in traced, recompute_layers(traced):
    ...     [forward] = [loop for loop in program.of_opcodes("while") if "transpose" not in loop.op_name]
    ...     print([str(shape) for shape in forward.shape.leaves if shape.dims[1:] == (8, 16)])
    ['f32[4,8,16]', 'f32[4,8,16]', 'f32[4,8,16]', 'f32[4,8,16]']
    ['f32[4,8,16]']
    """
    recompute = recompute_loops if recomputed_loops(module) else recompute_stretches
    if recompute is recompute_stretches and not find_stretches(module):
        return module
    edit = Edit.of_copy(module)
    recompute(edit)
    made = edit.finish()
    rewrite.dead_code(made)
    made.renumber()
    return made


def recomputed_ops(module: Module) -> list[list[Instruction]]:
    """What `recompute_layers` makes again: of each loop over layers the loop, else of each stretch its ops."""
    return [[loop] for loop in recomputed_loops(module)] or [list(each.ops) for each in find_stretches(module)]
