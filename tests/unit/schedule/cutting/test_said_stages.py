"""Stages that are said, by function of the source or by node of an ONNX model: ops lie where it is said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlosharding as hs
from hlosharding.schedule import Schedule, pipelined
from tests.support.onnx_models import model, node, port, run

RANDOM = np.random.default_rng(0)
WEIGHTS = RANDOM.standard_normal((3, 8, 8), np.float32) * 0.3
X = RANDOM.standard_normal((16, 8), np.float32)


def first(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w)


def second(w: Any, x: Any) -> Any:
    return jnp.cos(x @ w) + x


def step(weights: Any, x: Any) -> Any:
    def loss(weights: Any) -> Any:
        between = jnp.exp(first(weights[0], x) @ weights[1])
        return jnp.sum(second(weights[2], between) ** 2)

    value, gradient = jax.value_and_grad(loss)(weights)
    return weights - 0.1 * gradient, value


def opcodes(schedule: Schedule, stage: int) -> set[str]:
    """What a stage's passes consist of."""
    programs: list[Any] = [op for name, op in schedule.ops.items() if name in (f"forward_{stage}", f"backward_{stage}")]
    return {inst.opcode for op in programs for inst in op.program.module.instructions}


def cut(stages: Any, **options: Any) -> Schedule:
    return pipelined(hs.trace(step)(WEIGHTS, X), batch=["x"], microbatches=4, stages=stages, **options)


def test_functions_lie_where_it_is_said_and_the_rest_where_what_it_reads_lies() -> None:
    schedule = cut({"first": 0, "second": 1})
    assert {"tanh", "exponential"} <= opcodes(schedule, 0)
    assert "cosine" in opcodes(schedule, 1)
    assert "tanh" not in opcodes(schedule, 1)
    for made, expected in zip(schedule.run_reference(WEIGHTS, X), step(WEIGHTS, X), strict=True):
        np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-5)


def test_a_function_speaks_for_those_that_it_calls_unless_these_are_named() -> None:
    schedule = cut({"step.<locals>.loss": 1, "first": 0})
    assert "exponential" not in opcodes(schedule, 0)
    assert {"exponential", "cosine"} <= opcodes(schedule, 1)
    again = cut({name: stage for name, stage in schedule.stages.items() if name != "step"})
    assert str(again) == str(schedule)


def test_what_reads_nothing_of_the_kind_goes_with_its_reader() -> None:
    def net(w: Any, x: Any, y: Any) -> Any:
        return second(w[1], first(w[0], x) + jnp.exp(y @ w[2]))

    schedule = pipelined(
        hs.trace(net)(WEIGHTS, X, X), batch=["x", "y"], microbatches=2, stages={"first": 0, "second": 1}
    )
    assert "exponential" not in opcodes(schedule, 0)
    assert {"exponential", "cosine"} <= opcodes(schedule, 1)
    (made,) = schedule.run_reference(WEIGHTS, X, X)
    np.testing.assert_allclose(made, net(WEIGHTS, X, X), rtol=1e-5, atol=1e-5)


def test_submeshes_may_have_several_said_stages() -> None:
    stages = {"/one/MatMul": 0, "/two/MatMul": 1, "/two/Softmax": 2, "/add": 3}
    module = hs.load(layers(stages), inputs={"x": X})
    schedule = pipelined(module, batch=["x"], microbatches=4, schedule="forward-x2")
    assert schedule.devices == (0, 1)
    assert "@forward_3" in str(schedule)
    (made,) = schedule.run_reference(X, *module.weights.values())
    np.testing.assert_allclose(made, run(layers(stages), x=X)[0], rtol=1e-5, atol=1e-6)
    with pytest.raises(hs.ScheduleError, match="3 stages in 2 chunks"):
        pipelined(hs.load(layers(ALL), inputs={"x": X}), batch=["x"], schedule="forward-x2")


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ({"first": 1, "second": 0}, "'first' is in stage 1, and 'second', which reads of it, in stage 0"),
        ({"first": 0, "second": 2}, "nothing is in stage 1: 'first' is in stage 0, 'second' in stage 2"),
        ({"second": 1}, "nothing is in stage 0: 'second' in stage 1"),
        ({"first": 0, "second": 2**31 - 1}, "nothing is in stage 1"),
        ({"first": 0, "secnd": 1}, "no op comes from 'secnd'.*'second'"),
        ({"first": -1}, "'first' is in stage -1"),
        ({"first": 0.5}, "'first' is in stage 0.5"),
        ({"first": "0"}, "'first' is in stage '0'; stages are whole numbers"),
        ({}, "no function or node is in a stage"),
        (None, "the program says no stages"),
    ],
)
def test_stages_that_cannot_be(stages: Any, said: str) -> None:
    with pytest.raises(hs.ScheduleError, match=said):
        cut(stages)


def layers(stages: Mapping[str, int], opset: int = 23) -> Any:
    """x -> MatMul, Tanh -> MatMul, Softmax -> Add: five nodes, one of them without a name."""
    nodes = [
        node("MatMul", ["x", "w"], ["h"], name="/one/MatMul"),
        node("Tanh", ["h"], ["t"]),
        node("MatMul", ["t", "v"], ["u"], name="/two/MatMul"),
        node("Softmax", ["u"], ["s"], name="/two/Softmax"),
        node("Add", ["s", "x"], ["y"], name="/add"),
    ]
    weights = {"w": WEIGHTS[0], "v": WEIGHTS[1]}
    proto = model(nodes, [port("x", ["rows", 8])], [port("y", ["rows", 8])], weights, opset=opset)
    return hs.write_onnx_shardings(proto, {}, configuration="pp", num_devices=1, stages=stages)


ALL = {"/one/MatMul": 0, "Tanh(t)": 0, "/two/MatMul": 1, "/two/Softmax": 1, "/add": 2}


@pytest.mark.parametrize("opset", [11, 23])
@pytest.mark.parametrize("stages", [ALL, {"/one/MatMul": 0, "/two/MatMul": 1}, {**ALL, "Tanh(t)": 1}])
def test_a_model_is_cut_as_it_says(stages: dict[str, int], opset: int) -> None:
    proto = layers(stages, opset)
    module = hs.load(proto, inputs={"x": X})
    assert module.stages == stages
    schedule = pipelined(module, batch=["x"], microbatches=4)
    assert schedule.devices == tuple(range(max(stages.values()) + 1))
    in_first = "tanh" in opcodes(schedule, 0)
    assert in_first == (stages.get("Tanh(t)", 0) == 0)
    (expected,) = run(proto, x=X)
    (made,) = schedule.run_reference(X, *module.weights.values())
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)
    written = hs.write_onnx_shardings(proto, {}, configuration="pp", num_devices=1, stages=schedule.stages)
    again = hs.read_onnx_shardings(written)
    assert again is not None
    assert set(again.stages) == set(ALL)
    assert again.stages == {**schedule.stages, **stages}
    if stages.keys() == ALL.keys():
        assert again == hs.read_onnx_shardings(proto)


def test_what_the_user_says_wins() -> None:
    module = hs.load(layers(ALL), inputs={"x": X})
    assert pipelined(module, batch=["x"], stages=2).devices == (0, 1)
    moved = pipelined(module, batch=["x"], stages={**module.stages, "/two/Softmax": 2})
    assert moved.stages == {**ALL, "/two/Softmax": 2}
    assert "exponential" in opcodes(moved, 2)


def test_stages_found_here_go_into_the_model() -> None:
    bare = layers({})
    module = hs.load(bare, inputs={"x": X})
    assert not module.stages
    found = pipelined(module, batch=["x"], stages=2)
    written = hs.write_onnx_shardings(bare, {}, configuration="found", num_devices=1, stages=found.stages)
    again = pipelined(hs.load(written, inputs={"x": X}, configuration="found"), batch=["x"])
    assert again.stages == found.stages
    assert len(again.devices) == 2


def test_a_staged_model_runs_on_devices_with_its_shardings() -> None:
    proto = layers(ALL)
    for number in (1, 3):  # rows over both devices of a stage, and columns of what is multiplied
        entry = proto.graph.node[number].device_configurations[0]
        spec = entry.sharding_spec.add(tensor_name=proto.graph.node[number].output[0], device=[0, 1])
        spec.sharded_dim.add(axis=number // 3).simple_sharding.add(num_shards=2)
    proto.configuration[0].num_devices = 2
    module = hs.load(proto, inputs={"x": X})
    schedule = pipelined(module, batch=["x"], microbatches=2)
    assert schedule.devices == (0, 1, 2, 3, 4, 5)
    assert "{devices=[2,1]<=[2]}" in str(schedule)
    (expected,) = run(proto, x=X)
    (made,) = schedule.compile()(X, *module.weights.values())
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ({**ALL, "/one/MatMul": 1}, None),
        ({**ALL, "/two/MatMul": 2}, "'/two/MatMul' is in stage 2, and '/two/Softmax', which reads of it, in stage 1"),
        ({"/one/MatMul": 1, "/two/MatMul": 0}, "'/one/MatMul' is in stage 1, and '/two/MatMul', which reads of it"),
        ({**ALL, "/add": 3}, "nothing is in stage 2: .* is in stage 1, '/add' in stage 3"),
    ],
)
def test_stages_of_a_model_that_cannot_be(stages: dict[str, int], said: str | None) -> None:
    said = said or "'/one/MatMul' is in stage 1, and 'Tanh\\(t\\)', which reads of it, in stage 0"
    with pytest.raises(hs.ScheduleError, match=said):
        pipelined(hs.load(layers(stages), inputs={"x": X}), batch=["x"])
