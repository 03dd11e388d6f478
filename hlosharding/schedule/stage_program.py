"""A stage program: a partitioned program as one step of a schedule, on a submesh.

Floor: schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from hlosharding.compiler import partition
from hlosharding.cost import CostReport, FlopsByType, Machine, cost, execute_priced, hardware_flops
from hlosharding.errors import ScheduleError
from hlosharding.executor import BoundaryArray, ShardMapProgram, run_local
from hlosharding.frontends import trace
from hlosharding.ir import COLLECTIVES, Instruction, Module
from hlosharding.schedule.op import Groups, Op, Value, Work, check_count, check_same_devices, type_of
from hlosharding.schedule.shares import map_shares
from hlosharding.schedule.tiles import Tiles
from hlosharding.schedule.value_type import Types, ValueType
from hlosharding.spmd import Devices, Pairs, device_groups, permute_pairs


class ProgramOp(Op):
    """What a partitioned program is to a schedule's types: arrays of these shapes and shardings in and out."""

    is_program = True

    def __init__(
        self,
        word: str,
        num_devices: int,
        inputs: Sequence[BoundaryArray],
        outputs: Sequence[BoundaryArray],
        sums: Sequence[int] = (),
        donates: Sequence[int] = (),
    ) -> None:
        self.word, self.num_devices = word, num_devices
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.sums, self.donates = tuple(sums), tuple(donates)
        if not all(0 <= n < len(self.outputs) for n in self.sums):
            raise ScheduleError(f"@{word} has {len(self.outputs)} results, sums are {sorted(self.sums)[:8]}")
        if not all(0 <= n < len(self.inputs) for n in self.donates):
            raise ScheduleError(f"@{word} has {len(self.inputs)} operands, it donates {sorted(self.donates)[:8]}")

    @property
    def arrays(self) -> tuple[BoundaryArray, ...]:
        """All that enter and leave it."""
        return (*self.inputs, *self.outputs)

    @property
    def name(self) -> str:
        return f"@{self.word}"

    def infer(self, operands: Sequence[Value]) -> Types:
        check_count(len(self.inputs), operands, self)
        types = [type_of(value) for value in operands]
        if not types:
            raise ScheduleError(
                f"{self.name} takes no operand, which would say where it runs", remedy="give it an array"
            )
        devices = check_same_devices(types)
        if len(devices) != self.num_devices:
            raise ScheduleError(f"{self.name} runs on {self.num_devices} devices, its operands lie on {len(devices)}")
        for number, (found, taken) in enumerate(zip(types, self.inputs, strict=True)):
            if found.shape != taken.shape:
                raise ScheduleError(f"operand {number} of {self.name} is {found.shape}, it takes {taken.shape}")
            if found.sharding != taken.sharding:
                what = f"operand {number} of {self.name} lies as {found.sharding}, it takes {taken.sharding}"
                raise ScheduleError(what, remedy="send it in that sharding")
        shares = map_shares([t.shares for t in types], [n in self.sums for n in range(len(self.outputs))])
        outputs = zip(self.outputs, shares, strict=True)
        return [
            ValueType(made.shape, devices, made.sharding, found, made.memory is not None) for made, found in outputs
        ]


class StageProgram(ProgramOp):
    """A partitioned program under a name.  It takes and gives flat arrays, in the order of its parameters and results.

    `sums`: numbers of the results that sum over the examples of a batch, as gradients of parameters do: of a piece of
    the batch they are terms.  `donates`: numbers of the parameters that it may overwrite.

    >>> import jax, jax.numpy as jnp
    >>> x = jax.ShapeDtypeStruct((4, 8), jnp.float32)
    >>> layer = StageProgram.of("layer", lambda w, x: jnp.tanh(x @ w), jax.ShapeDtypeStruct((8, 8), jnp.float32), x)
    >>> operands = [ValueType(array.shape, (3,)) for array in layer.inputs]
    >>> [str(found) for found in layer.infer(operands)]
    ['f32[4,8] on {3}']
    """

    def __init__(
        self, word: str, program: ShardMapProgram, *, sums: Sequence[int] = (), donates: Sequence[int] = ()
    ) -> None:
        super().__init__(word, program.num_devices, *program.boundary, sums, donates)
        self.program = program
        self._works: dict[Machine, Work] = {}

    @classmethod
    def of(
        cls,
        word: str,
        function: Callable[..., Any],
        *arguments: Any,
        sums: Sequence[int] = (),
        donates: Sequence[int] = (),
        **options: Any,
    ) -> StageProgram:
        """Trace a function and partition it.  `arguments`: arrays or ShapeDtypeStructs; `options`: those of `hs.trace`.

        `sums` and `donates` number the function's arrays in the order of its flat arguments and results.
        """
        return cls(word, partition(trace(function, **options)(*arguments)).program, sums=sums, donates=donates)

    def under(self, word: str, *, donates: Sequence[int] = ()) -> StageProgram:
        """The same program under another name, with other parameters that it may overwrite."""
        made = StageProgram(word, self.program, sums=self.sums, donates=donates)
        # What it costs is the program's and the machine's: equal stages are priced once, whatever they are called.
        made._works = self._works
        return made

    def meaning(self, arrays: Sequence[np.ndarray], types: Types) -> Sequence[np.ndarray]:
        return self.program.run_reference(*arrays)

    @cached_property
    def tied(self) -> Groups:
        """Members of the submesh that its collectives bring together, be it by way of others; each is in one group."""
        module, count = self.program.module, self.num_devices
        groups = {member: {member} for member in range(count)}
        for inst in module.instructions:
            for group in _meetings(inst, Devices(count)):
                together = set[int]().union(*(groups[member] for member in group))
                groups.update(dict.fromkeys(together, together))
        return tuple(sorted({tuple(sorted(together)) for together in groups.values()}))

    def groups(self, operands: Types, results: Types) -> Groups:
        devices = operands[0].devices
        return tuple(tuple(devices[member] for member in together) for together in self.tied)

    def on_tiles(self, tiles: Tiles, operands: Types, results: Types) -> Tiles:
        devices = operands[0].devices
        members = {devices.index(device): list(own) for device, own in tiles.items()}
        made = run_local(self.program.module, members, self.num_devices)
        return {devices[member]: own for member, own in made.items()}

    def work(self, operands: Types, results: Types, machine: Machine) -> Work:
        # Machines of devices that are joined alike are equal, so that stages on different ones share a price.
        own = machine.among(operands[0].devices)
        if own not in self._works:
            self.know_cost(own, cost(self.program.module, own))
        return self._works[own]

    def know_cost(self, machine: Machine, report: CostReport) -> None:
        """What it costs on a submesh that is such a machine."""
        self._works[machine] = program_work(self.program.module, self.arrays, report)

    @cached_property
    def flops(self) -> FlopsByType:
        return hardware_flops(self.program.module)

    def report(self, machine: Machine) -> CostReport:
        return cost(self.program.module, machine.with_devices(self.num_devices))

    def __repr__(self) -> str:
        return f"StageProgram({self.word}, {self.num_devices} devices)"


def program_work(module: Module, arrays: Sequence[BoundaryArray], report: CostReport) -> Work:
    """What a program for all devices of a machine costs; `arrays`: all that enter and leave it."""
    found = execute_priced(module, report)
    ends = (*module.entry.parameters, *module.entry.results)
    leaves = [(inst, number) for inst in ends for number, _ in enumerate(inst.shape.leaves)]
    # A parameter that is a result counts once in the peak; beside it there is a copy, which is a value of the schedule.
    once = dict(zip(leaves, arrays, strict=True)).values()
    lasting = sum(ValueType(a.shape, (), a.sharding).tile_bytes for a in once if a.memory is None)
    temporary = max(0.0, float(report.peak_memory_bytes - lasting))
    return Work(found.seconds, temporary_bytes=temporary, breakdown=found.breakdown)


def _meetings(inst: Instruction, devices: Devices) -> Groups | Pairs:
    """Devices that wait for each other in an op."""
    if inst.opcode == "collective-permute":
        return permute_pairs(inst, devices)
    return device_groups(inst, devices) if inst.opcode in COLLECTIVES else ()
