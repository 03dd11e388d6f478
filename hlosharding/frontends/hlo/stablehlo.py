"""StableHLO text and bytecode to a Module.

Floor: frontends.  jaxlib converts; shardings in `mhlo.sharding` attributes are checked first, Shardy's own attributes
arrive as frontend attributes and are given their meaning by `frontends.shardy`.
"""

from __future__ import annotations

import re

from hlosharding import xla_bridge
from hlosharding.frontends.hlo.sharding_scanner import scan_stablehlo
from hlosharding.frontends.hlo.text_and_proto import devices_of, from_hlo_proto
from hlosharding.frontends.shardy import without_shardy_marks
from hlosharding.ir import Module
from hlosharding.ir import custom_call_targets as targets

MLIR_BYTECODE = b"ML\xefR"
_PARTITIONS = re.compile(r"mhlo\.num_partitions\s*=\s*(\d+)")


def from_stablehlo(source: str | bytes) -> Module:
    """A module of StableHLO text, bytecode or a portable artifact; not prepared yet."""
    text = source if isinstance(source, str) else xla_bridge.stablehlo_bytecode_to_text(source)
    found = scan_stablehlo(text)
    module = from_lowering(from_hlo_proto(xla_bridge.stablehlo_to_hlo_proto(source)))
    stated = _PARTITIONS.search(text[:4000])
    counts = [devices_of(f.sharding for f in found), module.num_partitions, int(stated[1]) if stated else 1]
    module.num_partitions = max(counts)
    return module


def from_lowering(module: Module) -> Module:
    """A module just converted from what JAX lowered: Shardy's marks get their meaning, and the edge is open where
    nothing is said of it, as JAX tells XLA in its options, which no text holds.
    """
    if not (module.open_parameters or module.open_outputs):
        module.open_parameters = tuple(p.id not in module.shardings for p in module.entry.parameters)
        module.open_outputs = _open_outputs(module)
    out = without_shardy_marks(module)
    if out.mesh is not None:
        out.num_partitions = max(out.num_partitions, out.mesh.num_devices)
    return out


def _open_outputs(module: Module) -> bool | tuple[bool, ...]:
    given = tuple(result.custom_call_target == targets.FUNC_RESULT_SHARDING for result in module.entry.results)
    if any(given):
        return tuple(not said for said in given)
    return module.sharding(module.entry.root) is None
