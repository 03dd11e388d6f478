"""HLO and StableHLO, text and bytes, to a Module."""

from hlosharding.frontends.hlo.text_and_proto import (
    MLIR_BYTECODE,
    devices_of,
    from_hlo_proto,
    from_hlo_text,
    from_lowering,
    from_stablehlo,
    partitions_in,
)

__all__ = [
    "MLIR_BYTECODE",
    "devices_of",
    "from_hlo_proto",
    "from_hlo_text",
    "from_lowering",
    "from_stablehlo",
    "partitions_in",
]
