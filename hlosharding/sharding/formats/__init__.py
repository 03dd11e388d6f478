"""Shardings in every format, converted through one hub: XLA's, Shardy's and JAX's are here, others enter theirs."""

from hlosharding.sharding.formats.cluster import Axes, Axis, Cluster
from hlosharding.sharding.formats.conversion import convert, same_sharding
from hlosharding.sharding.formats.formats_table import FEATURES, FORMATS, Format
from hlosharding.sharding.formats.interchange import FormatContext, Interchange
from hlosharding.sharding.formats.jax_objects import is_spec, spec_from_text
from hlosharding.sharding.formats.mlir_text import read_string as read_mlir_string
from hlosharding.sharding.formats.mlir_text import read_symbol as read_mlir_symbol
from hlosharding.sharding.formats.mlir_text import write_symbol as write_mlir_symbol
from hlosharding.sharding.formats.sdy_text import SdySharding
from hlosharding.sharding.formats.sdy_text import read_named_meshes as read_sdy_meshes
from hlosharding.sharding.formats.sdy_text import read_sharding as read_sdy_sharding
from hlosharding.sharding.formats.sdy_text import write_sharding as write_sdy_sharding

__all__ = [
    "FEATURES",
    "FORMATS",
    "Axes",
    "Axis",
    "Cluster",
    "Format",
    "FormatContext",
    "Interchange",
    "SdySharding",
    "convert",
    "is_spec",
    "read_mlir_string",
    "read_mlir_symbol",
    "read_sdy_meshes",
    "read_sdy_sharding",
    "same_sharding",
    "spec_from_text",
    "write_mlir_symbol",
    "write_sdy_sharding",
]
