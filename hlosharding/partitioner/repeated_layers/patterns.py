"""How the local instructions of a layer are copied for another one: found by comparing two layers.

Floor: partitioner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from hlosharding.ir import Instruction, Recipe, recipe_of
from hlosharding.partitioner.repeated_layers.folding import LayersDiffer
from hlosharding.partitioner.repeated_layers.pieces import Pieces, Place
from hlosharding.partitioner.repeated_layers.repeats import Family
from hlosharding.spmd import CAUSE_ATTRIBUTE, OpOrigin, PartialSums

_OWN_NUMBERS = frozenset({"channel_id", "parameter_number"})


class Read(NamedTuple):
    """What a copy reads: `fixed`, or what stands at a place in a layer."""

    fixed: Instruction | None
    number: int
    """Of the place's pattern among all; of what is fixed, among such."""
    shift: int = 0
    """From the copy's layer to that one."""


@dataclass(slots=True)
class Pattern:
    """A local instruction, as it is copied."""

    made: Instruction
    number: int
    """Of its place among those of all patterns."""
    reads: tuple[Read, ...]
    recipe: Recipe | None
    source: Sequence[int] | None
    """By layer, the global instruction whose proto or metadata it has; None: it has none, or all have the same."""
    shift: int
    """From the copy's layer to that of the source."""
    reason: str | None
    """Of a collective, why it is there."""
    slots: tuple[tuple[int, int], ...] = field(init=False)
    """`reads` as places in what `Patterns.around` gives."""

    has_own_numbers: bool = field(init=False)
    """Has it attributes that each copy has of its own?"""

    def __post_init__(self) -> None:
        own = self.recipe is not None and not _OWN_NUMBERS.isdisjoint(self.recipe.attributes)
        self.has_own_numbers = own or self.reason is not None
        self.slots = tuple([(_FIXED if r.fixed is not None else r.shift + 1, r.number) for r in self.reads])


_FIXED = 3
Row = list[Instruction | None]


class Patterns:
    """The patterns of all pieces of the layers before a gap."""

    def __init__(self, pieces: Pieces, sums: PartialSums) -> None:
        self.pieces, self.sums = pieces, sums
        self.fixed: Row = []
        """What patterns read that is the same for all layers."""
        self.of: dict[int, list[Pattern]] = {}
        """By the piece of the layer before the gap."""
        self.first: dict[int, int] = {}
        """The number of the first pattern of such a piece."""
        entry, folded = pieces.folded.entry, pieces.folded
        self._positions: dict[int, int] = {}
        first = entry[0].id
        for inst in folded.kept:
            key = id(inst.proto)
            self._positions[key] = -1 if key in self._positions else inst.id - first
        count = 0
        for family, row in pieces.rows:
            self.first[row[family.first - 1]] = count
            count += len(pieces.of.get(row[family.first - 1], ()))
        self.count = count
        for family, row in pieces.rows:
            self._add(Place(family, row, family.first - 1))

    def _add(self, place: Place) -> None:
        family, row = place.family, place.row
        before, behind = row[family.first - 1], row[family.end]
        mine, others = self.pieces.of.get(before, []), self.pieces.of.get(behind, [])
        if len(mine) != len(others):
            raise LayersDiffer
        first = self.first[before]
        self.of[before] = [
            self._pattern(place, first + n, *pair) for n, pair in enumerate(zip(mine, others, strict=True))
        ]

    def _pattern(self, place: Place, number: int, made: Instruction, other: Instruction) -> Pattern:
        """Of two instructions that correspond."""
        sums = self.sums
        if made.opcode != other.opcode or made.shape != other.shape or made.called != other.called:
            raise LayersDiffer
        if len(made.operands) != len(other.operands):
            raise LayersDiffer
        if (made in sums.values) != (other in sums.values) or (made in sums.readers) != (other in sums.readers):
            raise LayersDiffer
        reads = tuple([self.read(place.family, *pair) for pair in zip(made.operands, other.operands, strict=True)])
        recipe, its_recipe = recipe_of(made), recipe_of(other)
        if recipe is None or its_recipe is None:
            if recipe is not its_recipe:
                raise LayersDiffer
            source, shift = self._source(place, made.proto, other.proto)
            return Pattern(made, number, reads, None, source and source.row, shift, None)
        protos = [r.like if r.like is not None else r.metadata_of for r in (recipe, its_recipe)]
        if (recipe.like is None) != (its_recipe.like is None):
            raise LayersDiffer
        source, shift = self._source(place, *protos)
        reason = self._same_attributes(recipe, its_recipe, source)
        return Pattern(made, number, reads, recipe, source and source.row, shift, reason)

    def read(self, family: Family, mine: Instruction, other: Instruction) -> Read:
        """What is read in the place of what two layers read."""
        piece, at = self.pieces.owner.get(mine, (None, 0))
        found = None if piece is None else self.pieces.place(piece)
        if mine is other:
            if found is not None and found.is_at_gap:
                raise LayersDiffer
            self.fixed.append(mine)
            return Read(mine, len(self.fixed) - 1)
        its_piece, its_at = self.pieces.owner.get(other, (None, 0))
        its = None if its_piece is None else self.pieces.place(its_piece)
        if found is None or its is None or found.row is not its.row or found.family is not family or at != its_at:
            raise LayersDiffer
        shift = family.folded(found.layer) - (family.first - 1)
        if family.folded(its.layer) != family.folded(found.layer) + 1 or abs(shift) > 1:
            raise LayersDiffer
        before = found.row[family.first - 1]
        if at >= len(self.pieces.of.get(before, ())):
            raise LayersDiffer
        return Read(None, self.first[before] + at, shift)

    def _source(self, place: Place, mine: Any, other: Any) -> tuple[Place | None, int]:
        """Of whom two protos are: the instruction, and from a copy's layer to its own."""
        if mine is other:
            at = self._positions.get(id(mine))
            found = None if at is None else self.pieces.place(at)
            if found is not None and found.is_at_gap:
                raise LayersDiffer
            return None, 0
        pair = self._positions.get(id(mine), -1), self._positions.get(id(other), -1)
        if min(pair) < 0:
            raise LayersDiffer
        found, its = self.pieces.place(pair[0]), self.pieces.place(pair[1])
        family = place.family
        if found is None or its is None or found.row is not its.row or found.family is not family:
            raise LayersDiffer
        if family.folded(its.layer) != family.folded(found.layer) + 1:
            raise LayersDiffer
        return found, family.folded(found.layer) - (family.first - 1)

    def _same_attributes(self, recipe: Recipe, other: Recipe, source: Place | None) -> str | None:
        """The reason of a collective, where it has one; all but what each has of its own must be equal."""
        mine, its = recipe.attributes, other.attributes
        if mine.keys() != its.keys():
            raise LayersDiffer
        for name, value in mine.items():
            if name in _OWN_NUMBERS or name == "frontend_attributes":
                continue
            same = np.array_equal(value, its[name]) if isinstance(value, np.ndarray) else value == its[name]
            if not same:
                raise LayersDiffer
        if "frontend_attributes" not in mine:
            return None
        entry = self.pieces.folded.entry
        given = mine["frontend_attributes"]
        if given.keys() != {CAUSE_ATTRIBUTE} or source is None:
            if given != its["frontend_attributes"]:
                raise LayersDiffer
            return None
        text = given[CAUSE_ATTRIBUTE]
        ending = str(OpOrigin(entry[source.row[source.layer]], ""))
        reason = text.removesuffix(ending)
        next_layer = source.layer + 1
        if source.layer == source.family.first - 1:
            next_layer = source.family.end
        expected = str(OpOrigin(entry[source.row[next_layer]], reason))
        if not text.endswith(ending) or its["frontend_attributes"] != {CAUSE_ATTRIBUTE: expected}:
            raise LayersDiffer
        return reason
