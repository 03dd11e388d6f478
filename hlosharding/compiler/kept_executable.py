"""How a compiled program is written down: the name of its executable in JAX's cache, and its boundary as JSON.

Floor: compiler.  What JSON cannot say has no record, and is compiled anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from hlosharding.executor import Axes, Boundary, BoundaryArray
from hlosharding.ir import FunctionBoundary, Shape
from hlosharding.sharding import HloSharding, MeshInfo
from hlosharding.xla_bridge import StoredExecutable

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class KeptExecutable:
    """What JAX keeps, and how it is called."""

    stored: StoredExecutable
    boundary: Boundary

    def fits(self, signature: FunctionBoundary) -> bool:
        """Does it take and give as many arrays, of the same shapes and types (keys are numbers in a program)?"""
        sides = (self.boundary.inputs, signature.in_avals), (self.boundary.outputs, signature.out_avals)
        return all(len(layouts) == len(avals) and all(map(_is_alike, layouts, avals)) for layouts, avals in sides)

    def record(self) -> Record | None:
        """As JSON; None where an output's sharding is none that a file can hold."""
        boundary, user_mesh = self.boundary, self.boundary.user_mesh
        sides = [[_written(layout) for layout in side] for side in (boundary.inputs, boundary.outputs)]
        if any(None in side for side in sides):
            return None
        return {
            "name": self.stored.name,
            "taken": self.stored.taken,
            "program": boundary.name,
            "axes": [boundary.axes.names, boundary.axes.sizes, boundary.axes.devices],
            "inputs": sides[0],
            "outputs": sides[1],
            "is_wide": boundary.is_wide,
            "user_mesh": user_mesh and [user_mesh.names, user_mesh.sizes, user_mesh.device_ids],
            "calls_lapack": boundary.calls_lapack,
        }

    @staticmethod
    def read(record: Record, devices: Sequence[Any]) -> KeptExecutable:
        """Of a program for `devices`.  Raises some error for what is no such record."""
        names, sizes, ids = map(tuple, record["axes"])
        if sorted(ids) != list(range(len(devices))):
            raise ValueError("for another number of devices")
        by_id, parsed = {device.id: device for device in devices}, cache(HloSharding.parse)
        inputs, outputs = (tuple(_read(row, parsed, by_id) for row in record[side]) for side in ("inputs", "outputs"))
        user_mesh = MeshInfo(*record["user_mesh"]) if record["user_mesh"] else None
        axes = Axes(sizes, ids, names)
        is_wide, calls_lapack = bool(record["is_wide"]), bool(record["calls_lapack"])
        boundary = Boundary(str(record["program"]), axes, inputs, outputs, is_wide, user_mesh, calls_lapack)
        taken = tuple(map(int, record["taken"]))
        # Whoever writes such a file could else name arguments that are not there, or one twice.
        if list(taken) != sorted(set(taken) & set(range(len(inputs)))):
            raise ValueError("inputs that are none")
        return KeptExecutable(StoredExecutable(str(record["name"]), taken), boundary)


def _is_alike(layout: BoundaryArray, aval: Any) -> bool:
    if not isinstance(aval.dtype, np.dtype):
        return layout.shape.dims[: len(aval.shape)] == aval.shape
    from jax.dtypes import float0

    # JAX lowers float0, which has no values, to pred.
    wanted = np.dtype(bool) if aval.dtype == float0 else aval.dtype
    return (layout.shape.dims, layout.shape.dtype) == (aval.shape, wanted)


def _written(layout: BoundaryArray) -> list[Any] | None:
    label = _named(layout.label) if layout.label is not None else {}
    said = str(layout.shape), str(layout.sharding), layout.spec, layout.memory, layout.is_weak
    return None if label is None else [*said, label]


def _read(row: list[Any], parsed: Any, devices: Mapping[int, Any]) -> BoundaryArray:
    shape, sharding, spec, memory, is_weak, label = row
    parts = None if spec is None else tuple(tuple(map(int, dim)) for dim in spec)
    return BoundaryArray(
        Shape.parse(shape), parsed(sharding), parts, memory, bool(is_weak), _sharding(label, devices) if label else None
    )


def _named(sharding: Any) -> Record | None:
    """A NamedSharding over named axes."""
    import jax

    if not isinstance(sharding, jax.sharding.NamedSharding) or sharding.spec.unreduced or sharding.spec.reduced:
        return None
    mesh, dims = sharding.mesh, list(sharding.spec.partitions)
    if not isinstance(mesh, jax.sharding.Mesh) or not all(isinstance(name, str) for name in mesh.axis_names):
        return None
    if not all(dim is None or isinstance(dim, str | tuple) for dim in dims):
        return None
    return {
        "axes": mesh.axis_names,
        "sizes": mesh.axis_sizes,
        "types": [kind.name for kind in mesh.axis_types],
        "devices": [device.id for device in mesh.devices.flat],
        "dims": dims,
        "memory": sharding.memory_kind,
    }


def _sharding(record: Record, devices: Mapping[int, Any]) -> Any:
    import jax

    order = np.array([devices[number] for number in record["devices"]], dtype=object)
    types = tuple(jax.sharding.AxisType[name] for name in record["types"])
    mesh = jax.sharding.Mesh(order.reshape(record["sizes"]), tuple(record["axes"]), types)
    spec = jax.sharding.PartitionSpec(*[tuple(d) if isinstance(d, list) else d for d in record["dims"]])
    return jax.sharding.NamedSharding(mesh, spec, memory_kind=record["memory"])
