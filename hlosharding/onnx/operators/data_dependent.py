"""Operators whose results have as many elements as the data says: what says it must be known before.

Floor: onnx.  HLO needs every shape; a value that is only known when the program runs is refused.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from hlosharding.onnx.arrays import evaluated
from hlosharding.onnx.budget import charge_array
from hlosharding.onnx.operators.table import operator

_COMPARED = 64
"""Bytes that stand for a comparison of two boxes: as many as a budget of bytes holds take a minute."""


def _evaluated(name: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> tuple[Any, ...]:
    """What ONNX's own evaluator computes of known values."""
    from onnx import helper

    values = {f"x{n}": value for n, value in enumerate(inputs) if value is not None}
    names = ["" if value is None else f"x{n}" for n, value in enumerate(inputs)]
    given = {key: value for key, value in attributes.items() if value is not None}
    node = helper.make_node(name, names, [f"y{n}" for n in range(outputs)], **given)
    return evaluated(node, values)


@operator("NonZero", 13, static="x")
def _non_zero(x: Any) -> Any:
    charge_array((x.ndim, np.count_nonzero(x)))
    return _evaluated("NonZero", x)


@operator("Unique", 28, static="x")
def _unique(x: Any, *, axis: int | None = None, sorted: int = 1) -> Any:
    charge_array((4, x.size))
    return _evaluated("Unique", x, outputs=4, axis=axis, sorted=sorted)


@operator(
    "NonMaxSuppression", 11,
    static="boxes scores max_output_boxes_per_class iou_threshold score_threshold",
)  # fmt: skip
def _non_max_suppression(
    boxes: Any, scores: Any, max_output_boxes_per_class: Any = None, iou_threshold: Any = None,
    score_threshold: Any = None, *, center_point_box: int = 0,
) -> Any:  # fmt: skip
    # Each box is compared with each that was taken, in Python.
    most = boxes.shape[1] if max_output_boxes_per_class is None else int(max_output_boxes_per_class.reshape(()))
    charge_array((*scores.shape, min(boxes.shape[1], max(0, most))), _COMPARED)
    numbers = max_output_boxes_per_class, iou_threshold, score_threshold
    # The evaluator wants vectors of one number.
    vectors = [None if number is None else number.reshape(-1) for number in numbers]
    return _evaluated("NonMaxSuppression", boxes, scores, *vectors, center_point_box=center_point_box)


@operator("Compress", 28, static="condition")
def _compress(x: Any, condition: Any, *, axis: int | None = None) -> Any:
    charge_array((np.count_nonzero(condition),))
    places = np.flatnonzero(condition)
    return jnp.take(jnp.ravel(x), places) if axis is None else jnp.take(x, places, axis)
