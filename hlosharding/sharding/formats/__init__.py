"""Shardings in every format: XLA's, Shardy's, JAX's, MLIR's, ONNX's and DTensor's, converted through one hub."""

from hlosharding.sharding.formats.axis_sharding import PARTIAL_KINDS, AxisSharding
from hlosharding.sharding.formats.cluster import Axes, Axis, Cluster
from hlosharding.sharding.formats.conversion import convert, same_sharding
from hlosharding.sharding.formats.features import FEATURES
from hlosharding.sharding.formats.formats_table import FORMATS, Format
from hlosharding.sharding.formats.frame import Frame
from hlosharding.sharding.formats.interchange import Interchange
from hlosharding.sharding.formats.jax_objects import is_spec, spec_from_text
from hlosharding.sharding.formats.mlir_text import read_string as read_mlir_string
from hlosharding.sharding.formats.sdy_text import SdySharding
from hlosharding.sharding.formats.sdy_text import read_named_meshes as read_sdy_meshes
from hlosharding.sharding.formats.sdy_text import read_sharding as read_sdy_sharding
from hlosharding.sharding.formats.sdy_text import write_sharding as write_sdy_sharding

__all__ = [
    "FEATURES",
    "FORMATS",
    "PARTIAL_KINDS",
    "Axes",
    "Axis",
    "AxisSharding",
    "Cluster",
    "Format",
    "Frame",
    "Interchange",
    "SdySharding",
    "convert",
    "is_spec",
    "read_mlir_string",
    "read_sdy_meshes",
    "read_sdy_sharding",
    "same_sharding",
    "spec_from_text",
    "write_sdy_sharding",
]
