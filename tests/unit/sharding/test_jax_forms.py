"""jax Mesh, PartitionSpec and NamedSharding, both ways.  What a NamedSharding means is asked of jax's own lowering."""

from __future__ import annotations

import itertools
import re

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from hlosharding.errors import ShardingError
from hlosharding.sharding import HloSharding, MeshInfo

P = PartitionSpec
parse = HloSharding.parse


def mesh_of(shape, names, order=1):
    devices = np.array(jax.devices("cpu")[:8])[::order].reshape(shape)
    return Mesh(devices, names)


MESHES = {
    "two axes": lambda: mesh_of((2, 4), ("a", "b")),
    "three axes": lambda: mesh_of((2, 2, 2), ("a", "b", "c")),
    "reversed": lambda: mesh_of((4, 2), ("x", "y"), -1),
    "size one": lambda: mesh_of((1, 8), ("a", "b")),
}


def specs(names, ndim):
    entries = [None, *names, *itertools.permutations(names, 2)]
    for spec in itertools.product(entries, repeat=ndim):
        used = [name for entry in spec if entry for name in ((entry,) if isinstance(entry, str) else entry)]
        if len(set(used)) == len(used):
            yield P(*spec)


def lowered(sharding, ndim):
    arg = jax.ShapeDtypeStruct((16,) * ndim, np.float32)
    text = jax.jit(lambda x: x, in_shardings=sharding).lower(arg).compiler_ir("hlo").as_hlo_text()
    found = re.search(r"parameter\(0\), sharding=(\{[^\n]*?\})(?:,|\n)", text)
    assert found is not None
    return found.group(1)


@pytest.mark.parametrize("name", MESHES)
def test_every_spec_there_and_back(name):
    mesh = MESHES[name]()
    for spec in specs(mesh.axis_names, 2):
        sharding = NamedSharding(mesh, spec)
        ours = HloSharding.from_jax(sharding, 2)
        assert ours.to_jax(mesh).is_equivalent_to(sharding, 2)
        # The names are lost, and found again.
        assert ours.without_names().to_jax(mesh).is_equivalent_to(sharding, 2)
        assert tuple(ours.to_partition_spec()) == tuple(spec)


@pytest.mark.parametrize("name", MESHES)
def test_specs_mean_what_jax_lowers_them_to(name):
    mesh = MESHES[name]()
    for spec in list(specs(mesh.axis_names, 2))[::7]:
        sharding = NamedSharding(mesh, spec)
        assert str(HloSharding.from_jax(sharding, 2).without_names()) == str(
            parse(lowered(sharding, 2)).without_names()
        )


def test_named_constructor():
    mesh = MeshInfo(("a", "b"), (2, 4))
    s = HloSharding.named(mesh, ("b", None, "a"))
    assert str(s) == "{mesh['a'=2,'b'=4], [{'b'}, {}, {'a'}]}"
    assert HloSharding.named(mesh, P("b"), 3) == parse("{devices=[4,1,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}")
    assert HloSharding.named(mesh, None, 2).is_replicated()
    assert HloSharding.named(mesh, P(("b", "a"))) == parse("{devices=[8]<=[2,4]T(1,0)}")
    for bad in (P("c"), P("a", "a"), (3,)):
        with pytest.raises(ShardingError):
            HloSharding.named(mesh, bad)
    with pytest.raises(ShardingError, match="2 entries for an array of 1 dims"):
        HloSharding.named(mesh, P(None, "a"), 1)


def test_open_dims():
    s = HloSharding.named(MeshInfo(("a",), (2,)), P(P.UNCONSTRAINED, "a"))
    assert str(s) == "{mesh['a'=2], [{?}, {'a'}]}"
    assert tuple(s.to_partition_spec()) == (P.UNCONSTRAINED, "a")


def test_manual_axes_of_the_mesh():
    mesh = AbstractMesh((2, 4), ("a", "b"), axis_types=(AxisType.Manual, AxisType.Auto))
    s = HloSharding.from_jax(NamedSharding(mesh, P(None, "b")), 2)
    assert str(s) == "{mesh['a'=2,'b'=4], [{}, {'b'}], manual={'a'}}"
    with pytest.raises(ShardingError, match="belong to the mesh"):
        s.to_partition_spec()
    all_manual = AbstractMesh((2,), ("a",), axis_types=(AxisType.Manual,))
    assert HloSharding.from_jax(NamedSharding(all_manual, P()), 2).is_manual()


def test_unreduced_axes():
    mesh = AbstractMesh((2, 4), ("a", "b"), axis_types=(AxisType.Explicit,) * 2)
    sharding = NamedSharding(mesh, P(None, "a", unreduced={"b"}))
    s = HloSharding.from_jax(sharding, 2)
    assert s == parse("{devices=[1,2,4]<=[8] last_tile_dims={unreduced}}")
    assert s.to_jax(mesh) == sharding


def test_other_shardings():
    assert HloSharding.from_jax(None, 2).is_unknown()
    assert HloSharding.from_jax(SingleDeviceSharding(jax.devices("cpu")[0]), 2).is_replicated()
    s = HloSharding.iota_tile((2,))
    assert HloSharding.from_jax(s, 1) is s
    with pytest.raises(ShardingError, match="cannot be read"):
        HloSharding.from_jax(object(), 2)


def test_back_to_jax():
    s = parse("{devices=[4,2]<=[2,4]T(1,0)}")
    mesh = mesh_of((2, 4), ("a", "b"))
    assert s.to_jax(mesh) == NamedSharding(mesh, P("b", "a"))
    named = parse("{mesh['a'=2,'b'=4], [{'b'}, {}]}")
    assert named.to_jax().mesh.axis_names == ("a", "b")
    assert named.to_jax().spec == P("b", None)
    assert tuple(HloSharding.replicate().to_partition_spec(mesh)) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{devices=[2,4]<=[2,2,2]T(1,0,2)}", "only part"),
        ("{devices=[8]7,6,5,4,3,2,1,0}", "no axes of"),
        ("{devices=[4]<=[4]}", "no axes of"),
        ("{manual}", "cannot say"),
        ("{maximal device=1}", "cannot say"),
        ("{{replicated}}", "is of a tuple"),
        ("{unknown}", "no axes of"),
    ],
)
def test_what_a_spec_cannot_say(text, message):
    with pytest.raises(ShardingError, match=message):
        parse(text).to_partition_spec(MeshInfo(("a", "b"), (2, 4)))


def test_without_names_a_mesh_is_needed():
    with pytest.raises(ShardingError, match="carries no axis names"):
        HloSharding.iota_tile((2,)).to_partition_spec()
    turned = parse("{mesh['a'=2], device_ids=(1,0), [{'a'}]}")
    with pytest.raises(ShardingError, match="out of order"):
        turned.to_jax()
