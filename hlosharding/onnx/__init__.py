"""ONNX models: one function per operator, written in JAX, and the whole traced like any JAX function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hlosharding.frontends import ProgramReader
from hlosharding.onnx import sharding_spec
from hlosharding.onnx.device_annotations import OnnxShardings, read_onnx_shardings, write_onnx_shardings
from hlosharding.onnx.element_types import element_type_of
from hlosharding.onnx.protos import MICROSOFT, is_onnx
from hlosharding.sharding import Format

if TYPE_CHECKING:
    from hlosharding.ir import Module

__all__ = [
    "FORMATS",
    "MICROSOFT",
    "READERS",
    "OnnxShardings",
    "element_type_of",
    "from_onnx",
    "is_onnx",
    "read_onnx_shardings",
    "write_onnx_shardings",
]


def from_onnx(source: Any, inputs: Mapping[str, Any] | None = None, **options: Any) -> Module:
    """A Module of a model: see `model.from_onnx`."""
    from hlosharding.onnx import model  # its operators import JAX

    return model.from_onnx(source, inputs, **options)


READERS = {"onnx": ProgramReader(is_onnx, from_onnx)}
"""Row of the table of readers."""
_CAN_SAY = frozenset({"one device", "parts of axes", "device order"})
_READ = sharding_spec.is_spec, sharding_spec.read, sharding_spec.write
FORMATS = {"onnx": Format("onnx", "a ShardingSpecProto", *_READ, _CAN_SAY)}
"""Row of the table of formats."""
