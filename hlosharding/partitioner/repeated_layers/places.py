"""Which instruction of a layer corresponds to which of the next: found from the ops that use each other's values.

Floor: partitioner.  Sees instructions as numbers, no HLO.  One stretch of repeats is known (the forward layers, say);
what reads its values or is read by it, such as the backward layers and the optimiser's updates, in whatever order,
belongs to the layer of that value.  This is a guess that `steady` checks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hlosharding.ir import layers

OUTSIDE = -1


@dataclass(slots=True)
class Places:
    """Per instruction, what it is in its layer (a kind), and the number of its layer."""

    keys: Sequence[int]
    operands: Sequence[int]
    """Of all instructions, one after the other."""
    starts: Sequence[int]
    """Where those of each begin; one more at the end."""
    users: Callable[[int], Sequence[int]]
    root: int
    kinds: list[int] = field(init=False)
    layers: list[int] = field(init=False)
    next_kind: int = 0

    def __post_init__(self) -> None:
        self.kinds, self.layers = [OUTSIDE] * len(self.keys), [OUTSIDE] * len(self.keys)

    def add(self, stretch: layers.Stretch) -> int:
        """A stretch, and what belongs to its layers: of this kind and up."""
        first = self.next_kind
        for place in range(stretch.size):
            inst = stretch.start + place
            if self.starts[inst] < self.starts[inst + 1]:  # weights may stand layers ahead of what reads them
                self.kinds[inst], self.layers[inst] = first + place % stretch.period, place // stretch.period
        self.next_kind += stretch.period
        self._what_reads(first)
        self._what_is_read(first)
        self._to_readers(first + stretch.period, stretch.count // 2)
        return first

    def _what_reads(self, first: int) -> None:
        """An op is of the layer of that of its operands whose kind was known first."""
        kinds, layers, keys = self.kinds, self.layers, self.keys
        numbers, times = dict[tuple[int, ...], int](), dict[tuple[int, ...], int]()
        for inst, kind in enumerate(kinds):
            if kind >= 0 or inst == self.root:
                continue
            operands = self._of(inst)
            known = [seen for operand in operands if (seen := kinds[operand]) >= first]
            if known:
                least = min(known)
                slot = [kinds[operand] for operand in operands].index(least) if len(operands) > 1 else 0
                layer = layers[inst] = layers[operands[slot]]
                read = (keys[inst], least, slot, layer)
                again = times[read] = times.get(read, 0) + 1
                kinds[inst] = self._kind(numbers, (keys[inst], least, slot, again))

    def _what_is_read(self, first: int) -> None:
        """What only one layer, or it and its neighbour, read: weights, and what is made of them alone."""
        kinds, layers, keys = self.kinds, self.layers, self.keys
        numbers = dict[tuple[int, ...], int]()
        for inst in range(len(kinds) - 1, -1, -1):
            if kinds[inst] >= 0 or inst == self.root:
                continue
            users = self.users(inst)
            if not users:
                continue
            reader = min(users, key=kinds.__getitem__)
            near = [layers[user] for user in users]
            if kinds[reader] >= first and max(near) - min(near) <= 1:
                kinds[inst] = self._kind(numbers, (keys[inst], kinds[reader], self._of(reader).index(inst)))
                layers[inst] = layers[reader]

    def _to_readers(self, first: int, middle: int) -> None:
        """What only the next layer reads is of that one, from kind `first` on; looked at in the middle layer."""
        kinds, layers = self.kinds, self.layers
        moved = dict[int, int]()
        for inst in range(len(kinds) - 1, -1, -1):
            if kinds[inst] < first or layers[inst] != middle:
                continue
            readers = [user for user in self.users(inst) if user != self.root]
            shifts = {layers[user] + moved.get(kinds[user], 0) - middle if kinds[user] >= 0 else 0 for user in readers}
            if len(shifts) == 1 and 0 not in shifts:
                moved[kinds[inst]] = shifts.pop()
        for inst, kind in enumerate(kinds):
            if kind in moved:
                layers[inst] += moved[kind]

    def _of(self, inst: int) -> Sequence[int]:
        return self.operands[self.starts[inst] : self.starts[inst + 1]]

    def _kind(self, numbers: dict[tuple[int, ...], int], seen: tuple[int, ...]) -> int:
        if seen not in numbers:
            numbers[seen] = self.next_kind
            self.next_kind += 1
        return numbers[seen]
