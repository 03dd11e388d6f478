"""What each layer of a program takes on a submesh: told from one pipeline in which every layer is a stage.

Floor: search.  Layers that are alike are the same programs there, so each of them is partitioned and priced once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np

from hlosharding.cost import Machine
from hlosharding.executor import BoundaryArray
from hlosharding.schedule import Add, Closing, Piece, Pipeline, StageProgram, ValueType, Work
from hlosharding.search.stages.run_prices import Numbers

_FIGURES = ("seconds", "once", "kept", "held", "scratch")


def price_layers(cut: Pipeline, microbatches: int, machine: Machine) -> Mapping[str, Numbers]:
    """[layer] of each figure that `RunPrices.of_layers` takes.

    `cut`: for so many microbatches, its stages on the same devices all.
    """
    layers = [_Layer(cut, number, microbatches, machine) for number in range(len(cut.devices))]
    return {name: np.array([getattr(each, name) for each in layers], float) for name in _FIGURES}


class _Layer:
    """One of them; figures are of one device."""

    def __init__(self, cut: Pipeline, number: int, microbatches: int, machine: Machine) -> None:
        self.cut, self.microbatches, self.machine, self.devices = cut, microbatches, machine, cut.devices[number]
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
    def once(self) -> float:
        return sum(work.seconds for work in map(self._work, self.closings))

    @property
    def scratch(self) -> float:
        return max((work.temporary_bytes for work in map(self._work, (*self.passes, *self.closings))), default=0.0)

    @property
    def held(self) -> float:
        """Of what backward passes read, what forward ones make, and examples."""
        backward = [step for step in self.passes if isinstance(step, Piece) and step.kind != "forward"]
        read = self._bytes_read(backward)
        return sum(read[name] for name in read if name in self.cut.batch or self._is_made_forward(name))

    def _is_made_forward(self, name: str) -> bool:
        return name in self.cut.makers and self.cut.makers[name].kind == "forward"

    @property
    def kept(self) -> float:
        """What all microbatches read; sums over them, and the term that is added next; what updates make anew."""
        read = self._bytes_read((*self.passes, *self.closings))
        lasting = sum(read[name] for name in read if name in self.cut.inputs and name not in self.cut.batch)
        terms = sum(term.device_bytes for term in self._terms) * min(self.microbatches, 2)
        return lasting + terms + sum(map(self._bytes_made_anew, self.closings))

    def _bytes_made_anew(self, closing: Closing) -> float:
        op = _program(closing)
        made, overwritten = sum(map(self._bytes_of, op.outputs)), sum(self._bytes_of(op.inputs[n]) for n in op.donates)
        return max(0, made - overwritten)

    def _bytes_read(self, steps: Iterable[Piece | Closing]) -> dict[str, int]:
        """By name."""
        read = (pair for step in steps for pair in zip(step.reads, _program(step).inputs, strict=True))
        return {name: self._bytes_of(array) for name, array in read}

    def _bytes_of(self, array: BoundaryArray) -> int:
        return self._type_of(array).device_bytes

    def _type_of(self, array: BoundaryArray) -> ValueType:
        return ValueType(array.shape, self.devices, array.sharding, is_on_host=array.memory is not None)

    def _work(self, step: Piece | Closing) -> Work:
        return step.op.work([self._type_of(array) for array in _program(step).inputs], (), self.machine)


def _program(step: Piece | Closing) -> StageProgram:
    assert isinstance(step.op, StageProgram)  # a step that was cut has no others
    return step.op
