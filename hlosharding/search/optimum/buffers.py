"""When the arrays of a program are in memory, whole: what each choice makes of them is a part of that.

Floor: search.  A buffer is there from the op that writes it to the last that reads it; loops and updates
write in place.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import NamedTuple

from hlosharding.cost import order_by_memory
from hlosharding.ir import CONTROL_FLOW, Computation, Instruction, Shape
from hlosharding.search.optimum.value_classes import ValueClasses


class Buffer(NamedTuple):
    """An array in memory."""

    number: int
    """As `ValueClasses.leaves` has it."""
    shape: Shape
    first: int
    """Place in the order in which ops run from which it is there."""
    last: int
    """And to which."""


def find_buffers(
    classes: ValueClasses, root: Instruction, hidden: Container[Instruction], overwritten: Container[Instruction]
) -> list[Buffer]:
    """All of a program, arguments the whole time.  `hidden`: values that no kernel writes; `overwritten`: results that
    are written over arguments.

    >>> import hlosharding as hs
    >>> module = hs.load('''HloModule m
    ... ENTRY e {
    ...   x = f32[8,4] parameter(0)
    ...   y = f32[8,4] tanh(x)
    ...   ROOT r = f32[4,8] transpose(y), dimensions={1,0}
    ... }''')
    >>> for buffer in find_buffers(ValueClasses(module), module.entry.root, (), ()):
    ...     print(*buffer)
    0 f32[8,4] 0 2
    1 f32[8,4] 1 2
    2 f32[4,8] 2 2
    """
    order = list(_run_order(root.computation, hidden))
    end, in_place = len(order) - 1, _written_in_place(classes)
    shapes, first, last = dict[int, Shape](), dict[int, int](), dict[int, int]()
    for place, inst in enumerate(order):
        read = (number for operand in inst.operands for number in classes.leaves[operand])
        last.update(dict.fromkeys((in_place.get(number, number) for number in read), place))
        if inst in hidden or inst in overwritten:
            continue
        for number, shape in zip(classes.leaves[inst], inst.shape.leaves, strict=True):
            if number not in in_place and number not in classes.free and shape.is_array and number not in first:
                shapes[number], first[number] = shape, place
    kept = {*classes.arguments, *(in_place.get(number, number) for number in classes.leaves[root])}
    first.update(dict.fromkeys(classes.arguments & first.keys(), 0))
    return [Buffer(n, shapes[n], at, end if n in kept else last.get(n, at)) for n, at in first.items()]


def _run_order(computation: Computation, hidden: Container[Instruction]) -> Iterator[Instruction]:
    """As a scheduler has it that saves memory; bodies of loops once, ahead of the loop."""
    for inst in order_by_memory(computation, hidden):
        if inst.opcode in CONTROL_FLOW:
            for callee in inst.called:
                yield from _run_order(callee, hidden)
        yield inst


def _written_in_place(classes: ValueClasses) -> dict[int, int]:
    """Numbers of arrays that are parts of others' buffers, and whose."""
    found: dict[int, int] = {}
    for inst in classes.order:
        if inst.opcode == "dynamic-update-slice":
            [written], [over] = classes.leaves[inst], classes.leaves[inst.operands[0]]
            # What is written into again and again is one buffer, the first one's.
            found[written] = found.get(over, over)
    return found
