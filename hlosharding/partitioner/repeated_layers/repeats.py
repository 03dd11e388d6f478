"""What repeats in a program, and which of it may be left out while the rest is decided.

Floor: partitioner.  Instructions are named by their position in the entry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from hlosharding.ir import (
    REDUCER_KINDS,
    Computation,
    Instruction,
    Module,
    Shape,
    attributes_of,
    reducer_kind,
    stated_of,
)
from hlosharding.ir import layers as stretches
from hlosharding.partitioner.repeated_layers.places import OUTSIDE, Bools, Edges, Ints, Layers, Places, steady_layers


def op_keys(module: Module, annotated: frozenset[str]) -> list[int]:
    """A number for each instruction of the entry: opcode, shape, attributes, callees, sharding, annotated or not."""
    numbers: dict[Any, int] = {}
    does = cache(_does)
    number, sharding = numbers.setdefault, module.shardings.get
    found: list[int] = []
    for inst in module.entry.instructions:
        key = (inst.opcode, inst.shape, sharding(inst.id), attributes_of(inst), inst.channel_id)
        if inst.called:
            key = (*key, *map(does, inst.called))
        if inst.proto.HasField("frontend_attributes"):
            key = (*key, stated_of(inst))
        # It keeps its sharding, where others may take another one: so they are not alike.
        if inst.name in annotated:
            key = (*key, "annotated")
        found.append(number(key, len(numbers)))
    return found


def _does(computation: Computation) -> Any:
    """What a reducer does; any other computation is like itself alone."""
    kind, types = reducer_kind(computation), [i.shape for i in computation.instructions]
    return (kind, *types) if kind in REDUCER_KINDS and len(types) == 3 else computation


_FEW = 1000
"""Instructions: a program of so many is partitioned before its layers are found."""
_LEAST_LAYERS = 8
"""With less what is left out does not pay for finding it, and for comparing programs with one layer more."""
_LEAST_TIED = 4
"""Layers of which some are tied: three, and one of the ends, in which something is not as in the others."""
_FEW_LAYERS = 4
"""So many are kept, with those at the ends in which something is not as in the others."""
_KEPT = 1
"""Layers that are kept on either side of the gap: what is decided of both is compared.  With two GPT-2 has to have 16
layers before this pays, and takes 1.2 times as long with twelve."""
_WORTH = 0.4
"""Of the instructions, so many must be left out.  Of 14 deep programs those with less took 1.2 to 1.6 times as long as
with every layer decided, and with more than half mostly 0.5 to 0.9."""


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
        # Kinds are numbered on from family to family: the last that begins below has it.
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
    entry = module.entry.instructions
    if len(entry) < _FEW or any(i.control_predecessors for i in entry):
        return None
    # As what is annotated the root keeps its sharding.
    found = _families(module, annotated | {module.entry.root.name}, _to_leave_out, 2 * _KEPT + 1)
    return None if found is None else _checked(*found)


def alike_in_layers(module: Module) -> list[list[Instruction]]:
    """Instructions that do the same, one of each layer of a stack: its ops, forward and backward, weights, updates.

    >>> import jax, jax.numpy as jnp, hlosharding as hs
    >>> def tower(x, weights):
    ...     for w in weights:
    ...         x = x + jnp.tanh(jnp.sin(x) @ w)
    ...     return x
    >>> square = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    >>> rows = alike_in_layers(hs.trace(tower)(square, [square] * 20))
    >>> sorted(row[0].opcode for row in rows), {len(row) for row in rows}
    (['add', 'dot', 'parameter', 'sine', 'tanh'], {20})
    """
    found = _families(module, frozenset(), _to_tie, 2)
    entry = module.entry.instructions
    rows = [row for family in found[1] for row in family.rows] if found is not None else []
    return [[entry[inst] for inst in row if inst != OUTSIDE] for row in rows]


_Worthwhile: TypeAlias = Callable[[Ints, "Bools | None"], "stretches.Stretch | None"]
"""Of the ops' keys, and of which of them are free, the next stretch."""
_Found: TypeAlias = "tuple[Places, list[Family], Edges]"


def _families(module: Module, annotated: frozenset[str], worthwhile: _Worthwhile, least: int) -> _Found | None:
    """All stacks of more than `least` layers that are worthwhile, one after the other."""
    entry, first = module.entry.instructions, module.entry.instructions[0].id
    computed = _computed(entry)
    if worthwhile(_outlines([entry[inst] for inst in computed]), None) is None:
        return None
    numbers = op_keys(module, annotated)
    edges, root = Edges.of(module.entry), module.entry.root
    keys, near = np.array(numbers)[computed], edges.among(computed)
    read, starts = edges.operands.tolist(), edges.starts.tolist()
    # A result that is no tuple is an op like others.
    end = root.id - first if root.opcode == "tuple" else OUTSIDE
    places = Places(numbers, read, starts, lambda i: [u.id - first for u in entry[i].users], computed, end)
    families, stretch = list[Family](), worthwhile(keys, None)
    while stretch is not None:
        stretch = stretches.between_layers(stretch, *near)
        base = places.add(stretch)
        kinds = np.array(places.kinds)
        found = steady_layers(kinds, np.array(places.layers), edges, base, stretch.count)
        is_deep = found is not None and found.last - found.first >= least
        places.kinds[:] = np.where(kinds < base, kinds, kinds if is_deep else OUTSIDE).tolist()
        if found is None or not is_deep:
            break
        families.append(_family(found, base))
        stretch = worthwhile(keys, kinds[computed] < 0)
    return places, families, edges


def _computed(entry: Sequence[Instruction]) -> list[int]:
    """What is computed of the program's parameters.

    Constants, and what is made of them alone, stand beside the first op that reads them: they would make its layer
    another than those that read them, too.  And weights may stand layers ahead of what reads them.
    """
    found, known = list[int](), {inst for inst in entry if inst.opcode == "parameter"}
    for number, inst in enumerate(entry):
        if not known.isdisjoint(inst.operands):
            known.add(inst)
            found.append(number)
    return found


def _outlines(entry: Sequence[Instruction]) -> Ints:
    """Opcodes and shapes as numbers: where they do not repeat, nothing does."""
    numbers: dict[tuple[str, Shape], int] = {}
    return np.array([numbers.setdefault((i.opcode, i.shape), len(numbers)) for i in entry])


def _to_leave_out(keys: Ints, free: Bools | None) -> stretches.Stretch | None:
    """A stretch of which enough can be left out: backward layers and updates come to it, and a second stack."""
    found = _first_stretch(keys, free, _LEAST_LAYERS)
    if found is None or 6 * (found.count - _FEW_LAYERS) * found.period < _WORTH / 2 * len(keys):
        return None
    return found


def _first_stretch(keys: Ints, free: Bools | None, least: int) -> stretches.Stretch | None:
    return stretches.first_stretch(keys, np.ones(len(keys), bool) if free is None else free, least)


def _to_tie(keys: Ints, free: Bools | None) -> stretches.Stretch | None:
    return _first_stretch(keys, free, _LEAST_TIED)


def _family(found: Layers, base: int) -> Family:
    rows = found.table.tolist()
    return Family(base, rows, found.first + _KEPT, found.last + 1 - _KEPT)


def _checked(places: Places, families: Sequence[Family], edges: Edges) -> Repeats | None:
    """What is left out: of stacks that nobody but their own layers and the root reads."""
    kinds, layers = np.array(places.kinds), np.array(places.layers)
    dropped, kept = np.zeros(len(kinds), bool), list[Family]()
    for number, family in enumerate(families):
        end = families[number + 1].base if number + 1 < len(families) else places.next_kind
        mine = (kinds >= family.base) & (kinds < end)
        left_out = mine & (layers >= family.first) & (layers < family.end)
        is_read = left_out[edges.operands] & (edges.users != places.root)
        readers, read = edges.users[is_read], edges.operands[is_read]
        if mine[readers].all() and (np.abs(layers[readers] - layers[read]) <= 1).all():
            kept.append(family)
            dropped |= left_out
        else:
            kinds[mine] = OUTSIDE
    if dropped.sum() < _WORTH * len(kinds):
        return None
    return Repeats(kinds.tolist(), places.layers, tuple(kept), dropped)
