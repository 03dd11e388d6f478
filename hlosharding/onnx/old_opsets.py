"""What `onnx.version_converter` gets wrong of old opsets, put right in a model that was converted.

Floor: onnx.  What it writes in place of a node bears no name, or another.  Resize and Upsample before opset 11:
elements lie at multiples of 1 / scale; the converter leaves out what says so, and the default since is another.  PRelu
before opset 7: a slope of one dim is per channel; since then it is aligned with the last dim.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hlosharding.errors import LoadError
from hlosharding.onnx.arrays import array_of
from hlosharding.onnx.operators import OLD
from hlosharding.onnx.protos import all_nodes, label_of, nodes_of


def restore_names(converted: Any, model: Any) -> None:
    """Gives each node that is none of the file's the label of the one that it stands for."""
    labels = {name: label_of(node) for node in all_nodes(model) for name in node.output}
    known = set(labels.values())
    # From the end: what the converter puts in front of a node is known by that node, which reads of it.
    for node in reversed(list(all_nodes(converted))):
        if label_of(node) not in known:
            node.name = next((labels[name] for name in node.output if name in labels), node.name)
        for name in node.input:  # what the file has not is for who reads it
            labels.setdefault(name, label_of(node))


def restore_old_resizes(model: Any) -> None:
    """Gives each Resize the attributes that mean what it meant.  Raises LoadError where there are none."""
    from onnx import helper

    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in nodes_of(model.graph):
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = node.attribute[0].t
        if node.op_type == "Resize":
            rounding = _rounding(constants.get(node.input[2]))
            node.attribute.append(helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
            node.attribute.append(helper.make_attribute("nearest_mode", rounding))


def restore_old_prelus(model: Any) -> None:
    """Lets each PRelu be the old operator, which ONNX has no more."""
    found = [node for node in nodes_of(model.graph) if node.op_type == "PRelu"]
    for node in found:
        node.domain = OLD
    if found:
        model.opset_import.add(domain=OLD, version=1)


def _rounding(tensor: Any) -> str:
    """Where images grow, the nearest element was the one before; where they shrink, the one after."""
    scales = None if tensor is None or tensor.data_location == tensor.EXTERNAL else array_of(tensor)
    if scales is None or np.all(scales >= 1):
        return "floor"
    if np.all(scales <= 1):
        return "ceil"
    raise LoadError(
        "a Resize of opset 10 that grows one dim and shrinks another", remedy="export for opset 11 or newer"
    )
