"""Loops over layers cut between trips: a loop for each stage of a pipeline, each with its rows of the stacks.

Floor: schedule.  Weights of all layers in one array, their gradients and their updates are had in parts, each of which
lies where its layers do: ops that work row by row are done part by part, and the caller's stacked arrays are cut where
they enter and joined where they leave (`Interface`).  Whatever needs a stack as a whole gets its parts joined.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count, groupby

from hlosharding.ir import Builder, Callees, Instruction, Module, Shape, SliceDim, same_op
from hlosharding.rules import Reduce, Signature, signature_of
from hlosharding.schedule.cutting.layer_loops import LayerLoop, find_layer_loop
from hlosharding.schedule.cutting.loop_parts import LoopParts
from hlosharding.schedule.cutting.stacked_values import BY_ROWS, StackedValues
from hlosharding.schedule.interface import ArrayParts, Interface


@dataclass(frozen=True, eq=False)
class Fission:
    """A program whose loops over layers are cut, and what its caller's arguments and results are in it."""

    module: Module
    interface: Interface
    origin: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of parts, by name, the value of the given program whose parts they are."""
    stages: Mapping[str, int] = field(default_factory=dict[str, int])
    """Of parameters that loops read rows of, by name, where the layers are."""

    def numbers(self, given: Collection[int]) -> list[int]:
        """Of arguments, by number, the numbers of the parameters that are their parts."""
        return [n for n, old in enumerate(self.interface.arguments) if old in given]


def cut_loops(
    module: Module, batch: Collection[int], loops: Mapping[Instruction, LayerLoop], stages: Mapping[str, Sequence[int]]
) -> Fission:
    """The program with a loop for each stage in place of a loop over layers.

    `batch`: numbers of the parameters that are no weights.  `loops`: those of `find_loops_over_layers`.  `stages`: by
    name of forward loops the stage of each trip; those that share stacks with them, as backward ones do, are cut alike.

    >>> import jax, jax.numpy as jnp, hlosharding as hs
    >>> def net(w, x):
    ...     return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)[0]
    >>> module = hs.trace(net)(jnp.ones((6, 4, 4)), jnp.ones((8, 4)))
    >>> loops = find_loops_over_layers(module, {1})
    >>> made = cut_loops(module, {1}, loops, {loop.name: (0, 0, 0, 1, 1, 2) for loop in loops})
    >>> [str(p.shape) for p in made.module.entry.parameters], len(made.module.of_opcodes("while"))
    (['f32[3,4,4]', 'f32[2,4,4]', 'f32[1,4,4]', 'f32[8,4]'], 2)
    """
    said = {loop: tuple(stages[loop.name]) for loop in loops if loop.name in stages}
    runs = {loop: tuple(len(list(run)) for _, run in groupby(own)) for loop, own in said.items()}
    in_parts = StackedValues(loops, {loop: lengths for loop, lengths in runs.items() if len(lengths) > 1})
    # A loop that shares stacks with an earlier one is cut as that one, and its stages are not those that were said.
    as_said = [loop for loop, lengths in runs.items() if in_parts.trips.get(loop, lengths) == lengths]
    homes = dict(home for loop in as_said for home in _homes(loops[loop], said[loop]))
    return _FissionWriter(module, batch, loops, in_parts, homes).fission()


def _homes(found: LayerLoop, stages: Sequence[int]) -> Iterator[tuple[Instruction, list[int]]]:
    """Parameters of which a loop reads rows, and the stage of each of their parts."""
    for index, is_from_last in found.reads.items():
        value, own = found.loop.operands[0].operands[index], list(dict.fromkeys(stages))
        while len(value.operands) == 1:
            value = value.operands[0]
        if value.opcode == "parameter":
            yield value, own[::-1] if is_from_last else own


def find_loops_over_layers(module: Module, batch: Collection[int]) -> dict[Instruction, LayerLoop]:
    """Those that read stacks of weights, or what such a loop has stacked."""
    loops: dict[Instruction, LayerLoop] = {}
    layered: set[Instruction] = set()
    varying: set[Instruction] = set()
    for inst in module.entry.instructions:
        if inst.opcode == "parameter":
            (varying if inst.parameter_number in batch else layered).add(inst)
        elif inst.opcode == "while":
            found = find_layer_loop(inst) if all(user.opcode == "get-tuple-element" for user in inst.users) else None
            # A scan over time reads rows of the batch, and has its weights whole in each trip: it is none over layers.
            if found is not None and not layered.isdisjoint(inst.operands[0].operands[index] for index in found.reads):
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


class _FissionWriter:
    """Writes the program again, with whole values and parts of values."""

    def __init__(
        self,
        module: Module,
        batch: Collection[int],
        loops: Mapping[Instruction, LayerLoop],
        in_parts: StackedValues,
        homes: Mapping[Instruction, Sequence[int]],
    ) -> None:
        self.module, self.in_parts, self.homes = module, in_parts, homes
        self.loops = {loop: loops[loop] for loop in in_parts.trips}
        self.builder = Builder(module.name, like=module)
        # The function's arguments are no longer the parameters: `Interface` says how they are.
        self.builder.module.signature = None
        self.callees = Callees(self.builder)
        self.loop_parts = LoopParts(self.builder)
        self.cut = {p for p in module.entry.parameters if p in in_parts.rows and p.parameter_number not in batch}
        self.whole: dict[Instruction, Instruction] = {}
        self.made: dict[Instruction, list[Instruction]] = {}
        """What is made in parts."""
        self.slices: dict[tuple[Instruction, tuple[int, ...]], list[Instruction]] = {}
        """What is made whole, or in other parts, and read in parts."""
        self.origin: dict[str, str] = {}
        self.stages: dict[str, int] = {}
        self.elements: dict[Instruction, list[list[Instruction]]] = {}
        """Of loops, by element of the carry, what there is behind them."""
        self.main, self.numbers = self.builder.computation(module.entry.name), count()

    def fission(self) -> Fission:
        entry = self.module.entry
        packed = {loop.operands[0] for loop in self.loops if len(loop.operands[0].users) == 1}
        # All of them first, by number, wherever they stand: the parts of `Interface` are counted so.
        for inst in entry.parameters:
            self._parameter(inst)
        for inst in entry.instructions:
            if inst.opcode != "parameter" and inst not in packed and not inst.is_root:
                self._write(inst)
        results = [self._result(inst) for inst in entry.results]
        self.main.root(self.main.op("tuple", [part for found in results for part in found]))
        interface = Interface(
            tuple(self._stack(p, self._result(p)) for p in entry.parameters),
            tuple(self._stack(inst, found) for inst, found in zip(entry.results, results, strict=True)),
        )
        return Fission(self.builder.finish(self.main), interface, self.origin, self.stages)

    def _stack(self, inst: Instruction, made: Sequence[Instruction]) -> ArrayParts:
        if len(made) == 1:
            return ArrayParts()
        dim = self.in_parts.rows[inst].dim
        return ArrayParts(_sizes(made, dim), dim)

    def _result(self, inst: Instruction) -> list[Instruction]:
        if inst not in self.whole and inst not in self.made:
            self._write(inst)
        return self.made[inst] if inst in self.made else [self.whole[inst]]

    def _parameter(self, inst: Instruction) -> None:
        shapes = [inst.shape]
        if inst in self.cut:
            shapes = [self._part_shape(inst, rows) for rows in self.in_parts.rows[inst].lengths]
        made = [self.main.parameter(next(self.numbers), shape, name=inst.name, like=inst) for shape in shapes]
        self._keep(inst, made)
        self.stages.update((part.name, stage) for part, stage in zip(made, self.homes.get(inst, ()), strict=False))

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
            self._write_parts(inst, *self.in_parts.factors[inst])
        else:
            self._keep(inst, [same_op(self.main, inst, [self._whole(o) for o in inst.operands], self.callees.of(inst))])

    def _write_parts(self, inst: Instruction, factor: int, lengths: tuple[int, ...]) -> None:
        signature = signature_of(inst)
        assert isinstance(signature, Signature)
        cut = {operand for operand, _ in signature.operand_dims(factor)}
        owes = signature.factors[factor].owes
        made: list[Instruction] = []
        for part, rows in enumerate(lengths):
            shape = inst.shape if isinstance(owes, Reduce) else self._part_shape(inst, rows)
            operands = [
                self._parts(o, lengths)[part] if n in cut else self._whole(o) for n, o in enumerate(inst.operands)
            ]
            made.append(self.main.add_like(inst, inst.opcode, shape, operands, self.callees.of(inst), inst.name))
        if isinstance(owes, Reduce):
            while len(made) > 1:
                made = [self.main.op(owes.kind, made[:2], metadata_of=inst, name=inst.name), *made[2:]]
        self._keep(inst, made)

    def _write_loop(self, found: LayerLoop) -> None:
        trips = self.in_parts.trips[found.loop]
        given = [
            self._parts(o, trips[::-1] if found.stacks[n] else trips) if n in found.stacks else [self._whole(o)]
            for n, o in enumerate(found.loop.operands[0].operands)
        ]
        self.elements[found.loop] = self.loop_parts.write(self.main, found, trips, given)

    def _whole(self, inst: Instruction) -> Instruction:
        if inst not in self.whole:
            dim = self.in_parts.rows[inst].dim
            made = self.made[inst]
            self.whole[inst] = self.main.op("concatenate", made, metadata_of=inst, name=inst.name, dimensions=(dim,))
        return self.whole[inst]

    def _parts(self, inst: Instruction, lengths: tuple[int, ...]) -> list[Instruction]:
        made = self.made.get(inst, [])
        if _sizes(made, self.in_parts.rows[inst].dim) == lengths:
            return made
        if (inst, lengths) not in self.slices:
            firsts = accumulate(lengths, initial=0)
            self.slices[inst, lengths] = [self._slice(inst, *run) for run in zip(firsts, lengths, strict=False)]
        return self.slices[inst, lengths]

    def _slice(self, inst: Instruction, first: int, rows: int) -> Instruction:
        dims = [SliceDim(0, size, 1) for size in inst.shape.dims]
        dims[self.in_parts.rows[inst].dim] = SliceDim(first, first + rows, 1)
        return self.main.op("slice", (self._whole(inst),), metadata_of=inst, name=inst.name, slice_dims=tuple(dims))

    def _part_shape(self, inst: Instruction, rows: int) -> Shape:
        return inst.shape.with_dim(self.in_parts.rows[inst].dim, rows)


def _sizes(parts: Sequence[Instruction], dim: int) -> tuple[int, ...]:
    return tuple(part.shape.dims[dim] for part in parts)
