"""The collectives of any HLO module, ours or XLA's, partitioned or optimized: what moves, how often, and why.

Floor: spmd.  One byte model for all programs: the mean over devices of the bytes *received*, padding included, loop
bodies times trip count, every branch of a conditional.  Knows no machine.  Mesh axes are device groups in the user's
words: device ids are positions in the device assignment, which counts row-major over the mesh.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np

from hlosharding.ir import Instruction, Module, Runs, Shape, collective_kind, executions
from hlosharding.sharding import DeviceGrid, MeshInfo, axis_refs
from hlosharding.spmd.participants import Devices, Groups, Pairs, device_groups, devices_of, permute_pairs


@lru_cache(maxsize=4096)
def axes_of_groups(groups: Groups, mesh: MeshInfo) -> str:
    """Names of the axes along which each group runs, "" if the groups are no box of axes.

    A part of an axis is written as Shardy does: `x:(2)4` is the sub-axis of size 4 below the first 2.

    >>> from hlosharding.sharding import MeshInfo
    >>> mesh = MeshInfo(("data", "model"), (2, 4))
    >>> axes_of_groups(((0, 1, 2, 3), (4, 5, 6, 7)), mesh), axes_of_groups(((0, 2), (1, 3), (4, 6), (5, 7)), mesh)
    ('model', 'model:(1)2')
    """
    grid = _grid(mesh.sizes)
    digits = grid.digits_along(groups, ordered=False)
    axes = axis_refs(digits, grid, mesh.names) if digits is not None else None
    return ",".join(axis.text for axis in axes or ())


@lru_cache(maxsize=4096)
def axes_of_pairs(pairs: Pairs, mesh: MeshInfo) -> str:
    """Names of the axes along which sources and targets of a permute differ.

    >>> from hlosharding.sharding import MeshInfo
    >>> mesh = MeshInfo(("data", "model"), (2, 4))
    >>> axes_of_pairs(((0, 4), (4, 0)), mesh)
    'data'
    """
    moving = np.array([(s, t) for s, t in pairs if s != t], dtype=int).reshape(-1, 2)
    # Where there are replicas, there are devices that the mesh does not know.
    if not len(moving) or moving.max() >= prod(mesh.sizes):
        return ""
    sources, targets = (_grid(mesh.sizes).coordinates[column] for column in moving.T)
    differs = (sources != targets).any(axis=0)
    return ",".join(name for name, differ in zip(mesh.names, differs, strict=True) if differ)


def _grid(sizes: tuple[int, ...]) -> DeviceGrid:
    return DeviceGrid(sizes, tuple(range(prod(sizes))))


# Text that comes back from files, hence possessive and atomic: looked at once.
_INSTRUCTION = re.compile(r"%\S++(?: \((\S+)\))?")
CAUSE_ATTRIBUTE = "hlosharding.cause"
"""Frontend attribute under which a partitioned module's text keeps the cause of a collective."""
_CAUSE = re.compile(r"(?>(?P<reason>.*?) for %)(?P<name>.*) \(\S*\)", re.DOTALL)


@dataclass(frozen=True)
class Collective:
    """One collective instruction.

    >>> import hlosharding.ir as ir
    >>> b = ir.Builder("m", num_partitions=8)
    >>> main = b.computation("main")
    >>> x = main.parameter(0, ir.Shape.array("f32", (100,)))
    >>> groups = ((0, 1, 2, 3), (4, 5, 6, 7))
    >>> _ = main.add(
    ...     "all-reduce", x.shape, (x,), replica_groups=groups, channel_id=1, use_global_device_ids=True
    ... )
    >>> [found] = collectives(b.finish(main))
    >>> found.kind, found.group_size, found.bytes_per_device
    ('all-reduce', 4, 600.0)
    """

    kind: str
    """Its opcode without -start: "all-gather", "all-reduce", "collective-permute" ..."""
    name: str
    groups: Groups | None
    """Device groups, all devices in them; None for a permute."""
    pairs: Pairs | None
    """(source, target) devices of a permute; else None."""
    shape: Shape
    """The local result."""
    dtype: str
    nbytes: float
    """The full local buffer B: output of an all-gather, input of everything else."""
    bytes_per_device: float
    """Bytes received in *all* executions, mean over devices."""
    executions: int
    cause: str
    """Why the partitioner put it there; "" where that is not known (XLA does not say)."""
    location: str
    """"file.py:31", or ""."""
    op_name: str
    axes: str
    """Mesh axes it runs over ("model", "data,model"), or "" where the mesh is not known or has no name for them."""
    num_devices: int
    in_conditional: bool
    is_exact: bool
    """False where the trip count of a loop around it is a guess."""

    @property
    def reason(self) -> str:
        """The cause without the op that needed it: "add of partial results"."""
        found = _CAUSE.fullmatch(self.cause)
        return found["reason"] if found else self.cause

    @property
    def needed_by(self) -> str:
        """Name of the op of the whole program that needed it; "" where that is not known."""
        found = _CAUSE.fullmatch(self.cause)
        return found["name"] if found else ""

    @property
    def bytes_per_execution(self) -> float:
        """Bytes received in one execution, mean over devices."""
        return self.bytes_per_device / self.executions if self.executions else 0.0

    @property
    def group_size(self) -> int:
        """Devices in the largest group (of a permute: 2 if anything moves)."""
        if self.groups is None:
            return 2 if any(s != t for s, t in self.pairs or ()) else 1
        return max(map(len, self.groups))

    @property
    def kind_of_cause(self) -> str:
        """The cause with opcodes in place of names: the same of equal layers."""
        return _INSTRUCTION.sub(lambda found: found[1] or found[0], self.cause)

    @cached_property
    def received(self) -> np.ndarray:
        """Bytes received in all executions, by device."""
        return received_by_device(self.kind, self.nbytes, self.groups, self.pairs, self.num_devices) * self.executions

    def __str__(self) -> str:
        over = f" over {self.axes}" if self.axes else f" in groups of {self.group_size}"
        guess = "" if self.is_exact else "~"
        times = f" x {guess}{self.executions}" if self.executions != 1 or guess else ""
        where = f" at {self.location}" if self.location else ""
        return f"{self.kind} {self.shape}{over}: {guess}{self.bytes_per_device:,.0f} bytes{times}{where}"


def collectives(module: Any, *, causes: Mapping[int, str] | None = None) -> list[Collective]:
    """All collectives of a module, in module order: of any HLO module, XLA's own output included.

    `module` is a Module, or anything that holds one as `.module` (Propagation, Partitioned).  `causes` maps
    instruction ids to a reason.  `bytes_per_device` counts all executions.

    >>> import hlosharding.ir as ir
    >>> b = ir.Builder("m")
    >>> main = b.computation("main")
    >>> _ = main.parameter(0, ir.Shape.array("f32", (100,)))
    >>> collectives(b.finish(main))
    []
    """
    reasons = causes if causes is not None else getattr(module, "causes", None) or {}
    module = module_of(module)
    runs, devices = executions(module), devices_of(module)
    return [
        read_collective(i, kind, runs[i.computation], devices, reasons.get(i.id))
        for i in module.instructions
        if (kind := collective_kind(i.opcode)) and i.computation in runs
    ]


def module_of(holder: Any) -> Module:
    """The Module that `holder` is or holds."""
    return holder if isinstance(holder, Module) else holder.module


def read_collective(
    instruction: Instruction, kind: str, runs: Runs, devices: Devices, cause: str | None = None
) -> Collective:
    """One instruction as a `Collective`, in a program that `devices` run."""
    shape = result_shape(instruction, kind)
    nbytes = full_buffer(instruction, kind, shape)
    is_permute = kind == "collective-permute"
    groups = None if is_permute else device_groups(instruction, devices)
    pairs = permute_pairs(instruction, devices) if is_permute else None
    mean = float(_mean_received(kind, nbytes, groups, pairs, devices.count))
    mesh = instruction.module.mesh
    axes = "" if mesh is None else axes_of_pairs(pairs or (), mesh) if groups is None else axes_of_groups(groups, mesh)
    leaves = shape.leaves
    return Collective(
        kind=kind,
        name=instruction.name,
        groups=groups,
        pairs=pairs,
        shape=shape,
        dtype=leaves[0].element_type if leaves else "token",
        nbytes=nbytes,
        bytes_per_device=mean * runs.count,
        executions=runs.count,
        cause=cause or instruction.frontend_attributes.get(CAUSE_ATTRIBUTE, ""),
        location=instruction.location,
        op_name=instruction.op_name,
        axes=axes,
        num_devices=devices.count,
        in_conditional=runs.in_conditional,
        is_exact=runs.is_exact,
    )


def result_shape(instruction: Instruction, kind: str) -> Shape:
    """The local result: a start's tuple (operands, results, context ...) holds it behind the operands."""
    shape = instruction.shape
    # An all-reduce-start alone has the shape of the result, with no operands before it.
    if instruction.opcode == kind or kind == "all-reduce":
        return shape
    count = sum(len(o.shape.leaves) for o in instruction.operands)
    results = shape.leaves[count : 2 * count]
    return results[0] if len(results) == 1 else Shape.tuple(results)


def full_buffer(instruction: Instruction, kind: str, shape: Shape) -> int:
    """B of the byte model: bytes of the output of an all-gather, of the input of everything else."""
    return shape.byte_size if kind == "all-gather" else sum(o.shape.byte_size for o in instruction.operands)


def _mean_received(kind: str, nbytes: float, groups: Groups | None, pairs: Pairs | None, count: int) -> float:
    if groups is None:
        return nbytes * sum(s != t for s, t in pairs or ()) / count
    if len({len(group) for group in groups}) == 1:
        return bytes_received(kind, nbytes, len(groups[0]))
    return sum(bytes_received(kind, nbytes, len(group)) * len(group) for group in groups) / count


def received_by_device(kind: str, nbytes: float, groups: Groups | None, pairs: Pairs | None, count: int) -> np.ndarray:
    """Bytes each device receives in one execution."""
    out = np.zeros(count)
    if groups is None:
        for source, target in pairs or ():
            if source != target:
                out[target] += nbytes
        return out
    for group in groups:
        out[list(group)] = bytes_received(kind, nbytes, len(group))
    return out


def bytes_received(kind: str, nbytes: float, group_size: int) -> float:
    """Bytes one device of the group receives; `nbytes` the full local buffer.

    >>> bytes_received("all-reduce", 1000, 4), bytes_received("all-gather", 1000, 4)
    (1500.0, 750.0)
    """
    if kind == "collective-permute":
        return nbytes
    share = (group_size - 1) / group_size
    return (2 * share if kind == "all-reduce" else share) * nbytes
