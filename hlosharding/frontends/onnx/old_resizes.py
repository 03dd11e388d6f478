"""Resize and Upsample of opsets before 11, in a model that was converted: elements lie at multiples of 1 / scale.

Floor: frontends.  `onnx.version_converter` leaves out what says so, and the default since opset 11 is another.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hlosharding.errors import LoadError
from hlosharding.frontends.onnx.protos import nodes_of


def restore_old_resizes(model: Any) -> None:
    """Gives each Resize the attributes that mean what it meant.  Raises LoadError where there are none."""
    from onnx import helper, numpy_helper

    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer if t.data_location != t.EXTERNAL}
    for node in nodes_of(model.graph):
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
        if node.op_type == "Resize":
            rounding = _rounding(constants.get(node.input[2]))
            node.attribute.append(helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
            node.attribute.append(helper.make_attribute("nearest_mode", rounding))


def _rounding(scales: np.ndarray | None) -> str:
    """Where images grow, the nearest element was the one before; where they shrink, the one after."""
    if scales is None or np.all(scales >= 1):
        return "floor"
    if np.all(scales <= 1):
        return "ceil"
    raise LoadError(
        "a Resize of opset 10 that grows one dim and shrinks another", remedy="export for opset 11 or newer"
    )
