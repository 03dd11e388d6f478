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

MLIR_BYTECODE = b"ML\xefR"
_PARTITIONS = re.compile(r"mhlo\.num_partitions\s*=\s*(\d+)")


def from_stablehlo(source: str | bytes) -> Module:
    """A module of StableHLO text, bytecode or a portable artifact; not prepared yet."""
    text = source if isinstance(source, str) else xla_bridge.stablehlo_bytecode_to_text(source)
    found = scan_stablehlo(text)
    module = without_shardy_marks(from_hlo_proto(xla_bridge.stablehlo_to_hlo_proto(text)))
    stated = _PARTITIONS.search(text[:4000])
    counts = [devices_of(f.sharding for f in found), module.num_partitions, int(stated[1]) if stated else 1]
    module.num_partitions = max(counts)
    return module
