"""Programs whose text left values out: they have all shapes, so that they can be priced, and no result.

Floor: executor.
"""

from __future__ import annotations

from hlosharding.errors import ExecutionError
from hlosharding.ir import Module

_REMEDY = "write the program as a proto, or print all values (XLA's print_large_constants, --xla_dump_large_constants)"


def refuse_elided(module: Module) -> None:
    """ExecutionError for a module with constants that nobody knows."""
    if module.elided:
        raise ExecutionError(f"the text left out the values of constant %{module.elided}: {{...}}", remedy=_REMEDY)
