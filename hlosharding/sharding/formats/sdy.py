"""Shardy's shardings as a format: `#sdy.sharding<@mesh, [{"x", ?}, {}]>`, read and written.

Floor: sharding.
"""

from __future__ import annotations

import re
from typing import Any

from hlosharding.errors import ShardingError
from hlosharding.sharding.formats.interchange import FormatContext, Interchange
from hlosharding.sharding.formats.sdy_text import (
    MeshFinder,
    SdySharding,
    read_declarations,
    read_sharding,
    write_sharding,
)
from hlosharding.sharding.named import NamedForm
from hlosharding.sharding.scanner import Scanner

_TEXT = re.compile(r"\s*(#?sdy\.|<\s*(@|mesh))")


def is_sdy(source: Any) -> bool:
    """A text of Shardy's?"""
    return isinstance(source, SdySharding) or (isinstance(source, str) and _TEXT.match(source) is not None)


def read(source: Any, context: FormatContext) -> Interchange:
    """From `#sdy.sharding<...>` or `<...>`, behind declarations of meshes if there are any.

    A mesh that is only named is the caller's.
    """
    found = source if isinstance(source, SdySharding) else _parsed(source, context)
    if context.ndim not in (None, len(found.form.dims)) and found.form.whole is None:
        raise ShardingError(f"{found} is of {len(found.form.dims)} dims, the array has {context.ndim}")
    return Interchange.of_form(found.form, found.priorities, found.reduction, knows_rank=True)


def _parsed(text: str, context: FormatContext) -> SdySharding:
    scan = Scanner(text)
    meshes = read_declarations(scan)
    if scan.accept("#sdy.sharding_per_value"):
        scan.fail("shardings of several values", remedy="give one of them: <@mesh, [...]>")
    scan.accept("#sdy.sharding")
    found = read_sharding(scan, _finder(meshes, context))
    if scan.peek():
        scan.fail("text after the end of the sharding")
    return found


def _finder(declared: dict[str, NamedForm], context: FormatContext) -> MeshFinder:
    """Of the meshes that the text declares, or the caller's, which has any name unless the caller gave one."""
    if declared or context.mesh is None:
        return declared.get
    given = NamedForm(context.mesh, whole="replicated")
    return lambda symbol: given if context.symbol in (None, symbol) else None


def write(found: Interchange, context: FormatContext) -> str:
    """`#sdy.sharding<...>` over an inline mesh, or over the name that the caller's mesh has."""
    if found.form.whole not in (None, "maximal"):
        raise ShardingError(f"{found.sharding} does not say the rank of the array", remedy="pass ndim=")
    sharding = SdySharding(found.form, found.priorities, found.reduction)
    return f"#sdy.sharding{write_sharding(sharding, context.symbol)}"
