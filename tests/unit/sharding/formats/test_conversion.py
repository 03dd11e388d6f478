"""One sharding in all formats, what each cannot say, how a format is told, and equality across formats."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.cli.parser import build_parser
from hlosharding.sharding import FORMATS, HloSharding, MeshInfo

MESH = "x=2,y=4"
BACKWARDS = range(7, -1, -1)
ROWS_BY_Y: dict[str, Any] = {
    "hlo": HloSharding.parse("{mesh['x'=2,'y'=4], [{'y'}, {}]}"),
    "v1": "{devices=[4,1,2]0,4,1,5,2,6,3,7 last_tile_dim_replicate}",
    "v2": "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
    "v3": "{mesh['x'=2,'y'=4], [{'y'}, {}]}",
    "sdy": '#sdy.sharding<mesh<["x"=2, "y"=4]>, [{"y"}, {}]>',
    "shard": "shard.sharding @grid0 split_axes = [[1], []] : !shard.sharding",
    "mesh": "[[y]]",
    "dtensor": "(Replicate(), Shard(dim=0))",
    "spec": P("y", None),
    "jax": NamedSharding(AbstractMesh((2, 4), ("x", "y")), P("y", None)),
}
"""Rows split by y: device 4 * x + y holds row block y.  Written by hand."""


@pytest.mark.parametrize("source", ROWS_BY_Y)
@pytest.mark.parametrize("target", ROWS_BY_Y)
def test_one_sharding_in_all_formats(source: str, target: str) -> None:
    found = hs.convert(ROWS_BY_Y[source], to=target, mesh=MESH, ndim=2)
    assert found == ROWS_BY_Y[target]
    assert hs.same_sharding(found, ROWS_BY_Y[source], mesh=MESH)


@pytest.mark.parametrize("source", ROWS_BY_Y)
def test_onnx_lists_the_devices_of_each_row_block(source: str) -> None:
    spec = hs.convert(ROWS_BY_Y[source], to="onnx", mesh=MESH, ndim=2)
    groups = {entry.key: list(entry.value) for entry in spec.index_to_device_group_map}
    assert [groups[device] for device in spec.device] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert [(d.axis, [s.num_shards for s in d.simple_sharding]) for d in spec.sharded_dim] == [(0, [4])]
    assert hs.convert(spec, to="v2", ndim=2) == ROWS_BY_Y["v2"]
    assert hs.convert(str(spec), to="v2", ndim=2) == ROWS_BY_Y["v2"]


OPEN = '#sdy.sharding<mesh<["x"=2, "y"=4]>, [{"x", ?}, {?}]>'


@pytest.mark.parametrize(
    ("sharding", "to", "says"),
    [
        ("{{replicated}, {replicated}}", "sdy", "cannot say a tuple"),
        ("{{replicated}, {unknown}}", "v3", "cannot say an unknown sharding"),
        ("{{replicated shard_as 1}, {replicated}}", "v3", r"its shard group \(shard_as 1\)"),
        ("{{mesh['x'=2,'y'=4], [{'x', ?}]}}", "v1", "dims 0 are open behind their axes"),
        ("{unknown}", "mesh", "cannot say an unknown sharding"),
        (None, "spec", "cannot say an unknown sharding"),
        ("{replicated shard_as 1}", "sdy", r"its shard group \(shard_as 1\)"),
        ("{maximal device=3}", "dtensor", "all of it is on device 3"),
        ("{manual}", "sdy", "axes 'x', 'y' are manual"),
        ("{mesh['x'=2,'y'=4], [{'x'}], manual={'y'}}", "mesh", "axes 'y' are manual"),
        ("{devices=[2,4]<=[8] last_tile_dims={manual}}", "onnx", "devices are manual"),
        ("{devices=[2,4]<=[8] last_tile_dims={unreduced}}", "shard", "axes 'y' are unreduced"),
        ("{devices=[2,4]<=[8] last_tile_dims={unreduced}}", "onnx", "devices are unreduced"),
        ("{unreduced}", "onnx", "devices are unreduced"),
        (OPEN, "v2", "dims 1 are open"),
        (OPEN, "spec", "dims 0 are open behind their axes"),
        ('<mesh<["x"=2, "y"=4]>, [{"x"}p1, {}]>', "hlo", "priorities: p1 of dim 0"),
        ('<mesh<["x"=2, "y"=4]>, [{}, {?}], replicated={"y"}>', "spec", "axes 'y' must stay replicated"),
        ("{mesh['y'=4], [{'y':(1)2}, {}]}", "spec", r"parts of axes: 'y':\(1\)2"),
        ("{mesh['x'=2,'y'=4], [{'y':(2)2}, {}]}", "mesh", r"parts of axes: 'y':\(2\)2"),
        ("{mesh['x'=2], device_ids=(1,0), [{'x'}, {}]}", "mesh", "the order of devices: 1, 0"),
        ("[[x]] partial=max[y]", "hlo", "partial values are combined by max"),
        ("[[x]] partial=product[y]", "sdy", "combined by product; it knows sum, max, min"),
        ("(Partial(avg), Replicate())", "mesh", "combined by avg"),
        ("{devices=[2,2]0,1,3,2}", "v2", "order of devices 0,1,3,2"),
        ("{devices=[2,2]0,1,3,2}", "sdy", r"over 4 devices, .* has 8"),
        ("{devices=[8]0,1,3,2,4,5,6,7}", "sdy", "its devices come in another order"),
        ("{replicated}", "sdy", "does not say the rank"),
        ("{devices=[1]<=[1]}", "v1", "V1 has no tiling over one device"),
        ("{mesh['y'=4], [{'y':(1)2}, {'y':(2)2}]}", "dtensor", "parts of axes split dim"),
    ],
)
def test_what_a_format_cannot_say_is_named(sharding: Any, to: str, says: str) -> None:
    own = isinstance(sharding, str) and "mesh" in sharding
    with pytest.raises(hs.ShardingError, match=says):
        hs.convert(sharding, to=to, mesh=None if own else MESH)


def test_replicated_axes_say_nothing_where_all_dims_are_closed() -> None:
    assert hs.convert('<mesh<["x"=2, "y"=4]>, [{"x"}], replicated={"y"}>', to="spec") == P("x")


@pytest.mark.parametrize(
    ("mesh", "expected"),
    [
        ("x=2,y=4", MeshInfo(("x", "y"), (2, 4))),
        ("2x4", MeshInfo(("0", "1"), (2, 4))),
        ({"x": 2, "y": 4}, MeshInfo(("x", "y"), (2, 4))),
        ((2, 4), MeshInfo(("0", "1"), (2, 4))),
        (AbstractMesh((2, 4), ("x", "y")), MeshInfo(("x", "y"), (2, 4))),
        (MeshInfo(("x", "y"), (2, 4)), MeshInfo(("x", "y"), (2, 4))),
        ('sdy.mesh @m = <["x"=2, "y"=4]>', MeshInfo(("x", "y"), (2, 4))),
        ('#sdy.mesh<["x"=2, "y"=4], device_ids=[7, 6, 5, 4, 3, 2, 1, 0]>', MeshInfo(("x", "y"), (2, 4), BACKWARDS)),
        ("mesh.cluster @m(rank = 2, dim_sizes = [2, 4])", MeshInfo(("0", "1"), (2, 4))),
        ("shard.grid @g(shape = 2x4)", MeshInfo(("0", "1"), (2, 4))),
        (hs.Cluster.of("x=2,y=4"), MeshInfo(("x", "y"), (2, 4))),
    ],
)  # fmt: skip
def test_a_mesh_in_any_spelling(mesh: Any, expected: MeshInfo) -> None:
    found = hs.convert([[0], [1]], to="hlo", mesh=mesh)
    assert found.named_form.mesh == expected
    assert [str(dim) for dim in found.named_form.dims] == [f"{{'{name}'}}" for name in expected.names]


@pytest.mark.parametrize(
    ("mesh", "says"),
    [
        ("x=2,y=?", "size of axis y"),
        ("no mesh", "no cluster"),
        ("1000000x1000000", "1000000000000 devices"),
        ('sdy.mesh @m = <[], device_ids=[3]>', "one device and no axes"),
        ('sdy.mesh @m = <["x"=2]> more', "text after"),
        (7, "no mesh"),
    ],
)  # fmt: skip
def test_no_mesh_is_an_error(mesh: Any, says: str) -> None:
    with pytest.raises(hs.ShardingError, match=says):
        hs.convert("[[0]]", to="hlo", mesh=mesh)


def test_a_named_sharding_is_over_the_callers_own_mesh() -> None:
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))
    found = hs.convert("{devices=[4,2]<=[2,4]T(1,0)}", to="jax", mesh=mesh)
    assert found == NamedSharding(mesh, P("y", "x"))
    assert found.mesh is mesh
    assert hs.convert(found, to="dtensor") == "(Shard(dim=1), Shard(dim=0))"
    assert hs.convert(str(found), to="dtensor") == "(Shard(dim=1), Shard(dim=0))"


def test_the_source_can_be_named_where_its_text_does_not_tell() -> None:
    with pytest.raises(hs.ShardingError, match="is in no format"):
        hs.convert("(x, None)", to="mesh", mesh=MESH)
    assert hs.convert("(x, None)", to="mesh", mesh=MESH, source="spec") == "[[x]]"


@pytest.mark.parametrize("sharding", [7, b"{replicated}", "", "replicated", object(), {"x": 2}])
def test_what_is_no_sharding_is_refused(sharding: Any) -> None:
    with pytest.raises(hs.ShardingError, match="in no format of shardings; known are hlo"):
        hs.convert(sharding, to="hlo", mesh=MESH)


@pytest.mark.parametrize(("sharding", "to"), [("{replicated}", "text"), ("{replicated}", "")])
def test_no_format_is_an_error(sharding: str, to: str) -> None:
    with pytest.raises(hs.ShardingError, match=r"no format .*; there are hlo, v1"):
        hs.convert(sharding, to=to)


@pytest.mark.parametrize(
    ("sharding", "to"),
    [("P(x, None, None)", "hlo"), ("[[x], [], [y]]", "hlo"), ("(Shard(2), Replicate())", "hlo"),
     ("{devices=[2,4]<=[8]}", "hlo"), ('<@m, [{"x"}, {}]>', "hlo")],
)  # fmt: skip
def test_the_rank_must_be_the_arrays(sharding: str, to: str) -> None:
    with pytest.raises(hs.ShardingError, match="dim"):
        hs.convert(sharding, to=to, mesh=MESH, ndim=1)


@pytest.mark.parametrize("ndim", [-1, 1.5, "2"])
def test_no_rank_is_an_error(ndim: Any) -> None:
    with pytest.raises(hs.ShardingError, match="is no number of dims"):
        hs.convert("{replicated}", to="hlo", ndim=ndim)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("P(x)", "{devices=[2,1,4]<=[8] last_tile_dim_replicate}", True),
        ("P(x)", "{devices=[2,4]<=[8] last_tile_dim_replicate}", True),
        ("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", "{devices=[2,4]<=[8] last_tile_dim_replicate}", False),
        ("P(x)", "P(y)", False),
        ("P((x, y))", "P((y, x))", False),
        ("[[x]] partial=sum[y]", "(Shard(0), Partial())", True),
        ("[[x]] partial=max[y]", "(Shard(0), Partial())", False),
        ("[[x]]", "[[x]] partial=sum[y]", False),
        ('<@m, [{"x", ?}p3, {?}], replicated={"y"}>', "P(x, None)", True),
        ("{replicated}", "P()", True),
        ("{maximal device=0}", "{replicated}", False),
        ("{devices=[2,4]<=[8]}", "{devices=[2,4]0,1,2,3,4,5,6,7}", True),
    ],
)
def test_the_same_sharding(a: str, b: str, same: bool) -> None:
    assert hs.same_sharding(a, b, mesh=MESH) is same
    assert hs.same_sharding(b, a, mesh=MESH) is same


def test_a_mesh_names_what_came_over_another() -> None:
    found = hs.convert(OPEN, to="sdy", mesh="a=4,b=2")
    assert found == '#sdy.sharding<mesh<["a"=4, "b"=2]>, [{"a":(1)2, ?}, {?}]>'
    with pytest.raises(hs.ShardingError, match="has no axes for the replicated ones, 'y'"):
        hs.convert('<mesh<["x"=2, "y"=4]>, [{"x"}, {?}], replicated={"y"}>', to="sdy", mesh="a=4,b=2")


def test_the_command_knows_the_formats() -> None:
    command = build_parser().parse_args(["convert", "--sharding", "{replicated}", "--to", "hlo"])
    assert command.to == "hlo"
    for name in FORMATS:
        assert build_parser().parse_args(["convert", "--sharding", "x", "--to", name, "--from", name]).source == name
