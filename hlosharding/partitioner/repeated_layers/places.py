"""Which instruction of a layer corresponds to which of the next: found from the ops that use each other's values.

Floor: partitioner.  Sees instructions as numbers, no HLO.  One stretch of repeats is known (the forward layers, say);
what reads its values or is read by it, such as the backward layers and the optimiser's updates, in whatever order,
belongs to the layer of that value.  This is a guess that is checked (`steady_layers`): of what does repeat every
operand stands at the same place in its own or a neighbouring layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from hlosharding.ir import Computation, layers

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
    computed: Sequence[int]
    """Instructions in whose order a stretch is found."""
    root: int
    """The tuple of results; OUTSIDE of one result that is no tuple."""
    kinds: list[int] = field(init=False)
    layers: list[int] = field(init=False)
    next_kind: int = 0

    def __post_init__(self) -> None:
        self.kinds, self.layers = [OUTSIDE] * len(self.keys), [OUTSIDE] * len(self.keys)

    def add(self, stretch: layers.Stretch) -> int:
        """A stretch, and what belongs to its layers: of this kind and up."""
        first = self.next_kind
        for place, inst in enumerate(self.computed[stretch.start : stretch.start + stretch.size]):
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
                # Of several such ops in a layer the first corresponds to the first of another one: were they of one
                # kind, its row would have place for the last alone.
                again = times[read] = times.get(read, 0) + 1
                kinds[inst] = self._kind(numbers, (keys[inst], least, slot, again))

    def _what_is_read(self, first: int) -> None:
        """What only one layer, or it and its neighbour, read: weights, and what is made of them alone."""
        kinds, layers, keys = self.kinds, self.layers, self.keys
        numbers = dict[tuple[int, ...], int]()
        # From the end: who reads it has its kind by then.
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
        # Readers first: what moves to the next layer takes along what only it reads.
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


Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_ODD = 4
"""Layers at the ends, at most, in which an instruction may be none of its kind."""
_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Edges:
    """The operands of all instructions, one after the other."""

    operands: Ints
    users: Ints
    """Whose each of them is."""
    starts: Ints
    """Where those of each instruction begin; one more at the end."""

    @classmethod
    def of(cls, computation: Computation) -> Edges:
        """Of a computation; an instruction is named by its position."""
        used = [inst.operands for inst in computation.instructions]
        counts = np.fromiter(map(len, used), np.int64, len(used))
        flat = np.fromiter(map(attrgetter("id"), chain.from_iterable(used)), np.int64, int(counts.sum()))
        first = computation.instructions[0].id
        return cls(flat - first, np.repeat(np.arange(len(used)), counts), np.append(0, np.cumsum(counts)))

    def among(self, some: Sequence[int]) -> tuple[Ints, Ints]:
        """(users, operands) of those between `some` instructions, each named by its position among these."""
        number = np.full(len(self.starts), OUTSIDE)
        number[some] = np.arange(len(some))
        users, operands = number[self.users], number[self.operands]
        inside = (users != OUTSIDE) & (operands != OUTSIDE)
        return users[inside], operands[inside]


@dataclass(frozen=True, slots=True)
class Layers:
    """Layers `first` to `last` (numbers of a stretch's repeats), each with an instruction of every kind."""

    table: Ints
    """[kind, layer]: the instruction; OUTSIDE of a kind that the layers do not share."""
    first: int
    last: int


def steady_layers(kinds: Ints, layers: Ints, edges: Edges, base: int, count: int) -> Layers | None:
    """The layers that are alike, of `count`, looking at instructions of kind `base` and up; None: there are too few.

    Instructions that belong to none of them get no kind.
    """
    kinds[(kinds >= base) & ((layers < 0) | (layers >= count))] = OUTSIDE
    family = np.flatnonzero(kinds >= base)
    table = np.full((int(kinds.max()) - base + 1, count), OUTSIDE)
    table[kinds[family] - base, layers[family]] = family
    middle, found = count // 2, None
    # A kind is compared with the middle layer and the one after it: what these lack cannot be.
    kinds[family[np.isin(kinds[family] - base, np.flatnonzero(table[:, middle : middle + 2].min(1) < 0))]] = OUTSIDE
    # A kind that goes may be what others read, which then are none either.  It ends when none goes; where that takes
    # too long, no layer is left out.
    for _ in range(_ROUNDS):
        good = _alike(kinds, layers, edges, table, base, middle)
        first, last = _around(good, middle)
        narrow = last - first + 1 < count - _ODD
        left = table[narrow]
        gone = left[left >= 0]
        gone = gone[kinds[gone] >= 0]
        kinds[gone] = OUTSIDE
        if not len(gone):
            if not narrow.all():
                # At either end of them one more layer may stay, that has all kinds and reads of what has none.
                is_there = np.pad(table[~narrow] >= 0, ((0, 0), (1, 1)))
                row = np.arange(len(is_there))
                first, last = first[~narrow], last[~narrow]
                found = int((first - is_there[row, first]).max()), int((last + is_there[row, last + 2]).min())
            break
    if found is None or found[0] > middle - 1 or found[1] < middle + 1:
        kinds[kinds >= base] = OUTSIDE
        return None
    family = np.flatnonzero(kinds >= base)
    kinds[family[(layers[family] < found[0]) | (layers[family] > found[1])]] = OUTSIDE
    table[np.setdiff1d(np.arange(len(table)), kinds[family] - base)] = OUTSIDE
    return Layers(table, *found)


def _alike(kinds: Ints, layers: Ints, edges: Edges, table: Ints, base: int, middle: int) -> Bools:
    """[kind, layer]: is there an instruction whose operands correspond to those of the middle layer's?"""
    family = np.flatnonzero(kinds >= base)
    mine, next_one = table[kinds[family] - base, middle], table[kinds[family] - base, middle + 1]
    arity = np.diff(edges.starts)
    same = (arity[family] == arity[mine]) & (arity[family] == arity[next_one])
    family, mine, next_one = family[same], mine[same], next_one[same]
    sizes = arity[family]
    slots = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    operand, of_middle, of_next = (
        edges.operands[np.repeat(edges.starts[one], sizes) + slots] for one in (family, mine, next_one)
    )
    shift = layers[operand] - np.repeat(layers[family], sizes)
    moves = (kinds[operand] == kinds[of_middle]) & (kinds[of_middle] >= base) & (shift == layers[of_middle] - middle)
    # What two layers read of one instruction (a mask, the batch) all must; anything else must move along with them.
    fits = np.where(of_middle == of_next, operand == of_middle, moves & (np.abs(shift) <= 1))
    wrong = np.bincount(np.repeat(np.arange(len(family)), sizes)[~fits], minlength=len(family))
    good = np.zeros(table.shape, bool)
    right = family[wrong == 0]
    good[kinds[right] - base, layers[right]] = True
    return good


def _around(good: Bools, middle: int) -> tuple[Ints, Ints]:
    """By kind, the first and the last layer of those around the middle one in which all are good."""
    places = np.arange(good.shape[1])
    before = np.where(~good & (places <= middle), places + 1, 0).max(1)
    after = np.where(~good & (places >= middle), places - 1, good.shape[1] - 1).min(1)
    return before, after
