"""Finding private names: the modules of jaxlib that hold what we touch, as jax 0.10.2 to 0.12 name them.

Floor: ground.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np

from hlosharding.errors import LoadError

FATAL = (RuntimeError, ValueError, TypeError, NotImplementedError)
"""What jaxlib raises where it cannot."""


def first_import(*names: str) -> Any:
    """The first of these modules that there is; LoadError where there is none."""
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise LoadError(f"this jaxlib has none of {', '.join(names)}", remedy="use jax 0.10.2 to 0.12")


def hlo() -> Any:
    """XLA's HLO classes."""
    return first_import("jaxlib._hlo", "jax._src.lib._hlo")


def jaxlib() -> Any:
    """The extension module."""
    return first_import("jaxlib._jax", "jax._src.lib._jax")


def xla_client() -> Any:
    """Clients and compile options."""
    return first_import("jax._src.lib.xla_client", "jaxlib.xla_client")


def compile_options(devices: Sequence[Any], replicas: int = 1) -> Any:
    """XLA's options for devices that are the partitions of replicas, in this order; who partitions is left open."""
    client = xla_client()
    options = client.CompileOptions()
    build = options.executable_build_options
    places = np.array([device.id for device in devices]).reshape(replicas, -1)
    options.num_replicas, options.num_partitions = build.num_replicas, build.num_partitions = places.shape
    build.device_assignment = client.DeviceAssignment.create(places)
    return options


def ops_of(module: Any) -> list[Any]:
    """All operations of an MLIR module, inner ones first."""
    found: list[Any] = []
    advance = first_import("jaxlib.mlir.ir").WalkResult.ADVANCE

    def enter(op: Any) -> Any:
        found.append(op.operation)
        return advance

    module.operation.walk(enter)
    return found


def bytecode_of(module: Any) -> bytes:
    """An MLIR module with its places, which its text leaves out."""
    written = BytesIO()
    module.operation.write_bytecode(file=written)
    return written.getvalue()
