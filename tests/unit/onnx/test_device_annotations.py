"""ONNX's own multi-device annotations: every form is read, contradictions are refused, all of it runs and goes back.

Expected shardings are worked out by hand from the proposal's loop: shard n of the listed axes, the first outermost, is
on the n-th device or group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import hlosharding as hs
from tests.support.onnx_models import mlp, model, node, port, run

X = np.random.default_rng(0).standard_normal((8, 16), np.float32)
Axes = Sequence[tuple[int, int]]


def annotated(
    devices: Sequence[int], axes: Axes, groups: dict[int, list[int]] | None = None, *, of: int = 4, **more: Any
) -> Any:
    """A Relu on [8, 16] whose output is laid out so."""
    made = node("Relu", ["x"], ["y"], name="relu")
    entry = made.device_configurations.add(configuration_id="c", **more)
    _add(entry, "y", devices, axes, groups)
    proto = model([made], [port("x", [8, 16])], [port("y", [8, 16])])
    proto.configuration.add(name="c", num_devices=of)
    return proto


def _add(
    entry: Any, tensor: str, devices: Sequence[int], axes: Axes, groups: dict[int, list[int]] | None = None
) -> None:
    spec = entry.sharding_spec.add(tensor_name=tensor, device=devices)
    for key, value in (groups or {}).items():
        spec.index_to_device_group_map.add(key=key, value=value)
    for axis, shards in axes:
        spec.sharded_dim.add(axis=axis).simple_sharding.add(num_shards=shards)


@pytest.mark.parametrize(
    ("devices", "axes", "groups", "of", "said"),
    [
        ([0, 1], [(0, 2)], None, 2, "{devices=[2,1]<=[2]}"),
        ([1, 0], [(1, 2)], None, 2, "{devices=[1,2]1,0}"),
        ([0, 1, 2, 3], [(-1, 4)], None, 4, "{devices=[1,4]<=[4]}"),
        ([0, 1, 2, 3], [(1, 2), (0, 2)], None, 4, "{devices=[2,2]0,2,1,3}"),
        (range(8), [(-1, 2), (0, 4)], None, 8, "{devices=[4,2]0,4,1,5,2,6,3,7}"),
        ([-1, -2], [(0, 2)], {-1: [0, 1], -2: [2, 3]}, 4, "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"),
        ([-1, -2], [(1, 2)], {-1: [0, 2], -2: [1, 3]}, 4, "{devices=[1,2,2]0,2,1,3 last_tile_dim_replicate}"),
        ([-1], [], {-1: [0, 1, 2, 3]}, 4, "{replicated}"),
        ([2], [], None, 4, "{maximal device=2}"),
    ],
)
def test_every_form(devices: Any, axes: Axes, groups: Any, of: int, said: str) -> None:
    found = hs.read_onnx_shardings(annotated(devices, axes, groups, of=of))
    assert found is not None
    assert (found.configuration, found.num_devices) == ("c", of)
    (use,) = found.uses
    assert (use.node, use.tensor, use.is_output) == ("relu", "y", True)
    assert use.sharding == hs.HloSharding.parse(said)


def broken(change: str) -> Any:
    proto = annotated([0, 1, 2, 3], [(0, 4)])
    entry = proto.graph.node[0].device_configurations[0]
    spec = entry.sharding_spec[0]
    match change:
        case "configuration":
            entry.configuration_id = "d"
        case "device":
            spec.device[0] = 99
        case "axis":
            spec.sharded_dim[0].axis = 7
        case "far axis":
            spec.sharded_dim[0].axis = 1 << 62
        case "tensor":
            spec.tensor_name = "z"
        case "shards":
            spec.sharded_dim[0].simple_sharding[0].ClearField("num_shards")
        case "version":
            proto.ir_version = 10
        case "names":
            proto.configuration[0].device.extend(["a", "b"])
        case "twice":
            _add(entry, "y", [0, 1, 2, 3], [(1, 4)])
        case "missing":
            del spec.device[3:]
        case "group":
            spec.device[0] = -5
        case "stage":
            entry.pipeline_stage = -1
        case "two":
            proto.configuration.add(name="c", num_devices=4)
        case _:
            proto.graph.node[0].device_configurations.add(configuration_id="c")
    return proto


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("configuration", "configuration 'd' is not there; at relu; the model has configurations c"),
        ("device", "device 99 is none of the 4; at relu, tensor 'y'"),
        ("axis", "7"),
        ("far axis", "the spec names dim 4611686018427387904 of an array of 2 dims; at relu, tensor 'y'"),
        ("tensor", "the node neither reads nor gives it; at relu, tensor 'z'"),
        ("shards", "num_shards"),
        ("version", "says IR version 10"),
        ("names", "names 2 of 4 devices"),
        ("twice", "annotated twice"),
        ("missing", "3 devices or groups for 4 shards"),
        ("group", "device -5 is none of the 4"),
        ("stage", "pipeline stage -1"),
        ("two", "two configurations 'c'"),
        ("again", "two annotations for configuration 'c'"),
    ],
)
def test_contradictions_that_the_checker_accepts(change: str, said: str) -> None:
    with pytest.raises(hs.AnnotationError, match=said):
        hs.load(broken(change))


def test_strided_pieces_have_no_sharding() -> None:
    proto = annotated([0, 1, 2, 3], [])
    parts = proto.graph.node[0].device_configurations[0].sharding_spec[0].sharded_dim.add(axis=0).simple_sharding
    parts.add(dim_value=4, num_shards=2)
    parts.add(dim_value=2, num_shards=2)
    with pytest.raises(hs.AnnotationError, match="strided"):
        hs.load(proto)


def test_one_of_several_configurations_is_chosen() -> None:
    proto = annotated([0, 1, 2, 3], [(0, 4)])
    proto.configuration.add(name="other", num_devices=2)
    with pytest.raises(hs.AnnotationError, match="the model has configurations c, other; choose one"):
        hs.load(proto)
    assert hs.load(proto, configuration="c").num_partitions == 4
    assert hs.load(proto, configuration="other").num_partitions == 2
    with pytest.raises(hs.AnnotationError, match="no configuration 'x'"):
        hs.load(proto, configuration="x")


def two_uses() -> Any:
    """h is given split by rows, and read split by columns; w is annotated where it is read."""
    proto = mlp()
    first, second, third = proto.graph.node
    entry = first.device_configurations.add(configuration_id="c", pipeline_stage=0)
    _add(entry, "h", [0, 1, 2, 3], [(0, 4)])
    _add(entry, "w", [-1], [], {-1: [0, 1, 2, 3]})
    _add(second.device_configurations.add(configuration_id="c", pipeline_stage=1), "h", [0, 1, 2, 3], [(1, 4)])
    _add(third.device_configurations.add(configuration_id="c"), "y", [0, 1, 2, 3], [(0, 2), (1, 2)])
    proto.configuration.add(name="c", num_devices=4)
    return proto


def test_annotations_belong_to_uses_and_are_executed() -> None:
    proto = two_uses()
    module = hs.load(proto)
    propagation = hs.propagate(module)
    assert propagation.shardings["h"] == hs.HloSharding.parse("{devices=[4,1]<=[4]}")
    assert propagation.shardings["hb"] == hs.HloSharding.parse("{devices=[1,4]<=[4]}")
    program = hs.partition(propagation)
    assert program.num_partitions == 4
    (found,) = program.run(X)
    np.testing.assert_allclose(found, run(mlp(), x=X)[0], rtol=1e-5, atol=1e-5)
    found_shardings = hs.read_onnx_shardings(proto)
    assert found_shardings is not None
    assert dict(found_shardings.stages) == {"/fc1/MatMul": 0, "/fc1/Add": 1}


def test_annotations_survive_an_old_opset() -> None:
    proto = two_uses()
    proto.opset_import[0].version = 13
    assert hs.propagate(hs.load(proto)).shardings["h"] == hs.HloSharding.parse("{devices=[4,1]<=[4]}")


def test_a_plan_found_here_goes_into_the_model() -> None:
    plan = {
        "x": "{devices=[2,1,2]<=[4] last_tile_dim_replicate}",
        "w": "{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}",
    }
    propagation = hs.propagate(hs.annotate(hs.load(mlp()), plan))
    written = hs.write_onnx_shardings(mlp(), propagation, configuration="plan", devices=["a", "b", "c", "d"])
    onnx.checker.check_model(written, full_check=True)
    found = hs.read_onnx_shardings(written.SerializeToString())
    assert found is not None
    assert (found.configuration, found.num_devices, found.devices) == ("plan", 4, ("a", "b", "c", "d"))
    again = hs.propagate(hs.load(written))
    for tensor in ("x", "w", "b", "h", "hb", "y"):
        assert again.shardings[tensor] == propagation.shardings[tensor], tensor
    (result,) = hs.partition(again).run(X)
    np.testing.assert_allclose(result, run(mlp(), x=X)[0], rtol=1e-5, atol=1e-5)


def test_writing_again_replaces_one_configuration_alone() -> None:
    once = hs.write_onnx_shardings(mlp(), {"h": "{devices=[2,1]<=[2]}"}, configuration="a")
    twice = hs.write_onnx_shardings(once, {"h": "{devices=[1,2]<=[2]}"}, configuration="b")
    last = hs.write_onnx_shardings(twice, {"h": "{devices=[1,4]<=[4]}"}, configuration="a", stages={"/fc1/Add": 1})
    assert [str(u.sharding) for u in hs.read_onnx_shardings(last, "b").uses] == ["{devices=[1,2]<=[2]}"]
    found = hs.read_onnx_shardings(last, "a")
    assert [str(u.sharding) for u in found.uses] == ["{devices=[1,4]<=[4]}"]
    assert dict(found.stages) == {"/fc1/Add": 1}


@pytest.mark.parametrize(
    ("shardings", "said"),
    [
        ({"zz": "{replicated}"}, "no node reads or gives a tensor 'zz'"),
        ({"h": "{manual}"}, "tensor 'h'"),
        ({"h": "{unreduced}"}, "tensor 'h'"),
    ],
)
def test_what_cannot_be_written(shardings: dict[str, str], said: str) -> None:
    with pytest.raises(hs.AnnotationError, match=said):
        hs.write_onnx_shardings(mlp(), shardings, num_devices=4)


def test_what_the_version_converter_writes_goes_by_the_names_of_the_file() -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Softmax", ["a"], ["b"], name="soft"), node("Softmax", ["b"], ["y"])]
    proto = model(nodes, [port("x", [8, 2, 8])], [port("y", None)], opset=11)  # of the last two dims in one
    module = hs.load(proto)
    assert set(module.tensors) == {"a", "b", "y"}
    places = {inst.frames[0].function for inst in module.entry.instructions if inst.frames}
    assert places == {"Relu(a)", "soft", "Softmax(y)"}
    propagation = hs.propagate(hs.annotate(module, {"x": "{devices=[4,1,1]<=[4]}"}))
    written = hs.write_onnx_shardings(proto, propagation)
    assert hs.propagate(hs.load(written)).shardings["y"] == hs.HloSharding.parse("{devices=[4,1,1]<=[4]}")


def test_graphs_inside_a_node_are_in_its_stage() -> None:
    branches = {
        name: helper.make_graph([node("Tanh", ["x"], [name])], name, [], [port(name, None)]) for name in ("yes", "no")
    }
    inner = node("If", ["c"], ["y"], name="if", then_branch=branches["yes"], else_branch=branches["no"])
    proto = model([inner], [port("x", [8])], [port("y", None)], {"c": np.array(True)})
    written = hs.write_onnx_shardings(proto, {}, num_devices=1, stages={"if": 1, "Tanh(no)": 2})
    found = hs.read_onnx_shardings(written)
    assert found is not None
    assert found.stages == {"if": 1, "Tanh(yes)": 1, "Tanh(no)": 2}


def test_stages_have_devices_of_their_own() -> None:
    """Two of four each; what a file says of devices 2 and 3 a program says of the second stage's 0 and 1."""
    proto = mlp()
    first, second, third = proto.graph.node
    _add(first.device_configurations.add(configuration_id="c", pipeline_stage=0), "h", [0, 1], [(1, 2)])
    _add(second.device_configurations.add(configuration_id="c", pipeline_stage=1), "hb", [3, 2], [(0, 2)])
    _add(third.device_configurations.add(configuration_id="c", pipeline_stage=1), "y", [1], [], {1: [2, 3]})
    proto.configuration.add(name="c", num_devices=4)
    found = hs.read_onnx_shardings(proto)
    assert found is not None
    assert (found.num_devices, found.devices_per_stage) == (4, 2)
    said = ["{devices=[1,2]<=[2]}", "{devices=[2,1]1,0}", "{replicated}"]
    assert [str(use.sharding) for use in found.uses] == said
    module = hs.load(proto)
    assert module.num_partitions == 2
    schedule = hs.pipelined(module, batch=["x"], microbatches=2)
    assert schedule.devices == (0, 1, 2, 3)
    (made,) = schedule.run_reference(X, *module.weights.values())
    np.testing.assert_allclose(made, run(mlp(), x=X)[0], rtol=1e-5, atol=1e-5)
    shardings = {use.tensor: use.sharding for use in found.uses}
    again = hs.write_onnx_shardings(mlp(), shardings, configuration="c", stages=schedule.stages)
    assert hs.read_onnx_shardings(again) == found
    onnx.checker.check_model(again)


@pytest.mark.parametrize("devices", [[1, 2], [2]])
def test_stages_share_all_devices_or_none(devices: list[int]) -> None:
    proto = mlp()
    first, second, _ = proto.graph.node
    _add(first.device_configurations.add(configuration_id="c", pipeline_stage=0), "h", [0, 1], [(1, 2)])
    entry = second.device_configurations.add(configuration_id="c", pipeline_stage=1)
    _add(entry, "hb", devices, [(0, len(devices))])
    proto.configuration.add(name="c", num_devices=4)
    with pytest.raises(hs.AnnotationError, match="stages share devices, or have unlike numbers: stage 0 is on"):
        hs.read_onnx_shardings(proto)


def test_one_name_has_one_stage() -> None:
    proto = mlp()
    for number, each in enumerate(proto.graph.node[:2]):
        each.name = "same"
        each.device_configurations.add(configuration_id="c", pipeline_stage=number)
    proto.configuration.add(name="c", num_devices=1)
    with pytest.raises(hs.AnnotationError, match="two nodes of that name are in pipeline stages 0 and 1"):
        hs.read_onnx_shardings(proto)


def test_a_call_of_a_function_has_no_annotations() -> None:
    body = [node("Relu", ["a"], ["b"])]
    function = helper.make_function("own", "F", ["a"], ["b"], body, [helper.make_opsetid("", 23)])
    call = node("F", ["x"], ["y"], name="call", domain="own")
    call.device_configurations.add(configuration_id="c", pipeline_stage=1)
    proto = model([call], [port("x", [8])], [port("y", [8])], functions=[function])
    proto.opset_import.append(helper.make_opsetid("own", 1))
    proto.configuration.add(name="c", num_devices=1)
    with pytest.raises(hs.AnnotationError, match="a call of a local function has device annotations; at call"):
        hs.load(proto)


def test_stages_of_nodes_that_are_not_there() -> None:
    with pytest.raises(hs.AnnotationError, match="no node '/fc9'"):
        hs.write_onnx_shardings(mlp(), {}, stages={"/fc9": 1})


def test_models_without_annotations_have_none() -> None:
    assert hs.read_onnx_shardings(mlp()) is None


def test_a_plan_of_a_model_is_no_plan_of_a_function() -> None:
    with pytest.raises(hs.PlanError, match="write_onnx_shardings"):
        hs.export_plan(hs.annotate(hs.load(mlp()), {"w": "{devices=[1,4]<=[4]}"}))
