"""Models written rank by rank, run together, against ONNX's own evaluator on the whole model."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import hlosharding as hs
from tests.support.onnx_models import INT64, model, node, port
from tests.support.onnx_rank_runs import run_ranks

Models = dict[str, Callable[[], Any]]
MODELS: Models = {}


def weights(**dims: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Small numbers at random."""
    random = np.random.default_rng(0)
    return {name: random.standard_normal(size).astype(np.float32) * 0.3 for name, size in dims.items()}


def a_model(make: Callable[[], Any]) -> Callable[[], Any]:
    MODELS[make.__name__] = make
    return make


@a_model
def mlp() -> Any:
    given = weights(w1=(16, 32), b1=(32,), w2=(32, 16))
    nodes = [
        node("Gemm", ["x", "w1", "b1"], ["h"]),
        node("Gelu", ["h"], ["g"]),
        node("MatMul", ["g", "w2"], ["y"]),
    ]
    return model(nodes, [port("x", [8, 16])], [port("y", [8, 16])], given)


@a_model
def conv_net() -> Any:
    given = weights(k1=(8, 3, 3, 3), c1=(8,), k2=(8, 1, 3, 3), w=(8, 4))
    nodes = [
        node("Conv", ["x", "k1", "c1"], ["a"], pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "k2"], ["c"], group=8, strides=[2, 2], pads=[1, 1, 1, 1]),
        node("MaxPool", ["c"], ["d"], kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", ["d"], ["e"]),
        node("Flatten", ["e"], ["f"]),
        node("MatMul", ["f", "w"], ["y"]),
    ]
    return model(nodes, [port("x", [4, 3, 8, 8])], [port("y", [4, 4])], given)


@a_model
def attention() -> Any:
    given = weights(q=(16, 16), k=(16, 16), v=(16, 16), o=(16, 16))
    given |= {"split": np.array([0, 0, 4, 4]), "merge": np.array([0, 0, 16])}
    nodes = []
    for name in "qkv":
        nodes += [
            node("MatMul", ["x", name], [f"{name}1"]),
            node("Reshape", [f"{name}1", "split"], [f"{name}2"]),
            node("Transpose", [f"{name}2"], [f"{name}3"], perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]),
        ]
    nodes += [
        node("MatMul", ["q3", "k3"], ["s"]),
        node("Softmax", ["s"], ["p"]),
        node("MatMul", ["p", "v3"], ["c"]),
        node("Transpose", ["c"], ["c1"], perm=[0, 2, 1, 3]),
        node("Reshape", ["c1", "merge"], ["c2"]),
        node("MatMul", ["c2", "o"], ["y"]),
    ]
    return model(nodes, [port("x", [2, 8, 16])], [port("y", [2, 8, 16])], given)


@a_model
def embedding() -> Any:
    given = weights(table=(64, 16), w=(16, 8))
    nodes = [node("Gather", ["table", "ids"], ["e"]), node("MatMul", ["e", "w"], ["y"])]
    return model(nodes, [port("ids", [4, 6], INT64)], [port("y", [4, 6, 8])], given)


@a_model
def layer_norm() -> Any:
    given = weights(scale=(16,), bias=(16,), w=(16, 8))
    nodes = [node("LayerNormalization", ["x", "scale", "bias"], ["n"]), node("MatMul", ["n", "w"], ["y"])]
    return model(nodes, [port("x", [8, 16])], [port("y", [8, 8])], given)


@a_model
def pooling() -> Any:
    nodes = [
        node("AveragePool", ["x"], ["a"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("MaxPool", ["a"], ["b"], kernel_shape=[3, 2], strides=[2, 1], dilations=[1, 2]),
        node("ReduceMax", ["b"], ["y"], keepdims=0),
        node("ReduceMean", ["a"], ["z"], keepdims=0),
    ]
    return model(nodes, [port("x", [4, 4, 8, 8])], [port("y", []), port("z", [])])


@a_model
def batch_norm() -> Any:
    given = weights(k=(8, 4, 3), s=(8,), b=(8,), m=(8,)) | {"var": np.ones(8, np.float32)}
    nodes = [
        node("Conv", ["x", "k"], ["a"], dilations=[2], pads=[2, 2]),
        node("BatchNormalization", ["a", "s", "b", "m", "var"], ["n"]),
        node("HardSigmoid", ["n"], ["y"]),
    ]
    return model(nodes, [port("x", [4, 4, 16])], [port("y", [4, 8, 16])], given)


@a_model
def shuffled() -> Any:
    """Concat, Slice, Pad, Transpose, Where: nothing but moves."""
    given = {"starts": np.array([1]), "ends": np.array([7]), "axes": np.array([0]), "pads": np.array([0, 1, 2, 0])}
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0]),
        node("Concat", ["x", "t"], ["c"], axis=1),
        node("Slice", ["c", "starts", "ends", "axes"], ["s"]),
        node("Pad", ["s", "pads"], ["p"]),
        node("Abs", ["p"], ["q"]),
        node("Greater", ["p", "q"], ["g"]),
        node("Equal", ["p", "q"], ["h"]),
        node("Or", ["g", "h"], ["o"]),
        node("Where", ["o", "p", "q"], ["y"]),
    ]
    return model(nodes, [port("x", [8, 8])], [port("y", [8, 17])], given)


@a_model
def experts() -> Any:
    """Products in a batch of experts, summed with gates."""
    given = weights(gate=(16, 4), up=(4, 16, 8), down=(4, 8, 16))
    given |= {"one": np.array([0]), "last": np.array([2])}
    nodes = [
        node("MatMul", ["x", "gate"], ["g"]),
        node("Softmax", ["g"], ["p"]),
        node("Transpose", ["p"], ["pt"], perm=[1, 0]),
        node("Unsqueeze", ["pt", "last"], ["pe"]),
        node("Unsqueeze", ["x", "one"], ["xe"]),
        node("MatMul", ["xe", "up"], ["h"]),
        node("Tanh", ["h"], ["a"]),
        node("MatMul", ["a", "down"], ["d"]),
        node("Mul", ["d", "pe"], ["m"]),
        node("ReduceSum", ["m", "one"], ["y"], keepdims=0),
    ]
    return model(nodes, [port("x", [8, 16])], [port("y", [8, 16])], given)


@a_model
def scattered() -> Any:
    """Rows of a cache written, and read at other places."""
    nodes = [
        node("ScatterND", ["cache", "at", "new"], ["c"], reduction="add"),
        node("GatherElements", ["c", "pick"], ["g"], axis=0),
        node("CumSum", ["g", "axis"], ["y"]),
    ]
    ports = [port("cache", [8, 4]), port("at", [3, 1], INT64), port("new", [3, 4]), port("pick", [4, 4], INT64)]
    return model(nodes, ports, [port("y", [4, 4])], {"axis": np.array(0)})


FIRST = {
    "mlp": {"w1": (1, 0), "w2": (0, 1)},
    "conv_net": {"x": (0, 2), "k1": (1, 0)},
    "attention": {"x": (0, 1), "q": (1, 0), "k": (1, 0), "v": (1, 0), "o": (0, 1)},
    "embedding": {"table": (0, 1), "ids": (1, 0)},
    "layer_norm": {"x": (1, 0)},
    "pooling": {"x": (2, 0)},
    "batch_norm": {"x": (2, 0), "k": (0, 1)},
    "shuffled": {"x": (0, 1)},
    "experts": {"up": (0, 2), "down": (0, 1)},
    "scattered": {"cache": (0, 1)},
}
"""Of each model what is split along the first mesh axis, and along the second: (dim, dim)."""


def plan_of(name: str, **axes: int) -> hs.PlanFile:
    """The plan over one axis, or over two."""
    lines = [f"{axis} = {size}" for axis, size in axes.items()]
    rows = []
    for value, dims in FIRST[name].items():
        spec = [repr(axis) if axis else "None" for axis in _by_dim(dims, list(axes))]
        rows.append(f'{value} = "P({", ".join(spec)})"')
    return hs.PlanFile.parse("\n".join(["[mesh]", *lines, "[annotations]", *rows]))


def _by_dim(dims: tuple[int, ...], axes: list[str]) -> list[str]:
    where = dict(zip(dims, axes, strict=False))
    return [where.get(d, "") for d in range(max(where) + 1)]


def whole_run(proto: Any, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of the whole model, as ONNX's own evaluator computes them."""
    return [np.asarray(out) for out in list(ReferenceEvaluator(proto).run(None, given))]


def given_to(proto: Any) -> dict[str, np.ndarray]:
    """Inputs at random; indices that are there."""
    random = np.random.default_rng(1)
    weighted = {tensor.name for tensor in proto.graph.initializer}
    found = {}
    for value in proto.graph.input:
        dims = [d.dim_value for d in value.type.tensor_type.shape.dim]
        if value.name in weighted:
            continue
        is_index = value.type.tensor_type.elem_type == INT64
        found[value.name] = random.integers(0, 8, dims) if is_index else random.standard_normal(dims).astype(np.float32)
    return found


@pytest.mark.parametrize("axes", [{"a": 2}, {"a": 4}, {"a": 2, "b": 2}], ids=["2", "4", "2x2"])
@pytest.mark.parametrize("name", MODELS)
def test_ranks_equal_the_whole_model(name: str, axes: dict[str, int]) -> None:
    proto = MODELS[name]()
    given = given_to(proto)
    ranks = hs.write_onnx_ranks(proto, plan_of(name, **axes))
    for each in ranks.models:
        onnx.checker.check_model(each, full_check=True)
    assert len({tuple(node.op_type for node in each.graph.node) for each in ranks.models}) == 1
    expected = whole_run(proto, given)
    for found, wanted in zip(run_ranks(ranks, given), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_sizes_that_do_not_divide_are_padded_and_joined() -> None:
    proto = model([node("Softmax", ["x"], ["y"], axis=0)], [port("x", [7, 3])], [port("y", [7, 3])])
    ranks = hs.write_onnx_ranks(proto, hs.PlanFile.parse("[mesh]\na = 4\n[annotations]\nx = \"P('a')\""))
    given = given_to(proto)
    assert ranks.inputs(3, given)["x"].shape == (2, 3)
    [found] = run_ranks(ranks, given)
    np.testing.assert_allclose(found, whole_run(proto, given)[0], rtol=1e-4)


def test_a_loop_runs_with_its_collectives() -> None:
    """A scanned layer is a loop of the program; its products are summed over ranks in each round."""
    import jax
    import jax.numpy as jnp

    def step(w: Any, x: Any) -> Any:
        return jax.lax.scan(lambda carry, layer: (jnp.tanh(carry @ layer), None), x, w)[0]

    random = np.random.default_rng(0)
    w, x = random.standard_normal((3, 8, 8), np.float32), random.standard_normal((4, 8), np.float32)
    plan = hs.PlanFile.parse("[mesh]\na = 4\n[annotations]\nw = \"P(None, 'a')\"")
    ranks = hs.write_onnx_ranks(hs.trace(step)(w, x), plan)
    [loop] = [n for n in ranks.models[0].graph.node if n.op_type == "Loop"]
    assert any(n.domain == "com.microsoft" for n in loop.attribute[0].g.node)
    [found] = run_ranks(ranks, {"w": w, "x": x})
    np.testing.assert_allclose(found, step(w, x), rtol=1e-4, atol=1e-5)


def test_each_file_holds_its_own_part_of_the_weights(tmp_path: Path) -> None:
    proto = model([node("MatMul", ["x", "w"], ["y"])], [port("x", [4, 64])], [port("y", [4, 64])], weights(w=(64, 64)))
    ranks = hs.write_onnx_ranks(proto, hs.PlanFile.parse("[mesh]\na = 4\n[annotations]\nw = \"P('a')\""))
    ranks.write(tmp_path / "out")
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "out").iterdir()}
    assert {name: size for name, size in sizes.items() if name.endswith("weights")} == {
        f"rank{rank}.weights": 64 * 64 * 4 // 4 for rank in range(4)
    }
    read = [onnx.load(tmp_path / "out" / f"rank{rank}.onnx") for rank in range(4)]
    given = given_to(proto)
    [found] = run_ranks(replace(ranks, models=tuple(read)), given)
    np.testing.assert_allclose(found, whole_run(proto, given)[0], rtol=1e-4, atol=1e-4)
    with pytest.raises(hs.HloShardingError, match="cannot write"):
        ranks.write(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_metadata_says_how_arrays_are_cut() -> None:
    ranks = hs.write_onnx_ranks(MODELS["embedding"](), plan_of("embedding", a=2, b=2))
    said = {entry.key: entry.value for entry in ranks.models[3].metadata_props}
    assert (said["hlosharding.rank"], said["hlosharding.ranks"]) == ("3", "4")
    assert json.loads(said["hlosharding.inputs"]) == {
        "ids": {"shape": [4, 6], "sharding": "{devices=[2,2]<=[2,2]T(1,0)}"}
    }
    assert list(json.loads(said["hlosharding.outputs"])) == ["y"]


def test_a_model_with_annotations_of_its_own_needs_no_plan() -> None:
    proto = MODELS["mlp"]()
    shardings = {"w1": "{devices=[1,2]<=[2]}", "w2": "{devices=[2,1]<=[2]}"}
    ranks = hs.write_onnx_ranks(hs.write_onnx_shardings(proto, shardings))
    assert [n.op_type for n in ranks.models[0].graph.node if n.domain] == ["AllReduce"]


def test_what_is_asked_wrongly_is_refused() -> None:
    plan, proto = plan_of("mlp", a=2), MODELS["mlp"]()
    with pytest.raises(hs.PlanError, match="collectives of 'tensorrt' cannot be written"):
        hs.write_onnx_ranks(proto, plan, collectives="tensorrt")
    ranks = hs.write_onnx_ranks(proto, plan)
    with pytest.raises(hs.ExecutionError, match="input 'x' is missing"):
        ranks.inputs(0, {})
    with pytest.raises(hs.ExecutionError, match=r"input 'x' has shape \[2\], the program takes f32\[8,16\]"):
        ranks.inputs(0, {"x": np.zeros(2)})
    with pytest.raises(hs.ExecutionError, match="2 ranks with 1 outputs each are to be joined"):
        ranks.join([[np.zeros(2)]])


def test_an_op_without_a_form_is_named_with_its_node() -> None:
    proto = model([node("TopK", ["x", "k"], ["y", "i"], name="/top")], [port("x", [4, 8])],
                  [port("y", [4, 2]), port("i", [4, 2], INT64)], {"k": np.array([2])})  # fmt: skip
    with pytest.raises(hs.ModuleError, match=r"cannot be written as ONNX.*/top"):
        hs.write_onnx_ranks(proto, hs.PlanFile.parse("[mesh]\na = 2\n[annotations]\nx = \"P('a')\""))
