"""What each layer of a program takes on a submesh: told from one pipeline in which every layer is a stage.

Floor: search.  Layers that are alike are the same programs there, so each of them is partitioned and priced once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from hlosharding.cost import Machine
from hlosharding.executor import BoundaryArray
from hlosharding.ir import Shape
from hlosharding.schedule import Add, Closing, Piece, Pipeline, Send, StageProgram, ValueType, Work
from hlosharding.search.stages.run_prices import Numbers
from hlosharding.sharding import without_partials

FIGURES = ("seconds", "once", "kept", "held", "scratch")
"""What `RunPrices.of_layers` takes."""
OF_DATA_WAYS = ("exchanged", "updated", "summed")
"""What depends on them: of `once` the seconds that devices exchange, of `kept` the bytes that updates alone read, and
those of sums over microbatches that each microbatch reduces."""
SentTiles = Sequence[Sequence[Shape]]
"""[layer]: what a device sends to the one that has the layer, and gets back, if the layer is the first of a stage."""


def price_layers(cut: Pipeline, microbatches: int, machine: Machine) -> tuple[dict[str, Numbers], SentTiles]:
    """[layer] of each of `FIGURES` and `OF_DATA_WAYS`; and what is sent between stages.

    `cut`: for so many microbatches, its stages on the same devices all.
    """
    layers = [_Layer(cut, number, microbatches, machine) for number in range(len(cut.devices))]
    figures = {name: [getattr(each, name) for each in layers] for name in (*FIGURES, *OF_DATA_WAYS)}
    return {name: np.array(own, float) for name, own in figures.items()}, [each.sent for each in layers]


def price_transfers(sent: SentTiles, submeshes: Sequence[tuple[int, ...]], machine: Machine) -> Numbers:
    """[submesh, layer]: seconds that a microbatch takes from the submesh before to this one and back, if the layer is
    the first there."""
    between = [[_seconds_between(*ends, tiles, machine) for tiles in sent] for ends in pairwise(submeshes)]
    return np.array([[0.0] * len(sent), *between])


def _seconds_between(ahead: tuple[int, ...], own: tuple[int, ...], tiles: Sequence[Shape], machine: Machine) -> float:
    works = (Send(to=own).work([ValueType(tile, ahead)], [ValueType(tile, own)], machine) for tile in tiles)
    return sum(work.seconds for work in works)


class _Layer:
    """One of them; figures are of one device."""

    def __init__(self, cut: Pipeline, number: int, microbatches: int, machine: Machine) -> None:
        self.cut, self.number, self.microbatches, self.machine = cut, number, microbatches, machine
        self.devices = cut.devices[number]
        self.passes = [*(cut.openings if number == 0 else ()), *(each for each in cut.pieces if each.stage == number)]
        self.closings = [closing for closing in cut.closings if self._layer_of(closing) == number]

    def _layer_of(self, closing: Closing) -> int:
        """Where what it reads of microbatches is made."""
        return max((self.cut.makers[name].stage for name in closing.reads if name in self.cut.makers), default=0)

    @property
    def seconds(self) -> float:
        """Of passes, and of adding what they sum to what earlier microbatches made."""
        terms = self._terms if self.microbatches > 1 else ()
        added = (Add().work([term, term], [term], self.machine) for term in terms)
        return sum(work.seconds for work in (*map(self._work, self.passes), *added))

    @cached_property
    def _terms(self) -> Sequence[ValueType]:
        """Of sums over microbatches."""
        return [self._type_of(_program(step).outputs[number]) for step in self.passes for number in step.op.sums]

    @property
    def sent(self) -> Sequence[Shape]:
        """What passes read that layers ahead make, and what backward ones make for those."""
        makers, own = self.cut.makers, {name for step in self.passes for name in step.makes}
        read = self._read(self.passes).items()
        others = self._read(piece for piece in self.cut.pieces if piece.stage < self.number).items()
        from_ahead = [kind for name, kind in read if name in makers and makers[name].stage < self.number]
        return [kind.tile for kind in (*from_ahead, *(kind for name, kind in others if name in own))]

    @property
    def once(self) -> float:
        return sum(work.seconds for work in map(self._work, self.closings))

    @property
    def exchanged(self) -> float:
        return sum(work.spent.exposed_s for work in map(self._work, self.closings))

    @property
    def scratch(self) -> float:
        return max((work.temporary_bytes for work in map(self._work, (*self.passes, *self.closings))), default=0.0)

    @property
    def held(self) -> float:
        """Of what backward passes read, what forward ones make, and examples."""
        backward = [step for step in self.passes if isinstance(step, Piece) and step.kind != "forward"]
        kept = {name for name, piece in self.cut.makers.items() if piece.kind == "forward"} | self.cut.batch.keys()
        return sum(kind.device_bytes for name, kind in self._read(backward).items() if name in kept)

    @property
    def kept(self) -> float:
        """What all microbatches read; sums over them, and the term that is added next; what updates make anew."""
        lasting = self._lasting_bytes(self._read((*self.passes, *self.closings)))
        terms = sum(term.device_bytes for term in self._terms) * min(self.microbatches, 2)
        return lasting + terms + sum(map(self._bytes_made_anew, self.closings))

    @property
    def summed(self) -> float:
        # What is still a partial sum is reduced once, behind the last microbatch.
        return sum(term.device_bytes for term in self._terms if without_partials(term.sharding) == term.sharding)

    @property
    def updated(self) -> float:
        read, by_passes = self._read(self.closings), self._read(self.passes).keys()
        return self._lasting_bytes({name: kind for name, kind in read.items() if name not in by_passes})

    def _lasting_bytes(self, read: Mapping[str, ValueType]) -> float:
        inputs = self.cut.inputs.keys() - self.cut.batch.keys()
        return sum(kind.device_bytes for name, kind in read.items() if name in inputs)

    def _bytes_made_anew(self, closing: Closing) -> float:
        op = _program(closing)
        made = sum(self._type_of(array).device_bytes for array in op.outputs)
        return max(0, made - sum(self._type_of(op.inputs[number]).device_bytes for number in op.donates))

    def _read(self, steps: Iterable[Piece | Closing]) -> dict[str, ValueType]:
        """Of what steps read, by name."""
        read = (pair for step in steps for pair in zip(step.reads, _program(step).inputs, strict=True))
        return {name: self._type_of(array) for name, array in read}

    def _type_of(self, array: BoundaryArray) -> ValueType:
        return ValueType(array.shape, self.devices, array.sharding, is_on_host=array.memory is not None)

    def _work(self, step: Piece | Closing) -> Work:
        return step.op.work([self._type_of(array) for array in _program(step).inputs], (), self.machine)


def _program(step: Piece | Closing) -> StageProgram:
    assert isinstance(step.op, StageProgram)  # a step that was cut has no others
    return step.op
