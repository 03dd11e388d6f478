"""Nodes held to ONNX's schemas: inputs and attributes that must be there, of the types that they must have.

Floor: onnx.  Whatever reads nodes afterwards, the converter of opsets among them, takes this for granted.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from hlosharding.errors import LoadError
from hlosharding.onnx.element_types import type_text
from hlosharding.onnx.protos import all_nodes, domain_of, place_of

OPSET = 28
"""Of the ONNX domain: every model is converted to it, and each operator is written for it alone."""

_TERM = rb"[A-Za-z ]*(?:\.\.\.[A-Za-z ]*)?"
_EQUATION = re.compile(_TERM + rb"(?:," + _TERM + rb")*(?:->" + _TERM + rb")?")
"""Of an Einsum; with any other letter onnx's inference does not come to an end."""
_NEWEST = 1000
"""No domain has a newer version; onnx takes no number of 64 bits."""


def check_nodes(model: Any, opset: int) -> None:
    """Raises LoadError for a node that its schema does not allow; operators that ONNX has not are left alone.

    `opset`: the model's, of ONNX's own domain.
    """
    # ONNX's own domain may be listed by either of its names.
    versions = {o.domain: min(max(int(o.version), 1), _NEWEST) for o in model.opset_import} | {"": opset}
    for node in all_nodes(model):
        schema = _schema(node.op_type, versions.get(domain_of(node), 1), domain_of(node))
        wrong = _complaint(node, schema) if schema is not None else None
        if wrong is not None:
            raise LoadError(wrong, where=place_of(node), remedy="check it with onnx.checker")


@cache
def type_complaint(operator: str, dtypes: tuple[Any, ...]) -> str | None:
    """What is wrong with the types of the tensors that an operator of ONNX reads; None of those that are no tensors.

    >>> import numpy as np
    >>> type_complaint("Add", (np.dtype(np.float32), np.dtype(np.int32)))
    "input 'B' is int32, and 'A' float32, where one type is wanted"
    >>> type_complaint("Softmax", (np.dtype(np.int32),))
    "input 'input' is int32, for which ONNX does not have it"
    """
    schema = _schema(operator, OPSET, "")
    if schema is None or not schema.inputs:
        return None
    bound: dict[str, tuple[str, Any]] = {}
    for number, dtype in enumerate(dtypes):
        formal = schema.inputs[min(number, len(schema.inputs) - 1)]
        if dtype is None:
            continue
        wanted = {type_text(dtype), f"optional({type_text(dtype)})"}
        if wanted.isdisjoint(formal.types):
            return f"input {formal.name!r} is {dtype}, for which ONNX does not have it"
        name, first = bound.setdefault(formal.type_str, (formal.name, dtype))
        if formal.is_homogeneous and first != dtype:
            return f"input {formal.name!r} is {dtype}, and {name!r} {first}, where one type is wanted"
    return None


@cache
def _schema(operator: str, version: int, domain: str) -> Any:
    from onnx import defs

    try:
        return defs.get_schema(operator, version, domain)
    except defs.SchemaError:
        return None


def _complaint(node: Any, schema: Any) -> str | None:
    """What is wrong with a node."""
    if node.op_type == "RegexFullMatch":  # onnx's inference ends the process where its input has no type
        return "RegexFullMatch works on strings, which HLO does not have"
    if node.op_type == "Einsum" and not all(_EQUATION.fullmatch(a.s) for a in node.attribute):
        return "its equation is none of letters, commas and an arrow"
    if not schema.min_input <= len(node.input) <= schema.max_input:
        return f"{len(node.input)} inputs, where {_range(schema.min_input, schema.max_input)} are wanted"
    if not schema.min_output <= len(node.output) <= schema.max_output:
        return f"{len(node.output)} outputs, where {_range(schema.min_output, schema.max_output)} are wanted"
    for name, formal in zip(node.input, schema.inputs, strict=False):
        if not name and formal.option == formal.option.Single:
            return f"input {formal.name!r} is left out"
    given = {attribute.name: attribute for attribute in node.attribute}
    if len(given) < len(node.attribute):
        return "an attribute is given twice"
    most = {"num_outputs": len(node.output), "num_scan_inputs": len(node.input)}
    for name, count in most.items():
        if name in given and given[name].i > count:  # onnx's own inference would make as many
            return f"{name} is {given[name].i:,}, of {count}"
    for name, formal in schema.attributes.items():
        if name not in given and formal.required:
            return f"attribute {name!r} is missing"
        if name in given and not _is_of_type(given[name], formal.type):
            return f"attribute {name!r} is of another type than {formal.type.name}"
    return None


def _range(least: int, most: int) -> str:
    if least == most:
        return str(least)
    return f"{least} or more" if most > 1 << 30 else f"{least} to {most}"


def _is_of_type(attribute: Any, wanted: Any) -> bool:
    """Exporters write whole numbers where real ones are wanted; references are for who inlines functions."""
    if attribute.ref_attr_name:
        return True
    given = attribute.type
    return given == wanted.value or (given == attribute.INT and wanted.name == "FLOAT")
