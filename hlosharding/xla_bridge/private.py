"""Finding private names: the modules of jaxlib that hold what we touch, as jax 0.10.2 to 0.12 name them.

Floor: ground.
"""

from __future__ import annotations

import importlib
from io import BytesIO
from typing import Any

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


def bytecode_of(module: Any) -> bytes:
    """An MLIR module with its places, which its text leaves out."""
    written = BytesIO()
    module.operation.write_bytecode(file=written)
    return written.getvalue()
