"""From the per-device program of a folded one to that of the whole: what was written for one layer is copied.

Floor: partitioner.  Goes through the whole program as the walk would.  Of a layer that was left out the pieces are
written anew, by the patterns of the layer before the gap; what stands next to the gap reads the copies.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import cast

from hlosharding.ir import Instruction, Recipe, Shape, recipe_of
from hlosharding.partitioner.repeated_layers.folding import Folded, LayersDiffer
from hlosharding.partitioner.repeated_layers.patterns import Pattern, Patterns, Read, Row
from hlosharding.partitioner.repeated_layers.pieces import Pieces, Place
from hlosharding.partitioner.repeated_layers.repeats import Family
from hlosharding.partitioner.repeated_layers.written import Written
from hlosharding.spmd import CAUSE_ATTRIBUTE, OpOrigin


def unfold(folded: Folded, written: Written) -> None:
    """Make what was written that of the whole program.  Raises LayersDiffer where its layers were not written alike."""
    _Unfolding(folded, written).run()


class _Unfolding:
    def __init__(self, folded: Folded, written: Written) -> None:
        self.folded, self.written = folded, written
        self.program, self.entry = written.program, written.entry
        self.pieces = Pieces.of_written(folded, written)
        self.patterns = Patterns(self.pieces, self.program.partial_sums)
        self.rows: dict[int, dict[int, Row]] = {
            f.base: {layer: [None] * self.patterns.count for layer in range(f.first - 1, f.end + 1)}
            for f in folded.repeats.families
        }
        """By family and layer, the local instructions by the number of their patterns, as far as they are there."""
        self.at_gap = {
            one: (family.base, layer)
            for family, row in self.pieces.rows
            for layer in (family.first - 1, family.end)
            for one in self.pieces.of.get(row[layer], ())
        }
        """What stands next to a gap: of which family, in which layer."""

    def run(self) -> None:
        """Piece by piece, in the order of the whole program."""
        first, places = self.folded.entry[0].id, self.pieces.place
        warned = [place for i in self.written.warned if (place := places(i.id - first)) is not None]
        if self.program.synced_conditions or any(place.is_at_gap for place in warned):
            raise LayersDiffer
        rounds, root = self._rounds(), self.entry.computation.root
        self.entry.take_out()
        kinds, layers, known = self.folded.repeats.kinds, self.folded.repeats.layers, self.pieces.row_of_kind.get
        for piece in self.pieces.in_order():
            of_kind = known(kinds[piece])
            if of_kind is not None and of_kind[0].first <= layers[piece] < of_kind[0].end:
                self._copy(*of_kind, layers[piece])
            else:
                self._piece(piece)
        for ones in rounds:
            for piece in self.pieces.results:
                self._piece(piece, ones)
        self._root(root)
        self._notes()
        self._undecided()
        self._plans()

    def _rounds(self) -> list[set[Instruction]]:
        """What was written for the root: the walk goes over the results more than once."""
        written = self.written.of_results()
        begins = [n for n in range(1, len(written)) if written[n][0] < written[n - 1][0]]
        return [{one for _, one in written[a:b]} for a, b in pairwise([0, *begins, len(written)])]

    def _piece(self, piece: int, among: Collection[Instruction] | None = None) -> None:
        """What was written for an instruction, or of what was written for a result what is `among` others."""
        place = self.pieces.place(piece)
        if place is not None and place.layer in place.family.dropped:
            self._copy(*place, among)
            return
        for number, one in enumerate(self.pieces.of.get(piece, ())):
            if among is not None and one not in among:
                continue
            if place is not None and place.is_at_gap:
                self._next_to_gap(place, one, self.patterns.of[place.row[place.family.first - 1]][number])
                continue
            if any(o in self.at_gap for o in one.operands):
                self._check(place, one.operands)
            self.entry.put_back(one, one.operands)

    def _next_to_gap(self, place: Place, one: Instruction, pattern: Pattern) -> None:
        """As it is, but for what it has of the layer in the gap."""
        inward = 1 if place.layer < place.family.first else -1
        operands, recipe = one.operands, None
        if any(read.shift == inward for read in pattern.reads):
            pairs = zip(pattern.reads, operands, strict=True)
            operands = tuple([o if r.shift != inward else self._at(place, r) for r, o in pairs])
        if pattern.shift == inward and pattern.source is not None:
            recipe = recipe_of(one)
            if recipe is None:
                raise LayersDiffer
            channel = recipe.attributes.get("channel_id")
            recipe = self._recipe(pattern, recipe, self.folded.entry[pattern.source[place.layer + inward]], channel)
        self.rows[place.family.base][place.layer][pattern.number] = one
        self.entry.put_back(one, operands, recipe)

    def _check(self, place: Place | None, operands: Sequence[Instruction]) -> None:
        """What is not next to a gap reads nothing across it."""
        for base, layer in [self.at_gap[o] for o in operands if o in self.at_gap]:
            if place is None or place.family.base != base:
                raise LayersDiffer
            if (place.layer < place.family.first) != (layer < place.family.first):
                raise LayersDiffer

    def _at(self, place: Place, read: Read) -> Instruction:
        """What one of that layer reads."""
        found = read.fixed or self.rows[place.family.base][place.layer + read.shift][read.number]
        if found is None:
            raise LayersDiffer
        return found

    def _copy(
        self, family: Family, row: Sequence[int], layer: int, among: Collection[Instruction] | None = None
    ) -> None:
        """A piece of a layer that was left out."""
        rows, entry = self.rows[family.base], self.folded.entry
        own, around = rows[layer], (rows[layer - 1], rows[layer], rows[layer + 1], self.patterns.fixed)
        for pattern in self.patterns.of[row[family.first - 1]]:
            made, source = pattern.made, None
            if among is not None and made not in among:
                continue
            operands = tuple([around[which][number] for which, number in pattern.slots])
            if None in operands:
                raise LayersDiffer
            if pattern.source is not None:
                source = entry[pattern.source[layer + pattern.shift]]
            own[pattern.number] = self._copied(pattern, source, cast(tuple[Instruction, ...], operands))

    def _copied(self, pattern: Pattern, source: Instruction | None, operands: tuple[Instruction, ...]) -> Instruction:
        """An instruction of ours; `source`: the global one of its own layer."""
        made, recipe = pattern.made, pattern.recipe
        if recipe is None:
            return self.entry.add_copy(made, operands, (source or made).name, source or made)
        name = source.name if source is not None and recipe.like is not None else made.opcode
        return self.entry.add_copy(made, operands, name, self._recipe(pattern, recipe, source))

    def _notes(self) -> None:
        """What was noted of an instruction holds for its copies."""
        sums, boundary = self.program.partial_sums, self.written.boundary
        for family, row in self.pieces.rows:
            for pattern in self.patterns.of[row[family.first - 1]]:
                made = pattern.made
                if made not in sums.values and made not in sums.readers and made not in boundary:
                    continue
                rows = self.rows[family.base]
                copies = [one for layer in family.dropped if (one := rows[layer][pattern.number]) is not None]
                for noted in (sums.values, sums.readers):
                    noted.update(copies if made in noted else ())
                if made in boundary:
                    boundary.update(dict.fromkeys(copies, boundary[made]))

    def _recipe(
        self, pattern: Pattern, recipe: Recipe, source: Instruction | None, channel: int | None = None
    ) -> Recipe:
        """With the metadata of its own layer's instruction, and with numbers of its own; `channel`: one it has."""
        attributes = recipe.attributes
        if pattern.has_own_numbers:
            attributes = dict(attributes)
            if "channel_id" in attributes:
                attributes["channel_id"] = channel or self.program.next_channel()
            if "parameter_number" in attributes and source is not None:
                attributes["parameter_number"] = source.parameter_number
            if pattern.reason is not None:
                attributes["frontend_attributes"] = {CAUSE_ATTRIBUTE: str(OpOrigin(source, pattern.reason))}
        if source is None:
            return recipe._replace(attributes=attributes)
        if recipe.like is not None:
            return Recipe(source.proto, None, attributes)
        return Recipe(None, source.proto, attributes)

    def _root(self, root: Instruction) -> None:
        """The tuple of all results."""
        parts, given = list[Instruction](), dict(zip(self.folded.kept_results, root.operands, strict=True))
        for number, piece in enumerate(self.pieces.results):
            place = self.pieces.place(piece)
            if place is None or place.layer not in place.family.dropped:
                parts.append(given[number])
                continue
            alike = [given[place.row[n] - self.pieces.results[0]] for n in (place.family.first - 1, place.family.end)]
            parts.append(self._at(place, self.patterns.read(place.family, *alike)))
        whole = self.folded.source.entry.root
        made = self.entry.add("tuple", Shape.tuple(tuple(p.shape for p in parts)), parts, metadata_of=whole)
        self.entry.root(made)
        self.written.boundary[made] = self.folded.root_sharding(self.written.boundary.pop(root))

    def _undecided(self) -> None:
        """What became of values, by the instructions of the whole program."""
        entry, by_id = self.folded.entry, self.folded.source.instructions
        found = {by_id[inst.id]: made for inst, made in self.program.undecided.items()}
        for inst, other, left_out in self.folded.alike:
            if (entry[inst] in found) != (entry[other] in found):
                raise LayersDiffer
            if entry[inst] in found:
                found |= {entry[one]: found[entry[inst]] for one in left_out}
        self.program.undecided = found

    def _plans(self) -> None:
        """How ops were partitioned, those of the layers that were left out as their like."""
        entry, by_id = self.folded.entry, self.folded.source.instructions
        found = {by_id[inst.id]: plan for inst, plan in self.written.plans.items()}
        for inst, _, left_out in self.folded.alike:
            if entry[inst] in found:
                found |= dict.fromkeys([entry[one] for one in left_out], found[entry[inst]])
        self.written.plans = found
