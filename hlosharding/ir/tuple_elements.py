"""Who reads the elements of tuples: looked up once for each tuple of a graph that stays as it is.

Floor: ir.  A loop may carry thousands of arrays: to look through all readers of a tuple for each of its elements takes
time with the square of their number.
"""

from __future__ import annotations

from hlosharding.ir.graph import Instruction

Readers = dict[int, list[Instruction]]
"""By an element's number, the get-tuple-elements that take it."""


class ElementReaders:
    """The readers of every tuple that was asked about.

    >>> import hlosharding as hs
    >>> module = hs.load('''HloModule m
    ... ENTRY e { p = (f32[], s32[]) parameter(0)  ROOT x = f32[] get-tuple-element(p), index=0 }''')
    >>> readers = ElementReaders()
    >>> readers.of(module.by_name("p"), 0), readers.of(module.by_name("p"), 1)
    ([%x = f32[] get-tuple-element(%p)], [])
    >>> readers.is_only(module.by_name("x"))
    True
    """

    def __init__(self) -> None:
        self._known: dict[Instruction, tuple[Readers, bool]] = {}

    def of(self, packed: Instruction, index: int) -> list[Instruction]:
        """The get-tuple-elements that take element `index`."""
        return self._found(packed)[0].get(index, [])

    def is_whole(self, packed: Instruction) -> bool:
        """Is the tuple handed on or given back as a whole, too?"""
        return self._found(packed)[1]

    def is_only(self, element: Instruction) -> bool:
        """Is a tuple's element read by this one instruction, and the tuple not as a whole?"""
        [packed] = element.operands
        return not self.is_whole(packed) and len(self.of(packed, element.tuple_index)) == 1

    def _found(self, packed: Instruction) -> tuple[Readers, bool]:
        known = self._known.get(packed)
        if known is None:
            readers: Readers = {}
            taken = [user for user in packed.users if user.opcode == "get-tuple-element"]
            for user in taken:
                readers.setdefault(user.tuple_index, []).append(user)
            known = self._known[packed] = readers, packed.is_root or len(taken) < len(packed.users)
        return known
