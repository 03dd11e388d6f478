"""Small models that ask for much: refused before anything is made, or taken without making it."""

from __future__ import annotations

import resource
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import hlosharding as hs
from hlosharding.onnx import budget
from tests.support.onnx_models import INT64, model, node, port

HUGE = 1 << 33
TOO_MUCH = r"[\d,]{9,} bytes are to be made while the model is read, and [\d,]+ are left"
TOO_MANY = r"nodes are to come beyond those of the file, and [\d,]+ are left"


def sizes(*values: Any, dtype: Any = np.int64) -> np.ndarray:
    return np.array(values, dtype)


def of_nodes(*nodes: Any, **weights: np.ndarray) -> Any:
    """A model f32[4] -> y whose last node gives y."""
    return model(nodes, [port("x", [4])], [helper.make_empty_tensor_value_info("y")], weights)


NOT_ZERO = node("NonZero", ["k"], ["y"])
"""Wants to know all of k."""
REFUSED: dict[str, Any] = {
    "a fill": of_nodes(node("ConstantOfShape", ["s"], ["y"]), s=sizes(HUGE)),
    "an Expand whose value must be known": of_nodes(
        node("Expand", ["w", "s"], ["k"]), NOT_ZERO, w=sizes(1), s=sizes(HUGE)
    ),
    "a Tile": of_nodes(node("Tile", ["w", "s"], ["k"]), NOT_ZERO, w=sizes(1), s=sizes(HUGE)),
    "a Range": of_nodes(
        node("Range", ["a", "b", "c"], ["k"]), NOT_ZERO, a=sizes(0)[0], b=sizes(HUGE)[0], c=sizes(1)[0]
    ),
    "a Pad": of_nodes(node("Pad", ["w", "s"], ["k"]), NOT_ZERO, w=sizes(1), s=sizes(HUGE, 0)),
    "a OneHot": of_nodes(
        node("OneHot", ["w", "s", "v"], ["k"]), NOT_ZERO, w=sizes(1), s=sizes(HUGE)[0], v=sizes(0, 1)
    ),
    "an outer product": of_nodes(
        node("Expand", ["w", "s"], ["a"]), node("Mul", ["a", "b"], ["k"]), NOT_ZERO,
        w=sizes(1), s=sizes(1 << 20, 1), b=np.arange(1 << 12),
    ),
    "a Resize": of_nodes(
        node("Reshape", ["x", "r"], ["i"]), node("Resize", ["i", "", "", "s"], ["y"], mode="linear"),
        r=sizes(1, 1, 4, 1), s=sizes(1, 1, HUGE, 1),
    ),
    "a HannWindow": of_nodes(node("HannWindow", ["s"], ["y"]), s=sizes(HUGE)[0]),
    "a MelWeightMatrix": of_nodes(
        node("MelWeightMatrix", ["a", "a", "b", "c", "d"], ["y"]),
        a=sizes(1 << 20)[0], b=sizes(8000)[0], c=np.float32(0), d=np.float32(4000),
    ),
    "an AffineGrid": of_nodes(
        node("Reshape", ["x", "r"], ["a"]), node("Concat", ["a", "a", "a"], ["b"], axis=1),
        node("Reshape", ["b", "q"], ["t"]), node("AffineGrid", ["t", "s"], ["y"]),
        r=sizes(2, 2), q=sizes(2, 2, 3), s=sizes(2, 1, 1 << 16, 1 << 16),
    ),
    "a fill in a branch": of_nodes(
        node(
            "If", ["c"], ["y"],
            then_branch=helper.make_graph(
                [node("ConstantOfShape", ["s"], ["z"])], "then", [], [port("z", None)],
                [numpy_helper.from_array(sizes(HUGE), "s")],
            ),
            else_branch=helper.make_graph([node("Neg", ["x"], ["z"])], "else", [], [port("z", None)]),
        ),
        c=np.array(True),
    ),
}  # fmt: skip
"""Each makes 8 GB or more."""


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_too_large_is_refused_before_it_is_made(name: str) -> None:
    before = peak()
    asks = next(n for n in reversed(nodes_inside(REFUSED[name].graph)) if n.op_type not in ("NonZero", "Neg"))
    with pytest.raises(hs.LoadError, match=f"{TOO_MUCH}; at node {asks.op_type}"):
        hs.load(REFUSED[name])
    assert peak() - before < 900 << 20


def nodes_inside(graph: Any) -> list[Any]:
    return [n for node in graph.node for n in (node, *(i for a in node.attribute for i in nodes_inside(a.g)))]


def peak() -> int:
    """Bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def test_all_values_share_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "_BYTES", 1000)
    fills = [node("ConstantOfShape", ["s"], [name]) for name in ("a", "b", "c", "y")]
    with pytest.raises(
        hs.LoadError, match=r"400 bytes are to be made .* and 200 are left; at node ConstantOfShape -> c"
    ):
        hs.load(of_nodes(*fills, s=sizes(100)))


def test_a_sparse_tensor_is_refused_before_it_is_made() -> None:
    values, indices = numpy_helper.from_array(sizes(1.0, dtype=np.float32), "w"), numpy_helper.from_array(sizes(7), "i")
    sparse = helper.make_sparse_tensor(values, indices, [HUGE])
    proto = of_nodes(node("Constant", [], ["w"], sparse_value=sparse), node("Add", ["x", "w"], ["y"]))
    proto.opset_import[0].version = 28
    with pytest.raises(hs.LoadError, match=TOO_MUCH):
        hs.load(proto)


def test_what_nobody_needs_to_know_is_not_made() -> None:
    before = peak()
    module = hs.load(of_nodes(node("Expand", ["w", "s"], ["k"]), node("Neg", ["k"], ["y"]), w=sizes(1), s=sizes(HUGE)))
    assert str(module.entry.root.operands[0].shape).startswith("s64[8589934592]")
    assert peak() - before < 900 << 20


def test_negative_sizes_are_told() -> None:
    with pytest.raises(hs.LoadError, match=r"a shape of \[-3\]; at node ConstantOfShape -> y"):
        hs.load(of_nodes(node("ConstantOfShape", ["s"], ["y"]), s=sizes(-3)))


def with_functions(calls: int, depth: int) -> Any:
    """Each function calls the next several times."""
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("my", 1)]
    names = [f"a{n}" for n in range(calls + 1)]

    def body(level: int) -> list[Any]:
        return [node(f"f{level + 1}", [a], [b], domain="my") for a, b in pairwise(names)]

    functions = [helper.make_function("my", f"f{n}", ["a0"], [names[-1]], body(n), opsets) for n in range(depth)]
    last = helper.make_function("my", f"f{depth}", ["a"], ["b"], [node("Neg", ["a"], ["b"])], opsets)
    proto = model([node("f0", ["x"], ["y"], domain="my")], [port("x", [4])], [port("y", [4])])
    proto.functions.extend([*functions, last])
    proto.opset_import.add(domain="my", version=1)
    return proto


def test_functions_that_double_are_refused() -> None:
    with pytest.raises(hs.LoadError, match=TOO_MANY):
        hs.load(with_functions(2, 30))
    with pytest.raises(hs.LoadError, match=rf"4,611,686,018,427,38[\d,]+ {TOO_MANY}"):
        hs.load(with_functions(40, 90))


def test_functions_that_call_a_few_times_are_taken() -> None:
    assert str(hs.load(with_functions(3, 4)).entry.instructions).count("negate") >= 81


def test_functions_in_a_circle_are_refused() -> None:
    proto = with_functions(1, 1)
    proto.functions[1].node[0].op_type, proto.functions[1].node[0].domain = "f0", "my"
    with pytest.raises(hs.LoadError, match="local functions call each other in a circle"):
        hs.load(proto)


def grown(depth: int) -> Any:
    """The body of a loop that carries an array which grows by an element a trip: it cannot roll."""
    ports = [port("i", [], INT64), port("c", [], TensorProto.BOOL), port("v", None)]
    inner = [node("Concat", ["v", "one"], ["w"], axis=0)] if depth == 0 else [
        node("Loop", ["n", "", "v"], ["w"], body=grown(depth - 1))
    ]  # fmt: skip
    nodes = [node("Identity", ["c"], ["d"]), *inner]
    return helper.make_graph(nodes, f"body{depth}", ports, [port("d", [], TensorProto.BOOL), port("w", None)])


def test_loops_in_loops_that_are_unrolled_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "_NODES", 1000)
    proto = of_nodes(
        node("Loop", ["n", "", "x"], ["y"], body=grown(2)), n=sizes(900)[0], one=sizes(1, dtype=np.float32)
    )
    with pytest.raises(hs.LoadError, match=TOO_MANY):
        hs.load(proto)


def test_a_sequence_of_too_many_parts_is_refused() -> None:
    nodes = [
        node("Expand", ["w", "s"], ["k"]),
        node("SplitToSequence", ["k"], ["q"]),
        node("SequenceLength", ["q"], ["y"]),
    ]
    with pytest.raises(hs.LoadError, match=TOO_MANY):
        hs.load(of_nodes(*nodes, w=sizes(1), s=sizes(HUGE)))


@pytest.mark.parametrize("dims", [(4, -2), (0, 2**62)])
def test_dims_that_no_array_has(dims: tuple[int, ...]) -> None:
    with pytest.raises(hs.LoadError, match="which no machine holds"):
        budget.check_size(dims, np.float32)
