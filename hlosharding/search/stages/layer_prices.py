"""What each layer of a program takes on a submesh: told from one pipeline in which every layer is a stage.

Floor: search.  Layers that are alike are the same programs there, so each of them is partitioned and priced once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from hlosharding.cost import Machine
from hlosharding.executor import BoundaryArray
from hlosharding.schedule import Add, Closing, Piece, Pipeline, Send, StageProgram, ValueType, Work
from hlosharding.search.stages.run_prices import Numbers

_FIGURES = ("seconds", "once", "kept", "held", "scratch")


def price_layers(cut: Pipeline, microbatches: int, machine: Machine) -> dict[str, Numbers]:
    """[layer] of each figure that `RunPrices.of_layers` takes.

    `cut`: for so many microbatches, its stages on the same devices all.
    """
    layers = [_Layer(cut, number, microbatches, machine) for number in range(len(cut.devices))]
    return {name: np.array([getattr(each, name) for each in layers], float) for name in _FIGURES}


def price_transfers(cut: Pipeline, submeshes: Sequence[tuple[int, ...]], machine: Machine) -> Numbers:
    """[submesh, layer]: seconds that a microbatch takes from the submesh before to this one and back, if the layer is
    the first there.  `cut`: as of `price_layers`.
    """
    sent = [_Layer(cut, number, 1, machine).sent for number in range(len(cut.devices))]
    between = [_seconds_between(*ends, sent, machine) for ends in pairwise(submeshes)]
    return np.array([np.zeros(len(sent)), *between])


def _seconds_between(
    ahead: tuple[int, ...], own: tuple[int, ...], sent: Sequence[Sequence[ValueType]], machine: Machine
) -> Numbers:
    """[layer]"""
    send = Send(to=own)
    pairs = [[(replace(kind, devices=ahead), replace(kind, devices=own)) for kind in kinds] for kinds in sent]
    return np.array([sum(send.work([a], [b], machine).seconds for a, b in each) for each in pairs])


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
    def sent(self) -> Sequence[ValueType]:
        """What passes read that layers ahead make, and what backward ones make for those."""
        makers, own = self.cut.makers, {name for step in self.passes for name in step.makes}
        read = self._read(self.passes).items()
        others = self._read(piece for piece in self.cut.pieces if piece.stage < self.number).items()
        from_ahead = [kind for name, kind in read if name in makers and makers[name].stage < self.number]
        return [*from_ahead, *(kind for name, kind in others if name in own)]

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
        read = self._read(backward).items()
        return sum(kind.device_bytes for name, kind in read if name in self.cut.batch or self._is_made_forward(name))

    def _is_made_forward(self, name: str) -> bool:
        return name in self.cut.makers and self.cut.makers[name].kind == "forward"

    @property
    def kept(self) -> float:
        """What all microbatches read; sums over them, and the term that is added next; what updates make anew."""
        inputs = self.cut.inputs.keys() - self.cut.batch.keys()
        read = self._read((*self.passes, *self.closings))
        lasting = sum(kind.device_bytes for name, kind in read.items() if name in inputs)
        terms = sum(term.device_bytes for term in self._terms) * min(self.microbatches, 2)
        return lasting + terms + sum(map(self._bytes_made_anew, self.closings))

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
