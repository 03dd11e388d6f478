"""Where a local instruction stands: in which piece, of which layer.

Floor: partitioner.  A piece is what was written for one instruction of the entry (its number is the instruction's
position), or for one result of the program (numbers behind those).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hlosharding.ir import Instruction
from hlosharding.partitioner.repeated_layers.folding import Folded
from hlosharding.partitioner.repeated_layers.places import OUTSIDE
from hlosharding.partitioner.repeated_layers.repeats import Family
from hlosharding.partitioner.repeated_layers.written import Written


class Place(NamedTuple):
    """Of a piece that the layers have."""

    family: Family
    row: Sequence[int]
    """By layer, the pieces that correspond to it."""
    layer: int

    @property
    def is_at_gap(self) -> bool:
        """Is it of the layers next to those that are left out?"""
        return self.layer == self.family.first - 1 or self.layer == self.family.end


@dataclass(slots=True)
class Pieces:
    """What was written for a folded program."""

    folded: Folded
    of: dict[int, list[Instruction]]
    """By piece."""
    owner: dict[Instruction, tuple[int, int]]
    """Of each local instruction, its piece and its place in that."""
    rows: list[tuple[Family, Sequence[int]]] = field(default_factory=list[tuple[Family, Sequence[int]]])
    """By layer, pieces that correspond."""
    row_of_kind: dict[int, tuple[Family, Sequence[int]]] = field(
        default_factory=dict[int, tuple[Family, Sequence[int]]]
    )
    _results: dict[int, Place] = field(default_factory=dict[int, Place])

    @classmethod
    def of_written(cls, folded: Folded, written: Written) -> Pieces:
        """Take what was written apart."""
        first, count = folded.entry[0].id, len(folded.entry)
        of = {inst.id - first: piece for inst, piece in written.pieces()}
        for result, one in written.of_results():
            of.setdefault(count + folded.kept_results[result], []).append(one)
        owner = {one: (piece, place) for piece, ones in of.items() for place, one in enumerate(ones)}
        found = cls(folded, of, owner, [(f, row) for f in folded.repeats.families for row in f.rows])
        for family, row in found.rows:
            found.row_of_kind[folded.repeats.kinds[row[family.first]]] = family, row
        found._add_results(count)
        return found

    def _add_results(self, count: int) -> None:
        """The results of the layers correspond as what they are results of."""
        leaves = self.folded.leaves
        for family, row in list(self.rows):
            for number in range(len(leaves.get(row[family.first], ()))):
                results = [leaves[i][number] + count if len(leaves.get(i, ())) > number else OUTSIDE for i in row]
                self.rows.append((family, results))
                self._results |= {r: Place(family, results, n) for n, r in enumerate(results) if r != OUTSIDE}

    @property
    def results(self) -> range:
        """The pieces of results."""
        count = len(self.folded.entry)
        return range(count, count + len(self.folded.source.entry.root.operands))

    def place(self, piece: int) -> Place | None:
        """Of a piece; None of one outside of the layers."""
        repeats = self.folded.repeats
        if piece >= len(repeats.kinds):
            return self._results.get(piece)
        kind = repeats.kinds[piece]
        if kind == OUTSIDE:
            return None
        family, row = self.row_of_kind[kind]
        return Place(family, row, repeats.layers[piece])

    def in_order(self) -> Iterator[int]:
        """The pieces of the whole program's instructions, as the walk would come to them."""
        opcodes = [inst.opcode for inst in self.folded.entry]
        first = self.folded.entry[0].id
        yield from (inst.id - first for inst in self.folded.source.entry.parameters)
        yield from (place for place, opcode in enumerate(opcodes) if opcode != "parameter")
