"""From the per-device program of a folded one to that of the whole: what was written for one layer is copied.

Floor: partitioner.  Goes through the whole program as the walk would.  Of a layer that was left out the pieces are
written anew, by the patterns of the layer before the gap; what stands next to the gap reads the copies.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

from hlosharding.ir import Instruction, Recipe, Shape, recipe_of
from hlosharding.partitioner.repeated_layers.folding import Folded, LayersDiffer
from hlosharding.partitioner.repeated_layers.patterns import Pattern, Patterns, Read
from hlosharding.partitioner.repeated_layers.pieces import Pieces, Place
from hlosharding.partitioner.repeated_layers.written import Written
from hlosharding.spmd import CAUSE_ATTRIBUTE, Cause


def unfold(folded: Folded, written: Written) -> None:
    """Make what was written that of the whole program.  Raises LayersDiffer where its layers were not written alike."""
    _Unfolding(folded, written).run()


class _Unfolding:
    def __init__(self, folded: Folded, written: Written) -> None:
        self.folded, self.written = folded, written
        self.program, self.entry = written.program, written.entry
        self.pieces = Pieces.of_written(folded, written)
        self.patterns = Patterns(self.pieces, self.program.partial_sums)
        self.rows = {
            f.base: {layer: [None] * self.patterns.count for layer in range(f.first - 1, f.end + 1)}
            for f in folded.repeats.families
        }
        """By family, the local instructions of each layer, by the number of their patterns, as far as they are there."""
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
        for piece in self.pieces.in_order():
            self._piece(piece, None)
        for ones in rounds:
            for piece in self.pieces.results:
                self._piece(piece, ones)
        self._root(root)
        self._undecided()

    def _rounds(self) -> list[set[Instruction]]:
        """What was written for the root: the walk goes over the results more than once."""
        written = self.written.of_results()
        begins = [n for n in range(1, len(written)) if written[n][0] < written[n - 1][0]]
        return [{one for _, one in written[a:b]} for a, b in pairwise([0, *begins, len(written)])]

    def _piece(self, piece: int, among: Collection[Instruction] | None) -> None:
        """What was written for an instruction, or of what was written for a result what is `among` others."""
        place, ones = self.pieces.place(piece), self.pieces.of.get(piece, [])
        if place is not None and place.layer in place.family.dropped:
            for pattern in self.patterns.of[place.row[place.family.first - 1]]:
                if among is None or pattern.made in among:
                    self._copy(place, pattern)
            return
        for number, one in enumerate(ones):
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

    def _copy(self, place: Place, pattern: Pattern) -> None:
        made, source, sums = pattern.made, None, self.program.partial_sums
        if pattern.source is not None:
            source = self.folded.entry[pattern.source[place.layer + pattern.shift]]
        operands = [self._at(place, read) for read in pattern.reads]
        if pattern.recipe is None:
            like = source or made
            copy = self.entry.again(like, made.opcode, made.shape, operands, made.called, like.name)
        else:
            name = source.name if source is not None and pattern.recipe.like is not None else None
            copy = self.entry.replay(made, self._recipe(pattern, pattern.recipe, source), operands, name)
        self.rows[place.family.base][place.layer][pattern.number] = copy
        if made in sums.values:
            sums.values.add(copy)
        if made in sums.readers:
            sums.readers.add(copy)
        if made.opcode == "parameter":
            self.written.boundary[copy] = self.written.boundary[made]

    def _recipe(
        self, pattern: Pattern, recipe: Recipe, source: Instruction | None, channel: int | None = None
    ) -> Recipe:
        """With the metadata of its own layer's instruction, and with numbers of its own; `channel`: one it has."""
        attributes = recipe.attributes
        if "channel_id" in attributes:
            attributes = {**attributes, "channel_id": channel or self.program.next_channel()}
        if source is None:
            return recipe._replace(attributes=attributes)
        if "parameter_number" in attributes:
            attributes = {**attributes, "parameter_number": source.parameter_number}
        if pattern.reason is not None:
            attributes = {**attributes, "frontend_attributes": {CAUSE_ATTRIBUTE: str(Cause(source, pattern.reason))}}
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
        made = self.entry.add("tuple", Shape.tuple([p.shape for p in parts]), parts, metadata_of=whole)
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
