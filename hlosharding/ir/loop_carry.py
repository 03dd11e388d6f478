"""Other elements in the carry of a loop: some put behind, others taken out.

Floor: ir.  Through `Edit`: the initial values, the parameters of body and condition, the body's root and the loop are
tuples of one shape.  Initial values and root must be tuples, and what reads a carry get-tuple-elements.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hlosharding.ir import rewrite
from hlosharding.ir.control_flow import while_parts
from hlosharding.ir.edit import Edit
from hlosharding.ir.graph import Instruction


def add_to_carry(edit: Edit, loop: Instruction, values: Sequence[Instruction]) -> list[Instruction]:
    """Let a loop carry values, behind what it carries; what these are in the body.

    Trips hand them on as they are, until other operands are given to the body's root.

    >>> import hlosharding as hs
    >>> module = hs.load('''HloModule m
    ... going { p = (s32[], f32[4]) parameter(0)  i = s32[] get-tuple-element(p), index=0  c = s32[] constant(3)
    ...   ROOT r = pred[] compare(i, c), direction=LT }
    ... step { p = (s32[], f32[4]) parameter(0)  i = s32[] get-tuple-element(p), index=0  c = s32[] constant(1)
    ...   n = s32[] add(i, c)  x = f32[4] get-tuple-element(p), index=1  y = f32[4] tanh(x)
    ...   ROOT r = (s32[], f32[4]) tuple(n, y) }
    ... ENTRY e { i = s32[] constant(0)  x = f32[4] parameter(0)  t = (s32[], f32[4]) tuple(i, x)
    ...   w = (s32[], f32[4]) while(t), condition=going, body=step  ROOT z = s32[] get-tuple-element(w), index=0 }''')
    >>> edit = Edit.of_copy(module)
    >>> loop = edit.module.by_name("w")
    >>> add_to_carry(edit, loop, [edit.module.by_name("x")]), loop.shape
    ([%get-tuple-element = f32[4] get-tuple-element(%p.1)], (s32[], f32[4], f32[4]))
    >>> drop_from_carry(edit, loop, [1])
    >>> edit.finish().by_name("w").shape
    (s32[], f32[4])
    """
    body, given = while_parts(loop).body, loop.operands[0].operands
    carry, count = body.parameters[0], len(given)
    made = [
        edit.create(body, "get-tuple-element", (carry,), shape=value.shape, tuple_index=count + number)
        for number, value in enumerate(values)
    ]
    _write(edit, loop, (*given, *values), (*body.root.operands, *made))
    return made


def drop_from_carry(edit: Edit, loop: Instruction, indices: Collection[int]) -> None:
    """Take elements out of a loop's carry that nothing reads but what makes them."""
    body, given = while_parts(loop).body, loop.operands[0].operands
    kept = [index for index in range(len(given)) if index not in indices]
    numbers = {index: number for number, index in enumerate(kept)}
    _write(edit, loop, [given[index] for index in kept], [body.root.operands[index] for index in kept])
    for packed in (loop, *(computation.parameters[0] for computation in loop.called)):
        for element in list(packed.users):
            if element.tuple_index in numbers:
                rewrite.set_attributes(element, tuple_index=numbers[element.tuple_index])
            else:
                edit.remove_with_unused_operands(element)


def _write(edit: Edit, loop: Instruction, given: Sequence[Instruction], handed: Sequence[Instruction]) -> None:
    """The loop with these initial values, and what a trip hands on of them."""
    body, before = while_parts(loop).body, loop.operands[0]
    packed = edit.create(loop.computation, "tuple", given, name=before.name)
    edit.replace_operand(loop, 0, packed)
    old = body.root
    body.set_root(edit.create(body, "tuple", handed, name=old.name))
    rewrite.set_shape(loop, packed.shape)
    for computation in loop.called:
        rewrite.set_shape(computation.parameters[0], packed.shape)
    for unused in (before, old):
        edit.remove_with_unused_operands(unused)
