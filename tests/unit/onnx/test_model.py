"""A model becomes a module: names, weights, sizes, values that decide shapes, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import hlosharding as hs
from tests.support.onnx_models import FLOAT, INT64, mlp, model, node, port, run

X = np.random.default_rng(1).standard_normal((8, 16), np.float32)


def expected(proto: Any, **inputs: np.ndarray) -> list[np.ndarray]:
    """What ONNX's reference evaluator computes."""
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(proto).run(None, inputs)


def test_parameters_are_inputs_then_weights_under_their_names() -> None:
    module = hs.load(mlp())
    assert [p.name for p in module.entry.parameters] == ["x", "w", "b"]
    assert list(module.weights) == ["w", "b"]
    assert [str(p.shape) for p in module.entry.parameters] == ["f32[8,16]", "f32[16,32]", "f32[32]"]


def test_tensors_name_instructions_and_nodes_name_places() -> None:
    module = hs.load(mlp())
    assert module.paths["hb"].opcode == "add"
    assert module.paths["h"].location == "g.onnx:/fc1/MatMul"
    assert module.paths["y"].location == "g.onnx:Relu(y)"
    assert "fc1/MatMul" in module.paths["h"].op_name


def test_tensors_are_annotated_and_explained_by_name() -> None:
    module = hs.annotate(hs.load(mlp()), {"w": "{devices=[1,4]<=[4]}", "hb": "{devices=[1,4]<=[4]}"})
    propagation = hs.propagate(module)
    assert str(propagation.shardings["h"]) == "{devices=[1,4]<=[4]}"
    assert "given by the user on %hb at g.onnx:/fc1/Add" in str(propagation.explain("h"))
    with pytest.raises(hs.AnnotationError, match="did you mean hb"):
        hs.annotate(module, {"hbb": "{replicated}"})


def test_names_that_hlo_cannot_say() -> None:
    proto = model(
        [node("Relu", ["in put:0"], ["/a/b"]), node("Neg", ["/a/b"], ["12"])],
        [port("in put:0", [4])],
        [port("12", [4])],
    )
    module = hs.load(proto)
    assert module.paths["/a/b"].name == "_a_b"
    assert module.paths["12"].name == "_12"
    assert module.paths["in put:0"].opcode == "parameter"
    hs.annotate(module, {"/a/b": "{devices=[2]<=[2]}"})


def test_partitioned_runs_fill_in_weights() -> None:
    module = hs.annotate(hs.load(mlp()), {"x": "{devices=[2,1]<=[2]}"})
    (found,) = hs.partition(module).run(X)
    np.testing.assert_allclose(found, expected(mlp(), x=X)[0], rtol=1e-5, atol=1e-5)
    (compiled,) = hs.partition(module).compile()(X)
    np.testing.assert_allclose(compiled, found)


@pytest.mark.parametrize("rows", [2, 5])
def test_one_model_serves_several_sizes(rows: int) -> None:
    proto = mlp("batch")
    module = hs.load(proto, inputs={"x": jax.ShapeDtypeStruct((rows, 16), np.float32)})
    assert str(module.entry.root.shape) == f"f32[{rows},32]"
    np.testing.assert_allclose(run(proto, x=X[:rows])[0], expected(proto, x=X[:rows])[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dims", [["batch", 16], [-1, 16], [None, 16], None])
def test_open_sizes_are_asked_for(dims: Any) -> None:
    proto = model([node("Relu", ["x"], ["y"])], [port("x", dims)], [port("y", None)])
    with pytest.raises(hs.LoadError, match=r"input 'x' is float32.*its size is open.*inputs="):
        hs.load(proto)
    assert str(hs.load(proto, inputs={"x": X}).entry.root.shape) == "f32[8,16]"


def test_values_that_decide_shapes_become_constants() -> None:
    proto = model(
        [node("Add", ["n", "n"], ["n2"]), node("Reshape", ["x", "n2"], ["y"])],
        [port("x", [8, 16]), port("n", [1], INT64)],
        [port("y", None)],
    )
    with pytest.raises(
        hs.LoadError, match=r"a shape depends on the value of input 'n'; at node Reshape -> y; give its"
    ):
        hs.load(proto, inputs={"n": jax.ShapeDtypeStruct((1,), np.int64)})
    module = hs.load(proto, inputs={"n": np.array([64])})
    assert [p.name for p in module.entry.parameters] == ["x"]
    assert str(module.entry.root.shape) == "f32[128]"


def test_shape_subgraphs_leave_no_trace() -> None:
    proto = model(
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "zero"], ["rows"]),
            node("Unsqueeze", ["rows", "axes"], ["rows1"]),
            node("Concat", ["rows1", "rest"], ["wanted"], axis=0),
            node("Reshape", ["x", "wanted"], ["y"]),
        ],
        [port("x", ["batch", 16])],
        [port("y", None)],
        {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([4, -1])},
    )
    module = hs.load(proto, inputs={"x": X})
    assert [i.opcode for i in module.entry.instructions] == ["parameter", "reshape"]
    assert str(module.entry.root.shape) == "f32[8,4,4]"


def test_constants_that_are_weights_are_parameters() -> None:
    big = np.random.default_rng(0).standard_normal((16, 4), np.float32)
    proto = model(
        [
            node("Constant", [], ["w"], value=numpy_helper.from_array(big)),
            node("ConstantOfShape", ["dims"], ["b"], value=helper.make_tensor("v", FLOAT, [1], [0.5])),
            node("Cast", ["q"], ["qf"], to=FLOAT),
            node("Mul", ["qf", "scale"], ["w2"]),
            node("MatMul", ["x", "w"], ["h"]),
            node("Add", ["h", "b"], ["hb"]),
            node("MatMul", ["hb", "w2"], ["y"]),
        ],
        [port("x", [8, 16])],
        [port("y", None)],
        {"dims": np.array([4]), "q": np.arange(8, dtype=np.int8).reshape(4, 2), "scale": np.float32(0.1)},
    )
    module = hs.load(proto)
    assert list(module.weights) == ["q", "w", "b"]
    np.testing.assert_allclose(run(proto, x=X)[0], expected(proto, x=X)[0], rtol=1e-5, atol=1e-5)


def test_initializers_that_are_also_inputs_are_weights() -> None:
    proto = mlp()
    proto.ir_version = 3
    proto.graph.input.extend([port("w", [16, 32]), port("b", [32])])
    assert list(hs.load(proto).weights) == ["w", "b"]


def test_local_functions_are_inlined() -> None:
    body = [node("Mul", ["a", "a"], ["s"]), node("Add", ["s", "a"], ["o"])]
    function = helper.make_function("own", "Poly", ["a"], ["o"], body, [helper.make_opsetid("", 23)])
    graph = helper.make_graph([node("Poly", ["x"], ["y"], domain="own")], "g", [port("x", [4])], [port("y", [4])])
    imports = [helper.make_opsetid("", 23), helper.make_opsetid("own", 1)]
    proto = helper.make_model(graph, functions=[function], opset_imports=imports)
    np.testing.assert_allclose(run(proto, x=X[0, :4])[0], X[0, :4] ** 2 + X[0, :4], rtol=1e-6)


def test_external_data_is_read_from_beside_the_model(tmp_path: Path) -> None:
    onnx.save_model(mlp(), tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="m.bin")
    module = hs.load(tmp_path / "m.onnx")
    np.testing.assert_array_equal(module.weights["w"], hs.load(mlp()).weights["w"])
    with pytest.raises(hs.LoadError, match="lie in files beside the model; load the model by its path"):
        hs.load((tmp_path / "m.onnx").read_bytes())
    (tmp_path / "m.bin").unlink()
    with pytest.raises(hs.LoadError, match="external data"):
        hs.load(tmp_path / "m.onnx")


def test_external_data_does_not_leave_the_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(4096))
    (tmp_path / "in").mkdir()
    proto = mlp()
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = tensor.EXTERNAL
    tensor.external_data.add(key="location", value="../secret")
    (tmp_path / "in" / "m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(hs.LoadError, match="external data"):
        hs.load(tmp_path / "in" / "m.onnx")


def test_bytes_are_recognised() -> None:
    assert list(hs.load(mlp().SerializeToString()).weights) == ["w", "b"]


def test_old_opsets_are_converted() -> None:
    # Softmax of opset 11 is over all dims from axis on.
    proto = model([node("Softmax", ["x"], ["y"], axis=1)], [port("x", [2, 3, 4])], [port("y", [2, 3, 4])], opset=11)
    x = np.random.default_rng(0).standard_normal((2, 3, 4), np.float32)
    flat = np.exp(x.reshape(2, 12))
    want = (flat / flat.sum(1, keepdims=True)).reshape(2, 3, 4)
    np.testing.assert_allclose(run(proto, x=x)[0], want, rtol=1e-5)


@pytest.mark.parametrize("given", ["weight", "constant", "input", "branch"])
def test_a_slope_before_opset_7_is_per_channel(given: str) -> None:
    # Of as many numbers as the last dim has, with which they are aligned since then.
    x, slope = np.random.default_rng(0).standard_normal((2, 3, 4, 3), np.float32), np.array([2, 3, 4], np.float32)
    image = port("y", x.shape)
    nodes: list[Any] = [node("PRelu", ["x", "s"], ["y"]), node("Identity", ["s"], ["z"])]
    if given == "branch":
        branches: dict[str, Any] = {
            name: helper.make_graph([node("PRelu", ["x", "s"], ["y"])], name, [], [image])
            for name in ("then_branch", "else_branch")
        }
        nodes[0] = node("If", ["c"], ["y"], **branches)
    if given == "constant":
        nodes.insert(0, node("Constant", [], ["s"], value=numpy_helper.from_array(slope)))
    inputs: dict[str, Any] = {"x": x}
    inputs |= {"s": slope} if given == "input" else {"c": np.array(True)} if given == "branch" else {}
    ports = [port(name, a.shape, helper.np_dtype_to_tensor_dtype(a.dtype)) for name, a in inputs.items()]
    weights: dict[str, Any] = {"s": slope} if given in ("weight", "branch") else {}
    found = run(model(nodes, ports, [image, port("z", [3])], weights, opset=6), **inputs)
    np.testing.assert_array_equal(found[0], np.where(x >= 0, x, x * slope[:, None, None]))
    np.testing.assert_array_equal(found[1], slope)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (b"\x08\x0b\xff\xff", "not an ONNX model"),
        (b"\x08\x0b", "it has no graph"),
        (model([node("Nope", ["x"], ["y"])], [port("x", [2])], [port("y", [2])]), "Nope"),
        (
            model([node("Relu", ["x"], ["y"], extra=1)], [port("x", [2])], [port("y", [2])]),
            "attribute 'extra' is not handled; at node Relu -> y",
        ),
        (model([node("Relu", ["z"], ["y"])], [port("x", [2])], [port("y", [2])], opset=28), "no node gives 'z'"),
        (model([node("Relu", ["x"], ["z"])], [port("x", [2])], [port("y", [2])], opset=28), "no node gives 'y'"),
        (model([node("Relu", ["x"], ["y"])], [port("x", [2])], [port("y", [2])], opset=99), "opset 99 is newer"),
        (
            model([node("MatMul", ["x", "x"], ["y"])], [port("x", [2, 3])], [port("y", None)]),
            "MatMul",
        ),
        (model([node("Identity", ["x"], ["y"])], [port("x", [2], 8)], [port("y", [2], 8)]), "type STRING"),
        (model([node("Relu", ["x"], ["y"])], [onnx.ValueInfoProto(name="x")], [port("y", [2])]), "'x' .* of no type"),
    ],
)  # fmt: skip
def test_what_is_refused(made: Any, said: str) -> None:
    with pytest.raises(hs.LoadError, match=said):
        hs.load(made, format="onnx")


@pytest.mark.parametrize(
    ("operator", "given", "said"),
    [("TopK", [3], "the first 3 of a dim of 2"), ("TopK", [-1], "the first -1 of a dim of 2"),
     ("Gather", 2, "index 2 of a dim of 2"), ("Gather", [0, -3], "index -3 of a dim of 2")],
)  # fmt: skip
def test_elements_that_a_dim_has_not_are_refused(operator: str, given: Any, said: str) -> None:
    outputs = ["y", ""] if operator == "TopK" else ["y"]
    made = model([node(operator, ["x", "k"], outputs)], [port("x", [2])], [port("y", None)], {"k": np.asarray(given)})
    with pytest.raises(hs.LoadError, match=said):
        hs.load(made)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"z": X}, "no input 'z'; the inputs are x"),
        ({"xx": X}, "did you mean 'x'"),
        ({"x": X.astype(np.float64)}, "input 'x' is float32, and float64 was given; convert it"),
        ({"x": X[:, :3]}, r"input 'x' is \[8, 16\], and \[8, 3\] was given"),
        ({"x": X[0]}, r"input 'x' is \[8, 16\], and \[16\] was given"),
        ({"x": ["word"] * 1000}, r"input 'x' is float32, and \['word', 'word', .*\.\.\.\] was given"),
    ],
)
def test_inputs_that_do_not_fit(inputs: dict[str, Any], said: str) -> None:
    with pytest.raises(hs.LoadError, match=said):
        hs.load(mlp(), inputs=inputs)


def test_an_operator_that_nobody_wrote_is_refused_by_name() -> None:
    proto = model([node("Own", ["x"], ["y"], name="n", domain="mine")], [port("x", [2])], [port("y", [2])])
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    with pytest.raises(hs.LoadError, match=r"operator mine\.Own is not handled; at node mine\.Own 'n' -> y"):
        hs.load(proto)


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model([node("Nope", ["x"], ["y"])], [port("x", [2])], [port("y", [2])]).SerializeToString())
    with pytest.raises(hs.LoadError, match=r"m\.onnx"):
        hs.load(path)
