"""A stage program for one of its devices alone: what it would do with the others becomes a local op.

Floor: schedule.  A stub makes the shape that the collective makes and touches about the memory that it touches; what
it computes is another thing.  So the program's time is that of one rank without its communication.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from hlosharding.errors import ScheduleError
from hlosharding.executor import NO_OPTIONS, BoundaryArray, Executable, ShardMapProgram
from hlosharding.ir import COLLECTIVES, DEVICE_NUMBERS, Instruction, Module, NameUniquer, Shape, SliceDim, rewrite
from hlosharding.sharding import REPLICATED

_OPTIONS: Mapping[str, Mapping[str, str]] = {"cpu": {"xla_disable_hlo_passes": "cse_barrier_expander"}}
"""By platform.  XLA for CPUs drops barriers before it fuses, so that a stub between two ops would be no work at all."""


def compile_stub(program: ShardMapProgram, member: int, device: Any, *, donate: Sequence[int] = ()) -> Executable:
    """Device `member` of a partitioned program, compiled for some device, with what keeps the stubs' work apart."""
    options = _OPTIONS.get(device.platform, NO_OPTIONS)
    return stub_program(program, member).compile([device], donate=donate, compiler_options=options)


def stub_program(program: ShardMapProgram, member: int) -> ShardMapProgram:
    """Device `member` of a partitioned program, as a program of one device that takes and gives its tiles.

    >>> import hlosharding.ir as ir
    >>> b = ir.Builder("m", num_partitions=4)
    >>> main = b.computation("main")
    >>> x = main.parameter(0, ir.Shape.array("f32", (2,)))
    >>> y = main.add("all-gather", ir.Shape.array("f32", (8,)), (x,), dimensions=(0,), replica_groups=((0, 1, 2, 3),),
    ...              channel_id=1)
    >>> whole = BoundaryArray(ir.Shape.array("f32", (2,)), REPLICATED), BoundaryArray(y.shape, REPLICATED)
    >>> program = ShardMapProgram(b.finish(main), inputs=whole[:1], outputs=whole[1:])
    >>> stub_program(program, 3).run(np.float32([1, 2]))
    [array([1., 2., 1., 2., 1., 2., 1., 2.], dtype=float32)]
    """
    inputs, outputs = program.boundary
    return ShardMapProgram(stub_module(program.module, member), inputs=_tiles(inputs), outputs=_tiles(outputs))


def _tiles(arrays: Iterable[BoundaryArray]) -> list[BoundaryArray]:
    return [BoundaryArray(a.shape.with_dims(a.tile), REPLICATED, memory=a.memory) for a in arrays]


def stub_module(module: Module, member: int) -> Module:
    """The module of one device: no collective is left, and its number is a constant.  Raises ScheduleError.

    An all-reduce and a permute become a copy, a gather repeats the tile, a scatter takes a slice of it.  A loop that
    asks the other devices whether to go on asks itself alone.
    """
    if not 0 <= member < max(1, module.num_partitions):
        raise ScheduleError(f"member {member} of a program of {module.num_partitions} devices")
    made = module.clone()
    made.shardings, made.mesh, made.signature, made.num_partitions = {}, None, None, 1
    stubs = _Stubs(made, member)
    for computation in made.computations:
        for inst in list(computation.instructions):
            if inst.opcode in DEVICE_NUMBERS or inst.opcode in COLLECTIVES:
                stubs.replace(inst)
    rewrite.dead_code(made)
    made.renumber()
    return made


def dims_that_differ(dims: Sequence[int], wanted: Sequence[int]) -> list[tuple[int, int, int]]:
    """Where a collective's result is larger or smaller than its operand: (dim, size, wanted size).

    >>> dims_that_differ((2, 8), (8, 4))
    [(0, 2, 8), (1, 8, 4)]
    """
    return [(dim, has, wants) for dim, (has, wants) in enumerate(zip(dims, wanted, strict=True)) if has != wants]


class _Stubs:
    """Puts local ops into the place of others."""

    def __init__(self, module: Module, member: int) -> None:
        self._member = member
        self._names = NameUniquer(i.name for c in module.computations for i in c.instructions)

    def replace(self, inst: Instruction) -> None:
        made = self._number(inst) if inst.opcode in DEVICE_NUMBERS else self._collective(inst)
        rewrite.replace_uses(inst, made)
        rewrite.remove(inst)

    def _number(self, inst: Instruction) -> Instruction:
        number = self._member if inst.opcode == "partition-id" else 0  # there is one replica
        return self._add(inst, "constant", inst.shape, (), literal=np.array(number, inst.shape.dtype))

    def _collective(self, inst: Instruction) -> Instruction:
        # Of a ragged all-to-all the result has the shape of its second operand, which it overwrites.
        operands = inst.operands[1:2] if inst.opcode == "ragged-all-to-all" else inst.operands
        leaves = [self._stub(inst, o, shape) for o, shape in zip(operands, inst.shape.leaves, strict=True)]
        return self._add(inst, "tuple", inst.shape, leaves) if inst.shape.is_tuple else leaves[0]

    def _stub(self, inst: Instruction, operand: Instruction, shape: Shape) -> Instruction:
        """Between barriers: XLA neither fuses over a collective nor computes past it."""
        value = self._add(inst, "opt-barrier", operand.shape, (operand,))
        for dim, has, wants in dims_that_differ(operand.shape.dims, shape.dims):
            value = self._repeat(inst, value, dim, wants // has) if wants > has else self._cut(inst, value, dim, wants)
        if value.opcode == "opt-barrier":
            value = self._copy(inst, value)
        return self._add(inst, "opt-barrier", shape, (value,))

    def _copy(self, inst: Instruction, value: Instruction) -> Instruction:
        """Every element read and written: XLA drops a mere copy, but not a choice of which it sees no outcome."""
        shape, one = value.shape, Shape.array("pred", ())
        always = self._add(inst, "constant", one, (), literal=np.array(True))
        unseen = self._add(inst, "opt-barrier", one, (always,))
        zero = self._add(inst, "constant", shape.with_dims(()), (), literal=np.zeros((), shape.dtype))
        zeros = self._add(inst, "broadcast", shape, (zero,), dimensions=())
        choice = self._add(inst, "broadcast", shape.with_type("pred"), (unseen,), dimensions=())
        return self._add(inst, "select", shape, (choice, value, zeros))

    def _repeat(self, inst: Instruction, value: Instruction, dim: int, times: int) -> Instruction:
        dims, rank = value.shape.dims, value.shape.rank
        shape = value.shape.with_dims((*dims[:dim], times, *dims[dim:]))
        kept = tuple(n + (n >= dim) for n in range(rank))
        more = self._add(inst, "broadcast", shape, (value,), dimensions=kept)
        return self._add(inst, "reshape", value.shape.with_dim(dim, times * dims[dim]), (more,))

    def _cut(self, inst: Instruction, value: Instruction, dim: int, size: int) -> Instruction:
        shape = value.shape.with_dim(dim, size)
        slices = tuple(SliceDim(0, limit, 1) for limit in shape.dims)
        return self._add(inst, "slice", shape, (value,), slice_dims=slices)

    def _add(
        self, inst: Instruction, opcode: str, shape: Shape, operands: Sequence[Instruction], **attributes: Any
    ) -> Instruction:
        """Before the one that it stands for, with its metadata."""
        place = inst.computation.instructions.index(inst)
        name = self._names.fresh(f"{inst.name}.stub")
        return rewrite.insert(inst.computation, place, opcode, shape, operands, name=name, like=inst, **attributes)
