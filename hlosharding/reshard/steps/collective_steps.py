"""Steps that are one collective each: all-gather, all-reduce, reduce-scatter, all-to-all, permute.

Floor: reshard.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from hlosharding.cost import Machine, collective_time, op_time
from hlosharding.ir import Instruction, Shape, reduce_arrays
from hlosharding.reshard.layout import Dims, Table
from hlosharding.reshard.steps.local_steps import Pairs, Step, Tiles, renamed_groups, renamed_pairs, shorten
from hlosharding.spmd import Emitter, Groups, bytes_received
from hlosharding.spmd import collective_arrays as meaning


@dataclass(frozen=True, slots=True)
class _UniformCollective(Step):
    """A collective in groups of one size: all devices receive as much."""

    opcode: ClassVar[str]
    groups: Groups

    @property
    def size(self) -> int:
        """Of each group."""
        return len(self.groups[0])

    def apply(self, tiles: Tiles) -> list[npt.NDArray[Any]]:
        out = list(tiles)
        for group in self.groups:
            for device, tile in zip(group, self.exchange([tiles[d] for d in group]), strict=True):
                out[device] = tile
        return out

    def exchange(self, members: Tiles) -> Tiles:
        """Of the tiles of a group's members theirs afterwards."""
        raise NotImplementedError

    def full_bytes(self, local: Shape) -> int:
        """Of the buffer that prices are made of: what goes in."""
        return local.byte_size

    def received_bytes(self, local: Shape, num_devices: int) -> npt.NDArray[np.float64]:
        return np.full(num_devices, self.mean_bytes(local, num_devices))

    def mean_bytes(self, local: Shape, num_devices: int) -> float:
        return bytes_received(self.opcode, self.full_bytes(local), self.size)

    def seconds(self, local: Shape, machine: Machine) -> float:
        return collective_time(self.opcode, self.full_bytes(local), self.size, self.groups, machine)

    def rename_devices(self, names: Table) -> Step:
        return replace(self, groups=renamed_groups(self.groups, names))


@dataclass(frozen=True, slots=True)
class AllGather(_UniformCollective):
    """Tiles of each group joined along `dim` in group order."""

    opcode = "all-gather"
    dim: int

    def result(self, local: Shape) -> Shape:
        return local.with_dims(_scaled(local.dims, self.dim, self.size, 1))

    def exchange(self, members: Tiles) -> Tiles:
        return meaning.all_gather(members, self.dim)

    def full_bytes(self, local: Shape) -> int:
        return self.size * local.byte_size

    def emit(self, emitter: Emitter, x: Instruction) -> Instruction:
        return emitter.all_gather(x, self.dim, self.groups)

    def __str__(self) -> str:
        return f"all-gather dim {self.dim} over {_groups(self.groups)}"


@dataclass(frozen=True, slots=True)
class AllReduce(_UniformCollective):
    """Elementwise reduction over each group."""

    opcode = "all-reduce"
    kind: str

    def exchange(self, members: Tiles) -> Tiles:
        return meaning.all_reduce(members, partial(reduce_arrays, self.kind))

    def emit(self, emitter: Emitter, x: Instruction) -> Instruction:
        return emitter.all_reduce(x, self.groups, self.kind)

    def __str__(self) -> str:
        return f"all-reduce {self.kind} over {_groups(self.groups)}"


@dataclass(frozen=True, slots=True)
class ReduceScatter(_UniformCollective):
    """Elementwise reduction over each group; member i keeps the i-th part along `dim`."""

    opcode = "reduce-scatter"
    dim: int
    kind: str

    def result(self, local: Shape) -> Shape:
        return local.with_dims(_scaled(local.dims, self.dim, 1, self.size))

    def exchange(self, members: Tiles) -> Tiles:
        return meaning.reduce_scatter(members, partial(reduce_arrays, self.kind), self.dim)

    def emit(self, emitter: Emitter, x: Instruction) -> Instruction:
        return emitter.reduce_scatter(x, self.dim, self.groups, self.kind)

    def __str__(self) -> str:
        return f"reduce-scatter {self.kind}, dim {self.dim}, over {_groups(self.groups)}"


@dataclass(frozen=True, slots=True)
class AllToAll(_UniformCollective):
    """Device axes move from dims to other dims: tiles are cut along some dims and joined along others, in one exchange.

    The members of a group are numbered row-major over `ways`, one entry per axis that moves.  `split[dim]` and
    `join[dim]` list the axes, major first, whose parts a dim is cut into and joined from.
    """

    opcode = "all-to-all"
    ways: Dims
    split: tuple[Dims, ...]
    join: tuple[Dims, ...]

    def result(self, local: Shape) -> Shape:
        sizes = (self._rest(d, size) * self._ways(self.join[d]) for d, size in enumerate(local.dims))
        return local.with_dims(tuple(sizes))

    def _ways(self, axes: Dims) -> int:
        return math.prod(self.ways[a] for a in axes)

    def _rest(self, dim: int, size: int) -> int:
        return size // self._ways(self.split[dim])

    def _cut_plan(self, dims: Dims) -> tuple[list[int], list[int], list[int]]:
        """(sizes with every part a dim of its own, order that brings all parts to the front, sizes behind them)."""
        sizes: list[int] = []
        front: dict[int, int] = {}
        back: list[int] = []
        for d, size in enumerate(dims):
            for axis in self.split[d]:
                front[axis] = len(sizes)
                sizes.append(self.ways[axis])
            back.append(len(sizes))
            sizes.append(self._rest(d, size))
        return sizes, [front[a] for a in range(len(self.ways))] + back, [sizes[b] for b in back]

    def _join_order(self) -> list[int]:
        """From (axes, dims) to every dim behind the axes it is joined from."""
        return [place for d, axes in enumerate(self.join) for place in (*axes, len(self.ways) + d)]

    def apply(self, tiles: Tiles) -> list[npt.NDArray[Any]]:
        sizes, order, rest = self._cut_plan(tiles[0].shape)
        parts = [t.reshape(sizes).transpose(order).reshape([self.size, *rest]) for t in tiles]
        # Not `super()`: a dataclass with slots is a new class, of which the cell that `super()` looks into knows
        # nothing.
        moved = _UniformCollective.apply(self, parts)
        final = self.result(Shape.array("f32", tiles[0].shape)).dims
        return [t.reshape([*self.ways, *rest]).transpose(self._join_order()).reshape(final) for t in moved]

    def exchange(self, members: Tiles) -> Tiles:
        return meaning.all_to_all(members, 0)

    def emit(self, emitter: Emitter, x: Instruction) -> Instruction:
        final = self.result(x.shape).dims
        single = self._single()
        if single is not None:
            return emitter.all_to_all(x, *single, self.groups)
        sizes, order, rest = self._cut_plan(x.shape.dims)
        parts = emitter.transpose(emitter.reshape(x, sizes), order)
        moved = emitter.all_to_all(emitter.reshape(parts, [self.size, *rest]), 0, 0, self.groups)
        apart = emitter.reshape(moved, [*self.ways, *rest])
        return emitter.reshape(emitter.transpose(apart, self._join_order()), final)

    def _single(self) -> tuple[int, int] | None:
        """(split dim, join dim) if all parts come from one dim and go to one dim in member order."""
        everything = tuple(range(len(self.ways)))
        if everything in self.split and everything in self.join:
            return self.split.index(everything), self.join.index(everything)
        return None

    @property
    def is_simple(self) -> bool:
        """Does it go from one dim to another, with nothing to transpose before it?"""
        return self._single() is not None

    def seconds(self, local: Shape, machine: Machine) -> float:
        return exchange_seconds(local.byte_size, self.groups, machine)

    def wire_seconds(self, local: Shape, machine: Machine) -> float:
        return _UniformCollective.seconds(self, local, machine)

    def __str__(self) -> str:
        cut = [d for d, axes in enumerate(self.split) if axes]
        joined = [d for d, axes in enumerate(self.join) if axes]
        return f"all-to-all, split dim {_numbers(cut)}, join dim {_numbers(joined)}, over {_groups(self.groups)}"


def exchange_seconds(nbytes: int, groups: Groups, machine: Machine) -> float:
    """Time of an all-to-all: the exchange, and a transpose before and after it."""
    return collective_time("all-to-all", nbytes, len(groups[0]), groups, machine) + transposes_seconds(nbytes, machine)


def transposes_seconds(nbytes: int, machine: Machine) -> float:
    """Time of the transposes before and after an all-to-all of local arrays of so many bytes."""
    return 2 * op_time(0, 2 * nbytes, "f32", machine, matrix=False)


@dataclass(frozen=True, slots=True)
class Permute(Step):
    """Each target takes its source's whole tile; the pairs name every device once on each side."""

    pairs: Pairs

    def apply(self, tiles: Tiles) -> list[npt.NDArray[Any]]:
        out = [np.zeros_like(t) for t in tiles]
        for source, target in self.pairs:
            out[target] = tiles[source]
        return out

    def emit(self, emitter: Emitter, x: Instruction) -> Instruction:
        return emitter.collective_permute(x, self.pairs)

    def received_bytes(self, local: Shape, num_devices: int) -> npt.NDArray[np.float64]:
        out = np.zeros(num_devices)
        out[[t for s, t in self.pairs if s != t]] = local.byte_size
        return out

    def mean_bytes(self, local: Shape, num_devices: int) -> float:
        return sum(s != t for s, t in self.pairs) * local.byte_size / num_devices

    def seconds(self, local: Shape, machine: Machine) -> float:
        return collective_time("collective-permute", local.byte_size, 2, self.pairs, machine)

    def rename_devices(self, names: Table) -> Step:
        return Permute(renamed_pairs(self.pairs, names))

    def __str__(self) -> str:
        return f"permute {shorten([f'{s}->{t}' for s, t in self.pairs if s != t])}"


def _scaled(dims: Dims, dim: int, times: int, parts: int) -> Dims:
    return tuple(size * times // parts if d == dim else size for d, size in enumerate(dims))


def _groups(groups: Groups) -> str:
    return shorten(["{" + shorten(list(group)) + "}" for group in groups])


def _numbers(values: Sequence[int]) -> str:
    return " and ".join(map(str, values))
