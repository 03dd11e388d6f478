"""Of what is taken to repeat, what does: every operand stands at the same place in its own or a neighbouring layer.

Floor: partitioner.  Sees instructions as numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from hlosharding.ir import Computation
from hlosharding.partitioner.repeated_layers.places import OUTSIDE

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
    kinds[family[np.isin(kinds[family] - base, np.flatnonzero(table[:, middle : middle + 2].min(1) < 0))]] = OUTSIDE
    for _ in range(_ROUNDS):
        good = _alike(kinds, layers, edges, table, base, middle)
        first, last = _around(good, middle)
        narrow = last - first + 1 < count - _ODD
        left = table[narrow]
        gone = left[left >= 0]
        gone = gone[kinds[gone] >= 0]
        kinds[gone] = OUTSIDE
        found = None if narrow.all() else (int(first[~narrow].max()), int(last[~narrow].min()))
        if not len(gone):
            break
    else:
        found = None
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
