"""The table of operators beside ONNX's own schemas: which there are, their versions, inputs and attributes."""

from __future__ import annotations

import onnx.defs
import pytest

from hlosharding.onnx.operators import OPERATORS
from hlosharding.onnx.reading import OPSET

_VERSIONS = {"": OPSET, "ai.onnx.ml": 5, "ai.onnx.preview": 1, "ai.onnx.preview.training": 1}
_ELSEWHERE = {
    "Constant": "a value of the graph, not of a function",
    "Scatter": "deprecated: the converter writes ScatterElements",
    "Upsample": "deprecated: the converter writes Resize",
}
SCHEMAS = {key: onnx.defs.get_schema(key[1], _VERSIONS[key[0]], key[0]) for key in OPERATORS if key[0] in _VERSIONS}


def test_every_operator_of_onnx_is_there() -> None:
    known = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""}
    assert {name for name in known if ("", name) not in OPERATORS} == set(_ELSEWHERE)


@pytest.mark.parametrize("key", SCHEMAS, ids=lambda key: ".".join(filter(None, key)))
def test_a_function_is_what_its_schema_says(key: tuple[str, str]) -> None:
    operator, schema = OPERATORS[key], SCHEMAS[key]
    assert operator.since == schema.since_version, "ONNX changed it: look what is new"
    assert operator.attributes - {"node"} == set(schema.attributes), "attributes"
    is_variadic = any(i.option == onnx.defs.OpSchema.FormalParameterOption.Variadic for i in schema.inputs)
    assert operator.is_variadic == is_variadic, "takes any number of inputs"
    assert len(operator.inputs) == len(schema.inputs), "inputs"
    assert operator.static <= set(operator.inputs)
