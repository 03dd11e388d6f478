"""Loops over layers cut between trips: as many loops as a pipeline has stages, each with its rows of the stacks.

Floor: schedule.  Weights of all layers in one array, their gradients and their updates are had in parts, each of which
lies where its layers do: ops that work row by row are done part by part, and the caller's stacked arrays are cut where
they enter and joined where they leave (`Interface`).  Whatever needs a stack as a whole gets its parts joined.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from hlosharding.errors import ScheduleError
from hlosharding.ir import (
    Builder,
    Callees,
    Instruction,
    Module,
    Shape,
    SliceDim,
    same_op,
)
from hlosharding.rules import Reduce, Signature, signature_of
from hlosharding.schedule.cutting.layer_loops import LayerLoop, layer_loop
from hlosharding.schedule.cutting.loop_parts import LoopParts
from hlosharding.schedule.cutting.microbatched import place_in_source
from hlosharding.schedule.cutting.stacked_values import BY_ROWS, StackedValues
from hlosharding.schedule.interface import Interface, Stack, whole_arrays


@dataclass(frozen=True)
class Fission:
    """A program whose loops over layers are cut, and what its caller's arguments and results are in it."""

    module: Module
    interface: Interface
    origin: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of parts, by name, the value of the given program whose parts they are."""
    stages: Mapping[str, int] = field(default_factory=dict[str, int])
    """Of parameters that are parts, by name, which they are: they should lie in a stage each."""

    def numbers(self, given: Collection[int]) -> list[int]:
        """Of arguments, by number, the numbers of the parameters that are their parts."""
        return [n for n, old in enumerate(self.interface.arguments) if old in given]


def fissioned(module: Module, batch: Collection[int], parts: int) -> Fission:
    """The program with each loop over layers as so many loops.

    `batch`: numbers of the parameters that are no weights.  Raises ScheduleError where a loop's trips do not divide.

    >>> import jax, jax.numpy as jnp, hlosharding as hs
    >>> def net(w, x):
    ...     return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)[0]
    >>> module = hs.trace(net)(jnp.ones((6, 4, 4)), jnp.ones((8, 4)))
    >>> made = fissioned(module, {1}, 3)
    >>> [str(p.shape) for p in made.module.entry.parameters], len(made.module.of_opcodes("while"))
    (['f32[2,4,4]', 'f32[2,4,4]', 'f32[2,4,4]', 'f32[8,4]'], 3)
    """
    loops = _loops_over_layers(module, batch, parts) if parts > 1 else {}
    if not loops:
        return Fission(module, whole_arrays(len(module.entry.parameters), len(module.entry.results)))
    return _Writer(module, batch, parts, loops).fission()


def _loops_over_layers(module: Module, batch: Collection[int], parts: int) -> dict[Instruction, LayerLoop]:
    """Those that read stacks of weights, or what such a loop has stacked."""
    loops: dict[Instruction, LayerLoop] = {}
    layered: set[Instruction] = set()
    varying: set[Instruction] = set()
    for inst in module.entry.instructions:
        if inst.opcode == "parameter":
            (varying if inst.parameter_number in batch else layered).add(inst)
        elif inst.opcode == "while":
            found = layer_loop(inst) if all(user.opcode == "get-tuple-element" for user in inst.users) else None
            if found is not None and not layered.isdisjoint(_stacks_read(found)):
                _check_divides(found, parts)
                if found.first_rows(parts) is not None:
                    loops[inst] = found
        elif inst.opcode == "get-tuple-element" and inst.operands[0] in loops:
            if inst.tuple_index in loops[inst.operands[0]].writes:
                layered.add(inst)
        elif _goes_by_layers(inst, layered) and varying.isdisjoint(inst.operands):
            layered.add(inst)
        if not varying.isdisjoint(inst.operands) and inst not in layered:
            varying.add(inst)
    return loops


def _goes_by_layers(inst: Instruction, layered: Collection[Instruction]) -> bool:
    has_rows = (o in layered and o.shape.dims[:1] == inst.shape.dims[:1] for o in inst.operands)
    return inst.opcode in BY_ROWS and any(has_rows)


def _check_divides(found: LayerLoop, parts: int) -> None:
    """Raises ScheduleError unless each stage has as many layers."""
    if found.counter.trips % parts:
        raise ScheduleError(
            f"a loop over {found.counter.trips} layers (%{found.loop.name}) is not cut into {parts} equal stages",
            where=place_in_source(found.loop),
            remedy=f"take stages, times chunks a device, that divide {found.counter.trips}; or list the layers",
        )


def _stacks_read(loop: LayerLoop) -> Iterator[Instruction]:
    return (loop.loop.operands[0].operands[index] for index in loop.reads)


class _Writer:
    """Writes the program again, with whole values and parts of values."""

    def __init__(
        self, module: Module, batch: Collection[int], parts: int, loops: Mapping[Instruction, LayerLoop]
    ) -> None:
        self.module, self.parts, self.loops = module, parts, loops
        self.in_parts = StackedValues(loops)
        self.builder = Builder(module.name, like=module)
        self.builder.module.signature = None
        self.callees = Callees(self.builder)
        self.loop_parts = LoopParts(self.builder, parts)
        self.cut = {p for p in module.entry.parameters if p in self.in_parts.dims and p.parameter_number not in batch}
        self.whole: dict[Instruction, Instruction] = {}
        self.made: dict[Instruction, list[Instruction]] = {}
        """What is made in parts."""
        self.slices: dict[Instruction, list[Instruction]] = {}
        """What is made whole, and read in parts."""
        self.origin: dict[str, str] = {}
        self.stages: dict[str, int] = {}
        self.elements: dict[Instruction, list[list[Instruction]]] = {}
        """Of loops, by element of the carry, what there is behind them."""
        self.main, self.numbers = self.builder.computation(module.entry.name), count()

    def fission(self) -> Fission:
        entry = self.module.entry
        packed = {loop.operands[0] for loop in self.loops if len(loop.operands[0].users) == 1}
        for inst in entry.parameters:
            self._parameter(inst)
        for inst in entry.instructions:
            if inst.opcode != "parameter" and inst not in packed and not inst.is_root:
                self._write(inst)
        results = [self._result(inst) for inst in entry.results]
        self.main.root(self.main.op("tuple", [part for found in results for part in found]))
        interface = Interface(
            tuple(self._stack(p) if p in self.cut else Stack() for p in entry.parameters),
            tuple(
                self._stack(inst) if len(found) > 1 else Stack()
                for inst, found in zip(entry.results, results, strict=True)
            ),
        )
        return Fission(self.builder.finish(self.main), interface, self.origin, self.stages)

    def _stack(self, inst: Instruction) -> Stack:
        return Stack(self.parts, self.in_parts.dims[inst])

    def _result(self, inst: Instruction) -> list[Instruction]:
        if inst not in self.whole and inst not in self.made:
            self._write(inst)
        return self.made[inst] if inst in self.made else [self.whole[inst]]

    def _parameter(self, inst: Instruction) -> None:
        shape = self._part_shape(inst) if inst in self.cut else inst.shape
        made = [
            self.main.parameter(next(self.numbers), shape, name=inst.name, like=inst)
            for _ in range(self.parts if inst in self.cut else 1)
        ]
        self._keep(inst, made)
        self.stages.update({part.name: number for number, part in enumerate(made) if inst in self.cut})

    def _keep(self, inst: Instruction, made: list[Instruction]) -> None:
        self.origin.update({part.name: inst.name for part in made})
        if len(made) > 1:
            self.made[inst] = made
        else:
            self.whole[inst] = made[0]

    def _write(self, inst: Instruction) -> None:
        if inst in self.loops:
            self._write_loop(self.loops[inst])
        elif inst.opcode == "get-tuple-element" and inst.operands[0] in self.loops:
            self._keep(inst, self.elements[inst.operands[0]][inst.tuple_index])
        elif inst in self.in_parts.factors:
            self._write_parts(inst, self.in_parts.factors[inst])
        else:
            self._keep(inst, [same_op(self.main, inst, [self._whole(o) for o in inst.operands], self.callees.of(inst))])

    def _write_parts(self, inst: Instruction, factor: int) -> None:
        signature = signature_of(inst)
        assert isinstance(signature, Signature)
        cut = {operand for operand, _ in signature.operand_dims(factor)}
        owes = signature.factors[factor].owes
        shape = inst.shape if isinstance(owes, Reduce) else self._part_shape(inst)
        made: list[Instruction] = []
        for part in range(self.parts):
            operands = [self._parts(o)[part] if n in cut else self._whole(o) for n, o in enumerate(inst.operands)]
            made.append(self.main.again(inst, inst.opcode, shape, operands, self.callees.of(inst), inst.name))
        if isinstance(owes, Reduce):
            while len(made) > 1:
                made = [self.main.op(owes.kind, made[:2], metadata_of=inst, name=inst.name), *made[2:]]
        self._keep(inst, made)

    def _write_loop(self, found: LayerLoop) -> None:
        init = found.loop.operands[0].operands
        given = [self._parts(o) if n in found.stacks else [self._whole(o)] for n, o in enumerate(init)]
        self.elements[found.loop] = self.loop_parts.written(self.main, found, given)

    def _whole(self, inst: Instruction) -> Instruction:
        if inst not in self.whole:
            dim = self.in_parts.dims[inst]
            self.whole[inst] = self.main.add(
                "concatenate", inst.shape, self.made[inst], metadata_of=inst, name=inst.name, dimensions=(dim,)
            )
        return self.whole[inst]

    def _parts(self, inst: Instruction) -> list[Instruction]:
        if inst not in self.made and inst not in self.slices:
            self.slices[inst] = [self._slice(inst, part) for part in range(self.parts)]
        return self.made.get(inst) or self.slices[inst]

    def _slice(self, inst: Instruction, part: int) -> Instruction:
        shape, cut = self._part_shape(inst), self.in_parts.dims[inst]
        rows = shape.dims[cut]
        dims = tuple(
            SliceDim(part * rows, (part + 1) * rows, 1) if dim == cut else SliceDim(0, size, 1)
            for dim, size in enumerate(shape.dims)
        )
        whole = self._whole(inst)
        return self.main.add("slice", shape, (whole,), metadata_of=inst, name=inst.name, slice_dims=dims)

    def _part_shape(self, inst: Instruction) -> Shape:
        dims = list(inst.shape.dims)
        dims[self.in_parts.dims[inst]] //= self.parts
        return inst.shape.with_dims(tuple(dims))
