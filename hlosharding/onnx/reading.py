"""A model without functions as one graph of one opset: external data read, nodes converted.

Floor: onnx.  Knows protos only.  `onnx.version_converter` drops local functions and device annotations, so these
are dealt with before.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hlosharding.errors import LoadError
from hlosharding.onnx.external_data import read_external_data
from hlosharding.onnx.old_opsets import restore_names, restore_old_prelus, restore_old_resizes
from hlosharding.onnx.operators import MICROSOFT
from hlosharding.onnx.protos import all_nodes, all_tensors, domain_of, first_line
from hlosharding.onnx.schemas import OPSET, check_nodes
from hlosharding.onnx.scopes import check_names

_CONTRIBUTED = {"LayerNormalization": 17, "SimplifiedLayerNormalization": 1000}
"""What ONNX Runtime's optimiser writes into the ONNX domain, and the opset since which ONNX has it, if any."""
# Small weights stay: the converter and onnx's inference read shapes, axes and scales in them.
_LARGE = 1 << 16
"""Bytes of a weight that stays behind when a model is converted."""
_RESIZE_WITH_COORDINATES = 11
"""Since this opset Resize says where elements lie; `onnx.version_converter` gives older ones a new meaning."""
_SCAN_WITHOUT_BATCH = 9
_PRELU_WITH_BROADCAST = 7
_BEHIND = "hlosharding.detached"


def normal_form(model: Any, path: Path | None) -> Any:
    """The same model in opset `OPSET`, with all its data and with inferred types.

    `path`: its own, beside which files named in it lie.  The model may be changed.  Raises LoadError.
    """
    from onnx import shape_inference

    read_external_data(model, path)  # before anything reads values
    kept = dict(_detached(model))
    # Before conversion, which does not know such operators in that opset.
    _set_apart(model)
    check_names(model.graph)
    check_nodes(model, _version(model))
    model = _in_one_opset(model)
    try:
        model = shape_inference.infer_shapes(model)
    except Exception as error:
        raise LoadError(
            f"contradicts itself: {first_line(error)}", remedy="check the file with onnx.checker"
        ) from error
    _attach(model, kept)
    return model


def _set_apart(model: Any) -> None:
    """Puts operators that ONNX does not have in the model's opset where they belong: into ONNX Runtime's domain."""
    version = _version(model)
    for node in all_nodes(model):
        if not domain_of(node) and version < _CONTRIBUTED.get(node.op_type, 0):
            node.domain = MICROSOFT
            if all(opset.domain != MICROSOFT for opset in model.opset_import):
                model.opset_import.add(domain=MICROSOFT, version=1)


def _version(model: Any) -> int:
    version = next((int(o.version) for o in model.opset_import if o.domain in ("", "ai.onnx")), OPSET)
    if version > OPSET:
        raise LoadError(f"opset {version} is newer than {OPSET}", remedy=f"export the model for opset {OPSET} or older")
    if version < 1:
        raise LoadError(f"opset {version}, where the first is 1", remedy="check the file with onnx.checker")
    return version


def _in_one_opset(model: Any) -> Any:
    from onnx import version_converter

    version = _version(model)
    if version == OPSET:
        return model
    if version < _SCAN_WITHOUT_BATCH and any(node.op_type == "Scan" for node in all_nodes(model)):
        raise LoadError("Scan of opset 8 has a batch of its own", remedy="export the model for opset 9 or newer")
    try:
        converted = version_converter.convert_version(model, OPSET)
    except Exception as error:
        raise LoadError(f"cannot be converted from opset {version} to {OPSET}: {first_line(error)}") from error
    restore_names(converted, model)
    if version < _PRELU_WITH_BROADCAST:
        restore_old_prelus(converted)
    if version < _RESIZE_WITH_COORDINATES:
        restore_old_resizes(converted)
    return converted


def _detached(model: Any) -> Iterator[tuple[str, bytes]]:
    """Takes the bytes of large weights out of the model: conversion and inference copy all of it, several times."""
    for number, tensor in enumerate(all_tensors(model)):
        if len(tensor.raw_data) >= _LARGE:
            key = f"{_BEHIND}.{number}"
            yield key, tensor.raw_data
            tensor.ClearField("raw_data")
            tensor.data_location = tensor.EXTERNAL
            tensor.external_data.add(key="location", value=key)


def _attach(model: Any, kept: dict[str, bytes]) -> None:
    for tensor in all_tensors(model):
        if tensor.data_location == tensor.EXTERNAL:
            tensor.raw_data = kept[tensor.external_data[0].value]
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
