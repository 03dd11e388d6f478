"""The program of one device as an ONNX model: what stands around its nodes.

Floor: onnx_ranks.  Knows no plan: shapes are local, collectives are there, weights come cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hlosharding.ir import Module
from hlosharding.onnx import MICROSOFT
from hlosharding.onnx_ranks.graph_writer import GraphWriter, no_form
from hlosharding.onnx_ranks.walk import Walk, leaves_of, port

OPSET, IR_VERSION = 23, 11
"""Of what is written: all operators are in it, and runtimes that are behind ONNX read it, too."""


def write_program(
    module: Module,
    rank: int,
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    weights: Mapping[str, np.ndarray],
    metadata: Mapping[str, str],
) -> Any:
    """An `onnx.ModelProto` of what device `rank` does in a partitioned module.

    `inputs`: a name for each parameter of the entry; those in `weights` (local values) become initializers.
    `outputs`: a name for each leaf of its root.  Raises ModuleError for what has no form in ONNX, with op and place.
    """
    from onnx import helper

    out = GraphWriter(rank, max(1, module.num_partitions))
    entry = module.entry
    # Names of ports are taken first: no node may have them.
    for name in (*inputs, *outputs):
        out.name(name)
    for name, value in weights.items():
        out.initialize(name, value)
    for parameter in entry.parameters:
        if parameter.shape.is_tuple:
            raise no_form(parameter, "a parameter that is a tuple")
    root = Walk(out).computation(entry, list(inputs))
    out.source = None
    # A result may be an input as it came, or two results one value: each gets a node that bears its name.
    for name, value in zip(outputs, leaves_of(root), strict=True):
        out.nodes.append(helper.make_node("Identity", [value], [name]))
    parameters = zip(inputs, (p.shape for p in entry.parameters), strict=True)
    graph = helper.make_graph(
        out.nodes,
        module.name,
        [port(name, shape) for name, shape in parameters if name not in weights],
        [port(name, shape) for name, shape in zip(outputs, entry.root.shape.leaves, strict=True)],
        out.initializers,
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="hlosharding")
    helper.set_model_props(model, dict(metadata))
    return model
