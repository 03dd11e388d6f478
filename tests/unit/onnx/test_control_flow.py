"""If, Loop and Scan: decided while tracing where that can be, JAX's own control flow elsewhere."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from onnx import TensorProto, helper

import hlosharding as hs
from hlosharding.onnx.operators import control_flow
from tests.support.onnx_models import INT64, model, node, port, run
from tests.unit.onnx.test_model import expected

BOOL = TensorProto.BOOL
X = np.random.default_rng(0).standard_normal((4, 8), np.float32)


def graph(name: str, nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> Any:
    return helper.make_graph(nodes, name, inputs, outputs)


def branch(op: str, **attributes: Any) -> Any:
    """A branch that reads the outer `x`."""
    return graph(op, [node(op, ["x"], [f"{op}.out"], **attributes)], [], [port(f"{op}.out", None)])


def chooser(condition: list[Any], *inputs: Any) -> Any:
    chosen = node("If", ["c"], ["y"], then_branch=branch("Exp"), else_branch=branch("Neg"))
    return model([*condition, chosen], [port("x", [4, 8]), *inputs], [port("y", None)])


def test_a_condition_of_the_run_stays_a_conditional() -> None:
    proto = chooser([], port("c", [], BOOL))
    module = hs.load(proto)
    assert module.of_opcodes("conditional")
    for truth, want in ((True, np.exp(X)), (False, -X)):
        module = hs.load(proto)
        (found,) = hs.partition(hs.annotate(module, {"x": "{devices=[4,1]<=[4]}"})).run(X, np.array(truth))
        np.testing.assert_allclose(found, want, rtol=1e-6)


def test_a_condition_on_shapes_is_decided_beforehand() -> None:
    condition = [
        node("Size", ["x"], ["n"]),
        node("Constant", [], ["k"], value_int=30),
        node("Greater", ["n", "k"], ["c"]),
    ]
    module = hs.load(chooser(condition))
    assert [i.opcode for i in module.entry.instructions] == ["parameter", "exponential"]


def test_a_branch_that_makes_no_sense_needs_the_condition() -> None:
    bad = node("If", ["c"], ["y"], then_branch=branch("Exp"), else_branch=branch("Transpose", perm=[0, 1, 2]))
    condition = [node("Constant", [], ["k"], value_int=8000), node("Greater", ["sr", "k"], ["c"])]
    proto = model([*condition, bad], [port("x", [4, 8]), port("sr", [], INT64)], [port("y", None)])
    with pytest.raises(hs.LoadError, match="value of input 'sr'"):
        hs.load(proto, inputs={"sr": jax.ShapeDtypeStruct((), np.int64)})
    np.testing.assert_allclose(run(proto, x=X, sr=np.array(16000))[0], np.exp(X), rtol=1e-6)


def loop(trips: list[str], body_nodes: list[Any], *, scanned: bool) -> Any:
    """Carries v from x, in `trips` (names of trip count and condition)."""
    inputs = [port("i", [], INT64), port("go", [], BOOL), port("v", None)]
    outputs = [port("go_on", [], BOOL), port("v_out", None), *([port("seen", None)] if scanned else [])]
    body = graph("body", body_nodes, inputs, outputs)
    return node("Loop", [*trips, "x"], ["y", *(["all"] if scanned else [])], body=body)


COUNTED = [
    node("Constant", [], ["one"], value_float=1.0),
    node("Add", ["v", "one"], ["v_out"]),
    node("Mul", ["v_out", "outer"], ["seen"]),
    node("Identity", ["go"], ["go_on"]),
]


def test_a_counted_loop_is_rolled_and_stacks_what_it_gives() -> None:
    trips = node("Constant", [], ["n"], value_int=3)
    outer = node("Constant", [], ["outer"], value_float=2.0)
    proto = model(
        [trips, outer, loop(["n", ""], COUNTED, scanned=True)],
        [port("x", [4, 8])],
        [port("y", None), port("all", None)],
    )
    assert hs.load(proto).of_opcodes("while")
    last, grown = run(proto, x=X)
    np.testing.assert_allclose(last, X + 3, rtol=1e-6)
    np.testing.assert_allclose(grown, np.stack([2 * (X + n) for n in (1, 2, 3)]), rtol=1e-6)


def test_a_loop_ended_by_values_of_the_run() -> None:
    body = [
        node("Constant", [], ["two"], value_float=2.0),
        node("Constant", [], ["limit"], value_float=100.0),
        node("Mul", ["v", "two"], ["v_out"]),
        node("ReduceMax", ["v_out"], ["largest"], keepdims=0),
        node("Less", ["largest", "limit"], ["go_on"]),
    ]
    proto = model([loop(["", ""], body, scanned=False)], [port("x", [4, 8])], [port("y", None)])
    want = np.abs(X)
    while True:
        want = want * 2
        if want.max() >= 100:
            break
    np.testing.assert_allclose(run(proto, x=np.abs(X))[0], want, rtol=1e-6)


def test_a_number_of_trips_of_the_run() -> None:
    body = [n for n in COUNTED if "seen" not in n.output]
    proto = model([loop(["n", ""], body, scanned=False)], [port("x", [4, 8]), port("n", [], INT64)], [port("y", None)])
    module = hs.load(proto, inputs={"n": jax.ShapeDtypeStruct((), np.int64)})
    (found,) = hs.partition(hs.annotate(module, {"x": "{devices=[2,2]<=[4]}"})).run(X, np.array(5))
    np.testing.assert_allclose(found, X + 5, rtol=1e-6)


def test_what_grows_is_unrolled() -> None:
    body = [node("Concat", ["v", "v"], ["v_out"], axis=0), node("Identity", ["go"], ["go_on"])]
    trips = node("Constant", [], ["n"], value_int=2)
    proto = model([trips, loop(["n", ""], body, scanned=False)], [port("x", [4, 8])], [port("y", None)])
    np.testing.assert_array_equal(run(proto, x=X)[0], np.concatenate([X] * 4))


ENDS_AFTER_TWO = [node("Constant", [], ["two"], value_int=2), node("Less", ["i", "two"], ["go_on"])]
ENDS_NEVER = [node("Constant", [], ["yes"], value_int=1), node("Cast", ["yes"], ["go_on"], to=BOOL)]
STEPS = {
    "grows": [node("Concat", ["v", "x"], ["v_out"], axis=0)],
    "adds": [node("Add", ["v", "x"], ["v_out"])],
    "gives": [node("Add", ["v", "x"], ["v_out"]), node("Identity", ["v_out"], ["seen"])],
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("is_known", [True, False])
def test_without_a_condition_of_its_own_a_loop_ignores_the_bodys(step: str, is_known: bool) -> None:
    """The schema's `for` loop.  ONNX's evaluator starts none without a condition: it is given one, always true."""
    scanned, n = step == "gives", np.array(6)
    outputs = [port("y", None), *([port("all", None)] if scanned else [])]

    def proto(condition: str, ending: list[Any]) -> Any:
        nodes = [loop(["n", condition], [*STEPS[step], *ending], scanned=scanned)]
        ports = [port("x", [1, 8]), *([] if is_known else [port("n", [], INT64)])]
        return model(nodes, ports, outputs, {"c": np.array(True), **({"n": n} if is_known else {})})

    given = {"x": X[:1], **({} if is_known else {"n": n})}
    want = expected(proto("c", ENDS_NEVER), **given)
    for found, due in zip(run(proto("", ENDS_AFTER_TWO), **given), want, strict=True):
        np.testing.assert_allclose(found.reshape(due.shape), due, rtol=1e-6)


def test_a_loop_over_sequences_of_too_many_trips_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_flow, "_UNROLLED", 4)
    v, v_out = (helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None) for name in ("v", "v_out"))
    ports = [port("i", [], INT64), port("go", [], BOOL), v]

    def proto(last: int) -> Any:
        nodes = [
            node("Constant", [], ["last"], value_int=last),
            node("Less", ["i", "last"], ["go_on"]),
            node("SequenceInsert", ["v", "x"], ["v_out"]),
        ]
        body = graph("body", nodes, ports, [port("go_on", [], BOOL), v_out])
        counted = [
            node("SequenceConstruct", ["x"], ["s"]),
            node("Loop", ["", "c", "s"], ["y"], body=body),
            node("SequenceLength", ["y"], ["count"]),
        ]
        return model(counted, [port("x", [4, 8])], [port("count", None, INT64)], {"c": np.array(True)})

    assert run(proto(3), x=X) == expected(proto(3), x=X) == [5]
    with pytest.raises(hs.LoadError, match="of more than 4 trips"):
        hs.load(proto(4))


def test_scan_with_axes_and_directions() -> None:
    body = graph(
        "body",
        [node("Add", ["s", "v"], ["s_out"]), node("Identity", ["s_out"], ["o"])],
        [port("s", [4]), port("v", [4])],
        [port("s_out", [4]), port("o", [4])],
    )
    scan = node(
        "Scan", ["s0", "x"], ["last", "sums"], body=body, num_scan_inputs=1,
        scan_input_axes=[1], scan_input_directions=[1], scan_output_axes=[1], scan_output_directions=[1],
    )  # fmt: skip
    zero = {"s0": np.zeros(4, np.float32)}
    proto = model([scan], [port("x", [4, 8])], [port("last", None), port("sums", None)], zero)
    last, sums = run(proto, x=X)
    want = np.flip(np.cumsum(np.flip(X, 1), 1), 1)
    np.testing.assert_allclose(last, X.sum(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(sums, want, rtol=1e-5, atol=1e-6)


def test_sequences_live_while_tracing() -> None:
    proto = model(
        [
            node("SplitToSequence", ["x"], ["seq"], axis=0, keepdims=0),
            node("SequenceLength", ["seq"], ["n"]),
            node("SequenceAt", ["seq", "place"], ["row"]),
            node("ConcatFromSequence", ["seq"], ["back"], axis=0, new_axis=1),
        ],
        [port("x", [4, 8])],
        [port("n", [], INT64), port("row", None), port("back", None)],
        {"place": np.array(-1)},
    )
    n, row, back = run(proto, x=X)
    assert n == 4
    np.testing.assert_array_equal(row, X[-1])
    np.testing.assert_array_equal(back, X)


NEVER_ENDS = [
    node("Identity", ["v"], ["v_out"]),
    node("Identity", ["v"], ["seen"]),
    node("Identity", ["go"], ["go_on"]),
]
ENDS_BY_VALUE = [
    node("ReduceMax", ["v"], ["largest"], keepdims=0),
    node("Constant", [], ["limit"], value_float=9.0),
    node("Less", ["largest", "limit"], ["go_on"]),
    *NEVER_ENDS[:2],
]
IS_UNKNOWN = [node("Own", ["v"], ["v_out"], domain="mine"), node("Identity", ["go"], ["go_on"])]


@pytest.mark.parametrize(
    ("body", "scanned", "said"),
    [
        (NEVER_ENDS, True, "depend on values of the run; at node Loop"),
        (ENDS_BY_VALUE, True, "at node Loop"),
        (IS_UNKNOWN, False, "operator mine.Own is not handled"),
    ],
)
def test_loops_without_a_number_of_trips_that_cannot_be_traced(body: list[Any], scanned: bool, said: str) -> None:
    outputs = [port("y", None), *([port("all", None)] if scanned else [])]
    proto = model([loop(["", ""], body, scanned=scanned)], [port("x", [4, 8])], outputs)
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    with pytest.raises(hs.LoadError, match=said):
        hs.load(proto)
