"""One program at many sizes: of two that differ in the size of a batch alone, all between.

Floor: ir.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hlosharding.errors import ModuleError
from hlosharding.ir.graph import Instruction
from hlosharding.ir.module import Module
from hlosharding.ir.shape import Shape


class NotResizable(ModuleError):
    """Two programs differ in more than sizes, or sizes depend on more than the batch."""


class Between(NamedTuple):
    """A place on the way from one batch size to another: so many examples more, of those that the other has more."""

    examples: int
    of: int
    each: int = 1
    """Sizes grow by whole numbers with so many examples: those that devices share."""

    def number(self, first: int, second: int) -> int:
        """A size there.  Raises NotResizable for one that grows otherwise: it depends on something else.

        >>> Between(1, 3).number(4, 16), Between(2, 8, each=2).number(1, 5)
        (8, 2)
        """
        growth, rest = divmod((second - first) * self.each, self.of)
        more, part = divmod(growth * self.examples, self.each)
        if rest or part:
            raise NotResizable(f"{first} to {second} is no growth by {self.of} examples, {self.examples} of them")
        return first + more

    def shape(self, first: Shape, second: Shape) -> Shape:
        """Raises NotResizable.

        >>> str(Between(1, 3).shape(Shape.array("f32", (4, 3)), Shape.array("f32", (16, 3))))
        'f32[8,3]'
        """
        if first is second:
            return first
        if first.is_tuple:
            return Shape.tuple(tuple(map(self.shape, first.tuple_shapes, second.tuple_shapes)))
        return first.with_dims(tuple(map(self.number, first.dims, second.dims)))


class ResizableModule:
    """A module whose shapes are moved from those of `first` to those of `second`.

    Only shapes are: sizes in attributes (of a slice, say) stay those of `first`.  So it can be priced, not run.  Raises
    NotResizable where the two have other ops, or join them otherwise.

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {{\\n  x = f32[{0}] parameter(0)\\n  ROOT y = f32[{0}] negate(x)\\n}}"
    >>> between = ResizableModule(hs.load(text.format(4)), hs.load(text.format(16)))
    >>> [str(inst.shape) for inst in between.at(Between(1, 3)).entry.instructions]
    ['f32[8]', 'f32[8]']
    """

    def __init__(self, first: Module, second: Module) -> None:
        if len(first.instructions) != len(second.instructions) or list(_ops(first)) != list(_ops(second)):
            raise NotResizable(f"{first.name} and {second.name} have other ops")
        self._module = first.clone()
        both = zip(self._module.instructions, second.instructions, strict=True)
        self._growing: Sequence[tuple[Instruction, Shape, Shape]] = [
            (inst, inst.shape, other.shape) for inst, other in both if inst.shape != other.shape
        ]

    def at(self, place: Between) -> Module:
        """The module there, the same object at each call.  Raises NotResizable."""
        for inst, first, second in self._growing:
            inst.shape = place.shape(first, second)
        return self._module


def _ops(module: Module) -> Iterator[tuple[object, ...]]:
    """What of each instruction does not depend on sizes."""
    place = {computation: number for number, computation in enumerate(module.computations)}
    for inst in module.instructions:
        operands, called = [o.id for o in inst.operands], [place[c] for c in inst.called]
        kinds = [(leaf.element_type, leaf.rank) for leaf in inst.shape.leaves]
        yield inst.opcode, place[inst.computation], operands, called, kinds
