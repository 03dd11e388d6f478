"""HLO and StableHLO, text and bytes, to a Module."""

from hlosharding.frontends.hlo.reading import devices_of, from_hlo_proto, from_hlo_text, partitions_in
from hlosharding.frontends.hlo.stablehlo import MLIR_BYTECODE, from_stablehlo

__all__ = [
    "MLIR_BYTECODE",
    "devices_of",
    "from_hlo_proto",
    "from_hlo_text",
    "from_stablehlo",
    "partitions_in",
]
