"""Types that HLO does not have are refused by name, in whatever way a model makes an array of one: XLA ends the process
over constants of six bits."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import AttributeProto, NodeProto, SparseTensorProto, TensorProto, helper, numpy_helper

import hlosharding as hs
from tests.support.onnx_models import model, node, port

ROOM = Path(hs.__file__).parent / "onnx"
WITHOUT_FORM = TensorProto.STRING, TensorProto.FLOAT6E2M3, TensorProto.FLOAT6E3M2
OPSET, IR = 28, 13


def test_arrays_of_onnx_come_in_by_one_door() -> None:
    said = [file.name for file in ROOM.rglob("*.py") if re.search("numpy_helper|ReferenceEvaluator", file.read_text())]
    assert said == ["arrays.py"]


def tensor(element: int) -> TensorProto:
    dtype = helper.tensor_dtype_to_np_dtype(element)
    given = np.array(["1", "0"], object) if element == TensorProto.STRING else np.array([1, 0]).astype(dtype)
    return numpy_helper.from_array(given, "c")


def sparse(element: int) -> SparseTensorProto:
    return SparseTensorProto(values=tensor(element), indices=numpy_helper.from_array(np.array([1, 4])), dims=[6])


def made(nodes: Sequence[NodeProto], element: int, inputs: Sequence[Any] = (), **options: Any) -> Any:
    return model(nodes, inputs, [port("y", None, element)], opset=OPSET, ir_version=IR, **options)


def constant(element: int, output: str = "y") -> NodeProto:
    return node("Constant", [], [output], value=tensor(element))


def known(value: Any, output: str) -> NodeProto:
    return node("Constant", [], [output], value=numpy_helper.from_array(np.asarray(value)))


def of_initializer(element: int) -> Any:
    proto = made([node("Identity", ["c"], ["y"])], element)
    proto.graph.initializer.append(tensor(element))
    return proto


def of_sparse_initializer(element: int) -> Any:
    proto = made([node("Identity", ["c"], ["y"])], element)
    proto.graph.sparse_initializer.append(sparse(element))
    return proto


@pytest.mark.parametrize("indices", [[1, 6], [-1, 1], [[0, 2], [1, 3]], [[0, -1], [1, 1]], [[0, 0, 0], [0, 0, 1]]])
def test_places_that_a_sparse_tensor_has_not_are_refused(indices: Any) -> None:
    values = numpy_helper.from_array(np.ones(2, np.float32))
    proto = SparseTensorProto(values=values, indices=numpy_helper.from_array(np.array(indices)), dims=[2, 3])
    with pytest.raises(hs.LoadError, match="tensor '' cannot be read"):
        hs.load(made([node("Constant", [], ["y"], sparse_value=proto)], 1))


def of_branch(element: int) -> Any:
    branches: dict[str, Any] = {
        name: helper.make_graph([constant(element, "z")], name, [], [port("z", None, element)])
        for name in ("then_branch", "else_branch")
    }
    return made([node("If", ["q"], ["y"], **branches)], element, [port("q", [], TensorProto.BOOL)])


def of_body(element: int) -> Any:
    ports = [port("n", [], TensorProto.INT64), port("q", [], TensorProto.BOOL), port("s", None, element)]
    outputs = [port("r", [], TensorProto.BOOL), port("z", None, element)]
    body = helper.make_graph([node("Identity", ["q"], ["r"]), constant(element, "z")], "b", ports, outputs)
    return made([constant(element, "c"), known(3, "m"), node("Loop", ["m", "", "c"], ["y"], body=body)], element)


def of_scan(element: int) -> Any:
    body = helper.make_graph([constant(element, "z")], "b", [port("s", [])], [port("z", None, element)])
    return made([node("Scan", ["x"], ["y"], body=body, num_scan_inputs=1)], element, [port("x", [3])])


def of_function(element: int, *, default: bool) -> Any:
    """Its attribute given by the call, or by the function."""
    inner = NodeProto(op_type="Constant", output=["z"])
    inner.attribute.add(name="value", ref_attr_name="v", type=AttributeProto.TENSOR)
    given = helper.make_attribute("v", tensor(element))
    stated: Any = {"attribute_protos": [given]} if default else {"attributes": ["v"]}
    function = helper.make_function("my", "f", [], ["z"], [inner], [helper.make_opsetid("", OPSET)], **stated)
    call = node("f", [], ["y"], domain="my")
    call.attribute.extend([] if default else [given])
    proto = made([call], element, functions=[function])
    proto.opset_import.add(domain="my", version=1)
    return proto


def of_sequence(element: int) -> Any:
    nodes = [node("SequenceConstruct", ["c"], ["s"]), known(0, "n"), node("SequenceAt", ["s", "n"], ["y"])]
    return made([constant(element, "c"), *nodes], element)


def of_optional(element: int) -> Any:
    nodes = [node("Optional", ["c"], ["o"]), node("OptionalGetElement", ["o"], ["y"])]
    return made([constant(element, "c"), *nodes], element)


def of_quantised(element: int) -> Any:
    call = node("QuantizeLinear", ["x", "s"], ["y"], output_dtype=element)
    return made([known(np.float32(1), "s"), call], element, [port("x", [4])])


def of_operator(name: str, attribute: str, shape: Sequence[int], *, is_known: bool = False) -> Callable[[int], Any]:
    def build(element: int) -> Any:
        call = node(name, ["x"], ["y"])
        call.attribute.append(helper.make_attribute(attribute, element))
        given = np.ones(shape, np.float32)
        return made([known(given, "x"), call], element) if is_known else made([call], element, [port("x", shape)])

    return build


WAYS: dict[str, Callable[[int], Any]] = {
    "constant": lambda e: made([constant(e)], e),
    "constant, cast": lambda e: made([constant(e, "c"), node("Cast", ["c"], ["y"], to=1)], 1),
    "sparse constant": lambda e: made([node("Constant", [], ["y"], sparse_value=sparse(e))], e),
    "initializer": of_initializer,
    "sparse initializer": of_sparse_initializer,
    "input": lambda e: made([node("Identity", ["x"], ["y"])], e, [port("x", [2], e)]),
    "branch": of_branch,
    "loop": of_body,
    "scan": of_scan,
    "function": lambda e: of_function(e, default=False),
    "function's default": lambda e: of_function(e, default=True),
    "sequence": of_sequence,
    "optional": of_optional,
    "quantised": of_quantised,
    "cast like": lambda e: made([constant(e, "c"), node("CastLike", ["x", "c"], ["y"])], e, [port("x", [2])]),
    **{
        f"{name}, {'known' if is_known else 'traced'}": of_operator(name, attribute, shape, is_known=is_known)
        for name, attribute, shape in (
            ("Cast", "to", (3,)), ("BitCast", "to", (3,)), ("EyeLike", "dtype", (3, 4)), ("Bernoulli", "dtype", (3,)),
            ("RandomNormalLike", "dtype", (3,)), ("RandomUniformLike", "dtype", (3,)), ("Multinomial", "dtype", (3, 4)),
        )
        for is_known in (False, True)
    },
}  # fmt: skip


@pytest.mark.parametrize("element", WITHOUT_FORM, ids=TensorProto.DataType.Name)
@pytest.mark.parametrize("way", WAYS)
def test_what_has_no_form_in_hlo_is_refused_by_name(way: str, element: int) -> None:
    with pytest.raises(hs.LoadError, match="no form in HLO"):
        hs.load(WAYS[way](element))


def test_a_constant_of_a_shape_is_refused_too() -> None:
    value = numpy_helper.from_array(np.ones(1, helper.tensor_dtype_to_np_dtype(TensorProto.FLOAT6E2M3)))
    fill = node("ConstantOfShape", ["n"], ["y"], value=value)
    for shape in (known([3], "n"), node("Shape", ["x"], ["n"])):
        with pytest.raises(hs.LoadError, match="no form in HLO"):
            hs.load(made([shape, fill], TensorProto.FLOAT6E2M3, [port("x", [3])]))
