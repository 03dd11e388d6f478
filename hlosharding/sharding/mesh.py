"""A mesh: named axes over devices, as shardings need it.

Floor: sharding.  A plain value; reads jax meshes by their attributes and never imports jax.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hlosharding.errors import ShardingError
from hlosharding.sharding.tile_assignment import Dims, TileAssignment, count_devices

_PART = re.compile(r"(.+):\(([0-9]{1,9})\)([0-9]{1,9})")


def axis_of(text: str) -> str:
    """The axis of which a text names all, or a part as `part_of_axis` reads it.

    >>> axis_of("model"), axis_of("model:(1)2")
    ('model', 'model')
    """
    part = _PART.fullmatch(text)
    return part[1] if part else text


def part_of_axis(text: str) -> tuple[str, int, int] | None:
    """(axis, pre-size, size) of a part of an axis, written as Shardy does; None for a whole one.

    >>> part_of_axis("model:(2)4"), part_of_axis("model")
    (('model', 2, 4), None)
    """
    part = _PART.fullmatch(text)
    return (part[1], int(part[2]), int(part[3])) if part else None


@dataclass(frozen=True, slots=True, init=False)
class MeshInfo:
    """Axis names and sizes, major to minor, and the devices in that order (positions in the device assignment).

    >>> MeshInfo(("data", "model"), (2, 4))
    MeshInfo('data'=2, 'model'=4)
    >>> MeshInfo(("a",), (2,), (1, 0)).device_ids
    (1, 0)
    """

    names: tuple[str, ...]
    sizes: Dims
    assignment: TileAssignment
    """Devices by mesh coordinates, spelled as they came."""

    def __init__(
        self, names: Sequence[str], sizes: Sequence[int], device_ids: Sequence[int] | TileAssignment | None = None
    ) -> None:
        _check_axes(names, sizes)
        dims = tuple(map(int, sizes))
        if device_ids is None:
            assignment = TileAssignment.from_iota(dims or (1,))
        elif isinstance(device_ids, TileAssignment):
            assignment = device_ids.reshape(dims or (1,))
        else:
            assignment = _from_ids(dims, tuple(device_ids))
        object.__setattr__(self, "names", tuple(names))
        object.__setattr__(self, "sizes", dims)
        object.__setattr__(self, "assignment", assignment)

    @property
    def device_ids(self) -> Dims:
        """Devices in row-major order of the axes."""
        return self.assignment.flat

    @property
    def num_devices(self) -> int:
        """Product of the axis sizes."""
        return math.prod(self.sizes)

    @property
    def is_plain(self) -> bool:
        """Devices are numbered in mesh order."""
        return self.assignment.iota is not None and len(self.assignment.iota.reshape_dims) == 1

    def size_of(self, name: str) -> int:
        """Size of the axis of that name, or of a part of one; raises ShardingError if there is none."""
        part = None if name in self.names else part_of_axis(name)
        return part[2] if part else self.sizes[self.index_of(name)]

    def index_of(self, name: str) -> int:
        """Position of the axis of that name."""
        if name not in self.names:
            names = ", ".join(map(repr, self.names))
            raise ShardingError(f"the mesh has no axis {name!r}", remedy=f"its axes are {names}")
        return self.names.index(name)

    @classmethod
    def from_jax(cls, mesh: Any) -> MeshInfo:
        """Names and sizes of a jax Mesh or AbstractMesh (a MeshInfo is returned as it is).

        Device ids are positions in the device assignment, and jax lists a mesh's devices there in mesh order: so they
        are always 0, 1, 2 ..., whatever ids the devices have.
        """
        if isinstance(mesh, MeshInfo):
            return mesh
        names, shape = getattr(mesh, "axis_names", None), getattr(mesh, "shape", None)
        if names is None or shape is None:
            raise ShardingError(f"{type(mesh).__name__} is no mesh", remedy="pass a jax Mesh or a MeshInfo")
        return cls(tuple(map(str, names)), tuple(shape[name] for name in names))

    def __repr__(self) -> str:
        axes = ", ".join(f"{name!r}={size}" for name, size in zip(self.names, self.sizes, strict=True))
        return f"MeshInfo({axes})" if self.is_plain else f"MeshInfo({axes}, device_ids={self.device_ids})"

    def __str__(self) -> str:
        """As in a named sharding's text."""
        axes = ",".join(f"{quote(name)}={size}" for name, size in zip(self.names, self.sizes, strict=True))
        if self.is_plain:
            return f"mesh[{axes}]"
        iota = self.assignment.iota
        ids = str(iota).split("<=")[1] if iota is not None else ",".join(map(str, self.device_ids))
        return f"mesh[{axes}], device_ids=({ids})"


def _check_axes(names: Sequence[str], sizes: Sequence[int]) -> None:
    if len(names) != len(sizes):
        raise ShardingError(f"{len(names)} axis names for {len(sizes)} axis sizes")
    if len(set(names)) < len(names):
        double = next(name for name in names if list(names).count(name) > 1)
        raise ShardingError(f"two axes are named {double!r}")
    if any(size < 1 for size in sizes):
        raise ShardingError(f"axis sizes must be at least 1, got {list(sizes)}")
    count_devices(sizes)


def _from_ids(dims: Dims, ids: Dims) -> TileAssignment:
    if sorted(ids) != list(range(math.prod(dims))):
        raise ShardingError(f"device ids must be 0 to {math.prod(dims) - 1}, each once, got {list(ids)[:20]}")
    if ids == tuple(range(len(ids))):
        return TileAssignment.from_iota(dims or (1,))
    return TileAssignment.from_flat(dims or (1,), ids)


def quote(name: str) -> str:
    """An axis name as it stands in a named sharding's text."""
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"
