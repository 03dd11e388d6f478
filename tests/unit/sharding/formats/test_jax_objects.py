"""PartitionSpecs and NamedShardings, whose tiles are those of JAX's own index maps."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))


@pytest.mark.parametrize("spec", [P("x"), P(None, "y"), P("y", "x"), P(("y", "x"), None), P(None, ("x", "y")), P()])
@pytest.mark.parametrize("form", ["v1", "sdy", "dtensor", "mesh", "onnx"])
def test_devices_hold_what_jax_says(mesh: Mesh, spec: Any, form: str) -> None:
    sharding = NamedSharding(mesh, spec)
    found = hs.convert(hs.convert(sharding, to=form, ndim=2), to="hlo", mesh=mesh, ndim=2)
    for device, index in sharding.devices_indices_map((8, 16)).items():
        starts = tuple(part.start or 0 for part in index)
        offset = (0, 0) if found.is_replicated() else found.tile_offset((8, 16), device.id)
        assert offset == starts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P(x, None, (y, z))", ("x", None, ("y", "z"))),
        ("PartitionSpec('x', None)", ("x", None)),
        ("P()", ()),
        ("P('x',)", ("x",)),
    ],
)
def test_texts_of_specs(text: str, expected: Any) -> None:
    found = hs.convert(text, to="spec", mesh="x=2,y=4,z=2")
    assert found == P(*expected)


def test_open_and_unreduced_dims() -> None:
    found = hs.convert("P(UNCONSTRAINED, x, unreduced={y})", to="sdy", mesh="x=2,y=4")
    assert found == '#sdy.sharding<mesh<["x"=2, "y"=4]>, [{?}, {"x"}], unreduced={"y"}>'
    sharding = hs.convert(found, to="jax")
    types = (AxisType.Auto, AxisType.Explicit)
    assert sharding == NamedSharding(
        AbstractMesh((2, 4), ("x", "y"), axis_types=types), P(P.UNCONSTRAINED, "x", unreduced={"y"})
    )
    assert hs.convert(str(hs.convert("P(x)", to="jax", mesh="x=2,y=4")), to="mesh") == "[[x]]"


def test_jax_may_refuse_a_mesh(mesh: Mesh) -> None:
    with pytest.raises(hs.ShardingError, match="jax refuses"):
        hs.convert("[[x]] partial=sum[y]", to="jax", mesh=mesh)


def test_other_shardings_of_jax() -> None:
    assert hs.convert(SingleDeviceSharding(jax.devices()[0]), to="v2") == "{replicated}"
    with pytest.raises(hs.ShardingError, match="gradients"):
        hs.convert("P(x, reduced={y})", to="hlo", mesh="x=2,y=4")
    with pytest.raises(hs.ShardingError, match="manual axes"):
        hs.convert("NamedSharding(mesh=Mesh('x': 2, axis_types=(Manual,)), spec=P())", to="hlo")


@pytest.mark.parametrize(
    "text",
    [
        "P(", "P(x", "P(x))", "P(1)", "P([x])", "P(x.y)", "P(x=y)", "P(*x)", "P(x)(y)", "P((x, (y, z)))",
        "P(x, unreduced=y)",
        "P(" + "(" * 200 + ")" * 200 + ")", "P(__import__('os'))", "PartitionSpec(f'{x}')", "P(lambda: 0)",
        "NamedSharding(mesh=Mesh('x': 2))", "NamedSharding(mesh=Mesh(x: 2), spec=P())", "NamedSharding(",
    ],
)  # fmt: skip
def test_bad_texts(text: str) -> None:
    with pytest.raises(hs.ShardingParseError, match=r"no PartitionSpec|no NamedSharding"):
        hs.convert(text, to="hlo", mesh="x=2,y=4")
