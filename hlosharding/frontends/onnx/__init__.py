"""ONNX models: one function per operator, written in JAX, and the whole traced like any JAX function."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hlosharding.frontends.onnx.reading import is_onnx

if TYPE_CHECKING:
    from hlosharding.ir import Module

__all__ = ["from_onnx", "is_onnx"]


def from_onnx(
    source: Any, inputs: Mapping[str, Any] | None = None, *, path: Path | None = None, prepare: bool = True
) -> Module:
    """A Module of a model (an `onnx.ModelProto`, or the bytes of one); `path`: where it was read.  Raises LoadError."""
    from hlosharding.frontends.onnx import model  # the operators import JAX

    return model.from_onnx(source, inputs, path=path, prepare=prepare)
