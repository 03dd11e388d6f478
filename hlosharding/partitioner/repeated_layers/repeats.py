"""What repeats in a program, and which of it may be left out while the rest is decided.

Floor: partitioner.  Instructions are named by their position in the entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hlosharding.ir import Instruction, Module, Shape
from hlosharding.ir import layers as stretches
from hlosharding.partitioner.repeated_layers.op_keys import op_keys
from hlosharding.partitioner.repeated_layers.places import OUTSIDE, Places
from hlosharding.partitioner.repeated_layers.steady import Bools, Edges, Ints, Layers, steady_layers

_FEW = 1000
"""Instructions: a program of so many is partitioned before its layers are found."""
_LEAST_LAYERS = 16
_FEW_LAYERS = 8
"""Some nine are kept, with those at the ends in which something is not as in the others."""
_KEPT = 2
"""Layers that are kept on either side of the gap."""
_WORTH = 0.4
"""Of the instructions, so many must be left out."""


@dataclass(frozen=True, slots=True)
class Family:
    """Layers that are alike: those of one stack, forward and backward, with their weights and updates."""

    base: int
    """Its first kind."""
    table: Sequence[Sequence[int]]
    """[kind - base][layer]: the instruction; OUTSIDE of a kind that they do not share."""
    first: int
    """The first layer that is left out."""
    end: int
    """The first one behind them that is kept."""

    @property
    def rows(self) -> list[Sequence[int]]:
        """Of `table`, those of kinds that all layers have."""
        return [row for row in self.table if row[self.first] != OUTSIDE]

    @property
    def dropped(self) -> range:
        """The layers that are left out."""
        return range(self.first, self.end)

    def folded(self, layer: int) -> int:
        """The number of a kept layer among those that are kept."""
        return layer if layer < self.first else layer - len(self.dropped)


@dataclass(frozen=True, slots=True)
class Repeats:
    """What repeats in the entry of a program."""

    kinds: list[int]
    """What each instruction is in its layer, or OUTSIDE."""
    layers: list[int]
    families: tuple[Family, ...]
    dropped: Bools
    """Those of the layers that are left out."""

    def family(self, inst: int) -> Family:
        """The layers that an instruction of some kind belongs to."""
        return next(f for f in reversed(self.families) if self.kinds[inst] >= f.base)

    def at(self, inst: int, layer: int) -> int:
        """Its like in another layer."""
        family = self.family(inst)
        return family.table[self.kinds[inst] - family.base][layer]

    def stand_in(self, dropped: int, other: int) -> int:
        """What takes the place of an instruction that is left out, for one of a layer next to its own."""
        family = self.family(dropped)
        gap = len(family.dropped)
        return self.at(dropped, self.layers[dropped] + (gap if self.layers[other] < family.first else -gap))


def repeats_of(module: Module, annotated: frozenset[str]) -> Repeats | None:
    """What repeats; None where that is too little, or something outside of the layers reads what would be left out.

    `annotated`: names of what the user annotated.
    """
    entry, first = module.entry.instructions, module.entry.instructions[0].id
    if len(entry) < _FEW or any(i.control_predecessors for i in entry) or _worthwhile(_outlines(entry)) is None:
        return None
    numbers = op_keys(module, annotated)
    keys, edges, root = np.array(numbers), Edges.of(module.entry), module.entry.root.id - first
    places = Places(
        numbers, edges.operands.tolist(), edges.starts.tolist(), lambda i: [u.id - first for u in entry[i].users], root
    )
    families, stretch = list[Family](), _worthwhile(keys)
    while stretch is not None:
        stretch = stretches.between_layers(stretch, edges.users, edges.operands)
        base = places.add(stretch)
        kinds = np.array(places.kinds)
        found = steady_layers(kinds, np.array(places.layers), edges, base, stretch.count)
        is_deep = found is not None and found.last - found.first > 2 * _KEPT
        places.kinds[:] = np.where(kinds < base, kinds, kinds if is_deep else OUTSIDE).tolist()
        if found is None or not is_deep:
            break
        families.append(_family(found, base))
        stretch = _worthwhile(keys, kinds < 0)
    return _checked(places, families, edges)


def _outlines(entry: Sequence[Instruction]) -> Ints:
    """Opcodes and shapes as numbers: where they do not repeat, nothing does."""
    numbers: dict[tuple[str, Shape], int] = {}
    return np.array([numbers.setdefault((i.opcode, i.shape), len(numbers)) for i in entry])


def _worthwhile(keys: Ints, free: Bools | None = None) -> stretches.Stretch | None:
    """A stretch of which enough can be left out: backward layers and updates come to it, and perhaps a second stack."""
    found = stretches.first_stretch(keys, np.ones(len(keys), bool) if free is None else free, _LEAST_LAYERS)
    if found is None or 6 * (found.count - _FEW_LAYERS) * found.period < _WORTH * len(keys):
        return None
    return found


def _family(found: Layers, base: int) -> Family:
    rows = found.table.tolist()
    return Family(base, rows, found.first + _KEPT, found.last + 1 - _KEPT)


def _checked(places: Places, families: Sequence[Family], edges: Edges) -> Repeats | None:
    """What is left out, where nobody but the layers themselves and the root reads it."""
    kinds, layers = np.array(places.kinds), np.array(places.layers)
    dropped = np.zeros(len(kinds), bool)
    for number, family in enumerate(families):
        end = families[number + 1].base if number + 1 < len(families) else places.next_kind
        mine = (kinds >= family.base) & (kinds < end)
        dropped |= mine & (layers >= family.first) & (layers < family.end)
        is_read = mine[edges.operands] & dropped[edges.operands] & (edges.users != places.root)
        readers, read = edges.users[is_read], edges.operands[is_read]
        if not mine[readers].all() or (np.abs(layers[readers] - layers[read]) > 1).any():
            return None
    if dropped.sum() < _WORTH * len(kinds):
        return None
    return Repeats(places.kinds, places.layers, tuple(families), dropped)
