"""Models that contradict ONNX: our error with the node's place, whatever library notices."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from onnx import AttributeProto, helper, numpy_helper

import hlosharding as hs
from hlosharding.onnx.operators import OPERATORS
from tests.support.onnx_models import model, node, port
from tests.support.onnx_node import node_model

FILL = node("ConstantOfShape", ["s"], ["y"])


def of_nodes(*nodes: Any, opset: int = 21, **weights: np.ndarray) -> Any:
    return model(nodes, [port("x", [4, 4])], [port("y", None)], weights, opset=opset)


def with_attribute(name: str, value: Any, kind: int) -> Any:
    """A Conv with an attribute of a kind."""
    made = node("Conv", ["x", "w"], ["y"])
    attribute = AttributeProto(name=name, type=kind)  # type: ignore[arg-type]
    attribute.s = value
    made.attribute.append(attribute)
    return model([made], [port("x", [1, 1, 4, 4])], [port("y", None)], {"w": np.ones((1, 1, 2, 2), np.float32)})


def with_short_bytes(proto: Any) -> Any:
    proto.graph.initializer[0].raw_data = b"12"
    return proto


MALFORMED = {
    **{
        f"an equation over which onnx does not come to an end, {equation}": (
            of_nodes(node("Einsum", ["x", "x"], ["y"], equation=equation)), "its equation is none",
        )
        for equation in ("-\xc4", "ab,bc-", "a>b,bc", "ab.,bc", "....ij,jk", "ab,b-c->ac", "ab,1c->ac")
    },
    "a shape of real numbers": (of_nodes(FILL, s=np.array([np.nan], np.float32)), "in a shape of float32"),
    "a fill of two values": (
        of_nodes(node("ConstantOfShape", ["s"], ["y"], value=numpy_helper.from_array(np.ones(2))), s=np.array([3])),
        "a ConstantOfShape of 2 values",
    ),
    "a PRelu of opset 6 without slope": (
        of_nodes(node("PRelu", ["x"], ["y"]), opset=6), "1 inputs, where 2 are wanted; at node PRelu -> y",
    ),
    "a Resize of opset 10 without scales": (
        of_nodes(node("Resize", ["x"], ["y"]), opset=10), "1 inputs, where 2 are wanted; at node Resize -> y",
    ),
    "a Constant of opset 9 without value": (
        of_nodes(node("Constant", [], ["k"]), node("Add", ["x", "k"], ["y"]), opset=9), "attribute 'value' is missing",
    ),
    "an input that is left out": (of_nodes(node("Add", ["x", ""], ["y"])), "input 'B' is left out; at node Add -> y"),
    "a missing attribute": (of_nodes(node("Concat", ["x"], ["y"])), "attribute 'axis' is missing; at node Concat"),
    "an attribute of another type": (with_attribute("group", b"2", AttributeProto.STRING), "of another type than INT"),
    "too many outputs": (of_nodes(node("Neg", ["x"], ["y", "z"])), "2 outputs, where 1 are wanted"),
    "an axis that is not there": (of_nodes(node("Softmax", ["x"], ["y"], axis=7)), "at node Softmax -> y"),
    "a wrong rank": (of_nodes(node("DepthToSpace", ["x"], ["y"], blocksize=2)), "at node DepthToSpace -> y"),
    "shapes that do not go together": (
        of_nodes(node("Add", ["x", "w"], ["y"]), w=np.ones((3, 3), np.float32)), "at node Add -> y",
    ),
    "a type that the operator has not": (
        of_nodes(node("Cast", ["x"], ["i"], to=6), node("Softmax", ["i"], ["y"])), "is int32, for which ONNX does not",
    ),
    "types that differ": (of_nodes(node("Cast", ["x"], ["i"], to=6), node("Add", ["x", "i"], ["y"])), "is int32, and"),
    "a matching of strings, which onnx's own inference does not survive": (
        of_nodes(node("Foo", [], ["i"], domain="foo"), node("RegexFullMatch", ["i"], ["y"], pattern="a")), "on strings",
    ),
    "a name that nobody gives, which onnx's own converter does not survive": (
        of_nodes(node("EyeLike", ["nobody"], ["y"], dtype=11), opset=22), "no node gives 'nobody', input of node",
    ),
    "a body that gives less than its node": (
        of_nodes(node("Scan", ["x"], ["y"], num_scan_inputs=1, body=helper.make_graph([], "b", [port("r", [4])], []))),
        "it does not give 'y'",
    ),
    "an output that nobody gives": (of_nodes(node("Neg", ["x"], ["z"])), "no node gives 'y', output of graph 'g'"),
    "an opset of 64 bits": (of_nodes(node("Neg", ["x"], ["y"]), opset=1 << 40), "is newer than 28"),
    "an opset below 1": (of_nodes(node("Neg", ["x"], ["y"]), opset=-3), "opset -3, where the first is 1"),
    "a tensor of Upsample's whose bytes do not fit": (
        with_short_bytes(of_nodes(node("Upsample", ["x", "w"], ["y"]), opset=9, w=np.ones(2, np.float32))),
        "tensor 'w' cannot be read",
    ),
    "what no machine holds": (
        of_nodes(node("Tile", ["x", "r"], ["y"]), r=np.array([1 << 40, 1 << 40])), "no machine holds; at node Tile",
    ),
    "an input that no machine holds": (
        model([node("Neg", ["x"], ["y"])], [port("x", [1 << 40, 1 << 40])], [port("y", None)]), "no machine holds",
    ),
    "a mode that is none": (of_nodes(node("Gelu", ["x"], ["y"], approximate="no")), "KeyError: 'no'.*at node Gelu"),
    "parts that are not there": (of_nodes(node("Split", ["x"], ["y"], num_outputs=1 << 40)), "1,099,511,627,776, of 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_models_are_refused_with_the_place(name: str) -> None:
    proto, said = MALFORMED[name]
    with pytest.raises(hs.LoadError, match=said):
        hs.load(proto)


@pytest.mark.parametrize("place", [b"x", b"Neg", b"g"])
def test_names_are_text(place: bytes) -> None:
    data = of_nodes(node("Neg", ["x"], ["y"])).SerializeToString()
    with pytest.raises(hs.LoadError, match="is no text; names are UTF-8"):
        hs.load(data.replace(place, b"\xff" * len(place)))


def test_a_size_below_zero_is_open() -> None:
    """onnx's inference ends the process where Slice meets the least number of 64 bits."""
    nodes = [node("Slice", ["x", "a", "b", "c"], ["y"])]
    proto = model(nodes, [port("x", [20, -(2**63)])], [port("y", None)], {n: np.array([1]) for n in "abc"})
    with pytest.raises(hs.LoadError, match="its size is open"):
        hs.load(proto)
    x = np.zeros((20, 3), np.float32)
    assert str(hs.load(proto, inputs={"x": x}).entry.parameters[0].shape).startswith("f32[20,3]")


def test_a_fault_of_ours_stays_recognisable(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(x: Any) -> Any:
        return x.no_such_thing

    monkeypatch.setitem(OPERATORS._entries, ("", "Neg"), _with_function(faulty))
    with pytest.raises(hs.LoadError, match=r"AttributeError.*if onnx.checker takes the model, this is a fault") as told:
        hs.load(of_nodes(node("Neg", ["x"], ["y"])))
    assert isinstance(told.value.__cause__, AttributeError)


def _with_function(function: Any) -> Any:
    from dataclasses import replace

    return replace(OPERATORS["", "Neg"], function=function)


@pytest.mark.parametrize("key", [key for key in OPERATORS if key[1] != "Constant"])
def test_operators_without_their_inputs_are_refused(key: tuple[str, str]) -> None:
    """Or taken, where none is needed: with one input too few, one that is a scalar, and one of another type."""
    domain, name = key
    operator = OPERATORS[key]
    count = 2 if operator.is_variadic else len(operator.inputs)
    for array in (np.ones((2, 3), np.float32), np.float32(1), np.ones((1, 1, 2, 2), np.int8)):
        for given in range(count + 1):
            proto = node_model(name, {f"x{n}": array for n in range(given)}, 1, domain, {})
            with suppress(hs.HloShardingError):
                hs.load(proto)
