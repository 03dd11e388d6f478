"""External data: every tensor's, from the model's folder only; expected values are what the test wrote there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import hlosharding as hs
from tests.support.onnx_models import model, node, port
from tests.support.program_check import one_device

OURS, THEIRS = np.full(4, 1, np.float32), np.full(4, 666, np.float32)
LARGE = np.arange(40_000, dtype=np.float32)


def outside(name: str, like: np.ndarray = OURS, more: dict[str, str] | None = None) -> TensorProto:
    """A tensor whose values lie in a file of its name."""
    tensor = numpy_helper.from_array(np.zeros_like(like), name)
    tensor.ClearField("raw_data")
    tensor.data_location = tensor.EXTERNAL
    for key, value in ({"location": f"{name}.bin"} | (more or {})).items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def adds(name: str) -> Any:
    return node("Add", ["x", name], ["y"])


def branches(made: Any) -> Any:
    """Both branches of an If are the same graph."""
    graph = helper.make_graph([adds("w")], "branch", [], [port("y", None)], [made])
    return node("If", ["c"], ["y"], then_branch=graph, else_branch=graph)


def with_tensor(place: str) -> Any:
    """x + w, where w stands in a file, and so does where it stands in the model."""
    ports = [port("x", [4])], [port("y", [4])]
    constant = node("Constant", [], ["w"], value=outside("w"))
    if place == "initializer":
        proto = model([adds("w")], *ports)
        proto.graph.initializer.append(outside("w"))
        return proto
    if place == "constant":
        return model([constant, adds("w")], *ports)
    if place == "subgraph":
        return model([branches(outside("w"))], [*ports[0], port("c", [], TensorProto.BOOL)], ports[1])
    if place == "sparse":
        indices = outside("i", np.arange(4))
        sparse = helper.make_sparse_tensor(outside("w"), indices, [4])
        return model([node("Constant", [], ["w"], sparse_value=sparse), adds("w")], *ports, opset=28)
    proto = model([node("f", ["x"], ["y"], domain="my")], *ports)
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("my", 1)]
    proto.functions.append(helper.make_function("my", "f", ["x"], ["y"], [constant, adds("w")], opsets))
    proto.opset_import.add(domain="my", version=1)
    return proto


PLACES = ("initializer", "constant", "subgraph", "sparse", "function")


def written(folder: Path, proto: Any, **files: np.ndarray) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    for name, values in files.items():
        (folder / f"{name}.bin").write_bytes(values.tobytes())
    return folder / "m.onnx"


def result(path: Path) -> np.ndarray:
    module = hs.load(path)
    given = {"x": np.zeros(4, np.float32), "c": np.array(True)} | dict(module.weights)
    [found] = one_device(module, [given[p.op_name] for p in module.entry.parameters])
    return found


@pytest.mark.parametrize("place", PLACES)
def test_the_current_folder_is_not_read(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "home", with_tensor(place), w=OURS, i=np.arange(4))
    written(tmp_path / "here", with_tensor(place), w=THEIRS, i=np.arange(4))
    monkeypatch.chdir(tmp_path / "here")
    np.testing.assert_array_equal(result(path), OURS)


@pytest.mark.parametrize("place", PLACES)
def test_bytes_have_no_folder(place: str) -> None:
    with pytest.raises(hs.LoadError, match="lie in files beside the model; load the model by its path"):
        hs.load(with_tensor(place).SerializeToString())


@pytest.mark.parametrize(
    "location", ["../w.bin", "/etc/hostname", "sub/../../w.bin", "", ".", "link.bin", "folder", "w\0"]
)
def test_nothing_outside_of_the_folder_is_read(location: str, tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(THEIRS.tobytes())
    proto = model([node("Constant", [], ["w"], value=outside("w", more={"location": location})), adds("w")], *ports())
    path = written(tmp_path / "home", proto)
    (tmp_path / "home" / "link.bin").symlink_to(tmp_path / "w.bin")
    (tmp_path / "home" / "folder").mkdir()
    with pytest.raises(hs.LoadError, match=r"external data.*tensor 'w'"):
        hs.load(path)


def ports() -> tuple[list[Any], list[Any]]:
    return [port("x", [4])], [port("y", [4])]


def test_a_link_to_a_model_is_followed_and_so_are_those_beside_it(tmp_path: Path) -> None:
    """So caches of downloads are built: names of one version link to files of all."""
    real = written(tmp_path / "blobs", with_tensor("constant"), w=OURS)
    (tmp_path / "names").mkdir()
    for name in ("m.onnx", "w.bin"):
        (tmp_path / "names" / name).symlink_to(real.with_name(name))
    np.testing.assert_array_equal(result(tmp_path / "names" / "m.onnx"), OURS)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"offset": "-4"}, "offset '-4' is no number of bytes"),
        ({"offset": "0x4"}, "offset '0x4' is no number"),
        ({"length": "9" * 30}, "is no number of bytes"),
        ({"offset": "8", "length": "16"}, "bytes 8 to 24 of 'w.bin', which has 16"),
        ({"offset": "99"}, "bytes 99 to 99 of 'w.bin', which has 16"),
        ({"length": "8"}, "tensor 'w' cannot be read"),
    ],
)
def test_what_is_read_is_in_the_file(more: dict[str, str], said: str, tmp_path: Path) -> None:
    proto = model([node("Constant", [], ["w"], value=outside("w", more=more)), adds("w")], *ports())
    with pytest.raises(hs.LoadError, match=said):
        hs.load(written(tmp_path / "home", proto, w=OURS))


def test_a_file_that_many_tensors_share_is_free_once(tmp_path: Path) -> None:
    """2,000 tensors of one file of a megabyte are two gigabytes."""
    zeros = np.zeros(1 << 18, np.float32)
    proto = model([node("Identity", ["x"], ["y"])], *ports())
    for number in range(2000):
        proto.graph.initializer.append(outside(f"w{number}", zeros, {"location": "w.bin"}))
    with pytest.raises(
        hs.LoadError, match=r"2,096,103,424 bytes are to be made while the model is read, and 1,073,741,824 are left"
    ):
        hs.load(written(tmp_path / "home", proto, w=zeros))


@pytest.mark.parametrize("opset", [17, 28])
def test_large_tensors_survive_the_conversion_wherever_they_are(opset: int) -> None:
    values = numpy_helper.from_array(LARGE, "w")
    nodes = [
        node("Constant", [], ["v"], value=values),
        node("Add", ["x", "v"], ["h"]),
        node("If", ["c"], ["y"], then_branch=_shifted(values), else_branch=_shifted(values)),
    ]
    proto = model(nodes, [port("x", LARGE.shape), port("c", [], TensorProto.BOOL)], [port("y", None)], opset=opset)
    module = hs.load(proto)
    assert [w.shape for w in module.weights.values()] == [LARGE.shape] * 3
    assert all(np.array_equal(w, LARGE) for w in module.weights.values())


def _shifted(values: Any) -> Any:
    return helper.make_graph([node("Add", ["h", "w"], ["z"])], "branch", [], [port("z", None)], [values])
