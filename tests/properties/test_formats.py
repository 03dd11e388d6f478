"""Every format of shardings: there and back over random meshes and axes; what is no sharding is an error, soon."""

from __future__ import annotations

import contextlib
import re
import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jax.extend.mlir import ir
from jax.interpreters import mlir

import hlosharding as hs
from hlosharding.sharding import FORMATS, AxisRef, DimAxes, HloSharding, MeshInfo, NamedForm, member_numbers, tile_table

NAMES = ("x", "y", "data_2", "é\"'\\")
WORDED = NAMES[:3]


@st.composite
def meshes(draw: st.DrawFn, names: tuple[str, ...] = NAMES) -> MeshInfo:
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=len(names)))
    count = 1
    for size in sizes:
        count *= size
    devices = draw(st.one_of(st.none(), st.permutations(range(count)))) if count <= 24 else None
    return MeshInfo(names[: len(sizes)], sizes, devices)


@st.composite
def parts_of(draw: st.DrawFn, name: str, size: int) -> list[AxisRef]:
    """An axis whole, or some of its parts."""
    divisors = [n for n in range(2, size) if size % n == 0]
    if not divisors or draw(st.booleans()):
        return [AxisRef(name)]
    cut = draw(st.sampled_from(divisors))
    both = [AxisRef(name, 1, cut), AxisRef(name, cut, size // cut)]
    return draw(st.sampled_from([both, both[:1], both[1:]]))


@st.composite
def forms(draw: st.DrawFn, mesh: MeshInfo, *, plain: bool = False) -> NamedForm:
    """Axes and parts of axes over dims, with open dims, replicated and unreduced axes unless `plain`."""
    ndim = draw(st.integers(0, 3))
    dims: list[list[AxisRef]] = [[] for _ in range(ndim)]
    groups: dict[str, list[AxisRef]] = {"replicated": [], "unreduced": []}
    for name, size in zip(mesh.names, mesh.sizes, strict=True):
        for part in [AxisRef(name)] if plain else draw(parts_of(name, size)):
            places: list[Any] = [None, *dims] if plain else [None, *dims, *groups.values()]
            place = draw(st.sampled_from(places))
            if place is not None:
                place.insert(len(place) if place in groups.values() else draw(st.integers(0, len(place))), part)
    for axes in (*dims, *groups.values()):
        spans = [(axis.name, axis.span(mesh)) for axis in axes]
        assume(all(a[0] != b[0] or a[1][1] != b[1][0] for a, b in pairwise(spans)))
    opened = [DimAxes(tuple(axes), not plain and draw(st.booleans())) for axes in dims]
    return NamedForm(mesh, tuple(opened), tuple(groups["replicated"]), tuple(groups["unreduced"]))


def layout(sharding: HloSharding, ndim: int, devices: int) -> Any:
    """What each device holds: its tile, how many there are, and whose partial sums it shares."""
    if sharding.is_maximal():
        return sharding.device
    partial = sharding.is_unreduced() or sharding.is_unreduced_subgroup()
    counts = sharding.data_dims or (1,) * ndim
    return counts, tile_table(sharding, ndim, devices), partial, member_numbers(sharding, devices)


LOSSES = re.compile(r"cannot say|no placement|V1 has no|has no axes for the replicated|how many devices")


def converted_or_lost(sharding: Any, to: str, mesh: MeshInfo, ndim: int) -> Any:
    """In that format; None where that says by name what it cannot."""
    try:
        return hs.convert(sharding, to=to, mesh=mesh, ndim=ndim)
    except hs.ShardingError as error:
        if LOSSES.search(str(error)) is None:
            raise
        return None


def sharding_of(form: NamedForm) -> HloSharding:
    return HloSharding.from_named_form(form)


@pytest.mark.parametrize("source", FORMATS)
@given(st.sampled_from(list(FORMATS)), st.data())
def test_there_and_back_or_a_named_loss(source: str, target: str, data: st.DataObject) -> None:
    mesh = data.draw(meshes())
    form = data.draw(forms(mesh, plain=data.draw(st.booleans())))
    ndim = len(form.dims)
    wanted = layout(sharding_of(form), ndim, mesh.num_devices)
    first = converted_or_lost(sharding_of(form), source, mesh, ndim)
    second = None if first is None else converted_or_lost(first, target, mesh, ndim)
    if second is None:
        return
    again = hs.convert(second, to="hlo", mesh=mesh, ndim=ndim)
    if mesh.num_devices > 1:
        assert layout(again, ndim, mesh.num_devices) == wanted
        assert hs.same_sharding(first, second, mesh=mesh, ndim=ndim)
        assert hs.same_sharding(hs.convert(again, to=source, mesh=mesh, ndim=ndim), first, mesh=mesh, ndim=ndim)
    if {source, target} <= {"hlo", "v3", "sdy"}:
        assert hs.convert(second, to="sdy", ndim=ndim) == hs.convert(sharding_of(form), to="sdy", ndim=ndim)


@given(st.data())
def test_whole_axes_over_a_plain_mesh_are_said_by_every_format(data: st.DataObject) -> None:
    mesh = data.draw(meshes(WORDED))
    mesh = MeshInfo(mesh.names, mesh.sizes)
    form = data.draw(forms(mesh, plain=True))
    assume(any(dim.axes for dim in form.dims) and mesh.num_devices > 1)
    sharding = sharding_of(form)
    for name in FORMATS:
        written = hs.convert(sharding, to=name, mesh=mesh, ndim=len(form.dims))
        assert hs.same_sharding(written, sharding, mesh=mesh, ndim=len(form.dims)), name


@given(st.data())
def test_shardys_verifier_takes_every_text(data: st.DataObject) -> None:
    mesh = data.draw(meshes())
    form = data.draw(forms(mesh))
    text = hs.convert(sharding_of(form).with_named_form(form), to="sdy", ndim=len(form.dims))
    shape = "x".join(["720"] * len(form.dims) + ["f32"])
    context = mlir.make_ir_context()
    ir.Module.parse(
        f"func.func @main(%x: tensor<{shape}> {{sdy.sharding = {text}}}) -> tensor<{shape}> "
        f"{{ return %x : tensor<{shape}> }}",
        context,
    )
    assert str(ir.Attribute.parse(text, context)) == text
    assert hs.convert(text, to="sdy") == text


TEXTS = [
    "{devices=[2,1,4]<=[2,4]T(1,0) last_tile_dim_replicate}",
    "{mesh['x'=2,'y'=4], [{'x', ?}, {'y':(1)2}], replicated={}, unreduced={'y':(2)2}}",
    'sdy.mesh @m = <["x"=2, "y"=4], device_ids=[7, 6, 5, 4, 3, 2, 1, 0]> #sdy.sharding<@m, [{"x", ?}p1, {"y":(1)2}], '
    'replicated={"y":(2)2}>',
    '<mesh<["x"=2, "y"=4]>, [{"x"}, {}], unreduced=max{"y"}>',
    "shard.grid @g(shape = 2x4) %0 = shard.sharding @g split_axes = [[0], [1]] sharded_dims_offsets = "
    "[0, 2, 4, 0, 1, 2, 3, 4] : !shard.sharding",
    "mesh.cluster @mesh0(rank = 2, dim_sizes = [2, 4]) [[0], [], [1]] partial=sum[x]",
    "[[x], [y]] partial=max[]",
    "(_StridedShard(dim=0, sf=2), Partial(reduce_op='max'))",
    "[Shard(0), R]",
    "P('x', None, (y,), unreduced={y})",
    "NamedSharding(mesh=Mesh('x': 2, 'y': 4, axis_types=(Auto, Auto)), spec=P('x',), memory_kind=device)",
    "device: -1 device: -2 index_to_device_group_map { key: -1 value: 0 value: 1 } index_to_device_group_map "
    "{ key: -2 value: 2 value: 3 } sharded_dim { axis: 0 simple_sharding { num_shards: 2 } }",
]
MESHES = [
    "x=2,y=4",
    "2x4",
    'sdy.mesh @m = <["x"=2]>',
    "mesh.cluster @m(rank = 2, dim_sizes = [2, 4])",
    "shard.grid @g(shape = 2x4)",
]
CHARACTERS = st.sampled_from("{}[]()<>\"'\\,=:?@#%xyp019-. \n\x00é") | st.characters()


def assert_read_or_refused(text: str, mesh: str | None, source: str | None = None) -> None:
    started = time.monotonic()
    for name in ("hlo", "sdy"):
        with contextlib.suppress(hs.ShardingError):
            hs.convert(text, to=name, mesh=mesh, source=source)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("text", TEXTS)
def test_every_beginning_of_a_text(text: str) -> None:
    for end in range(len(text)):
        for mesh in (None, "x=2,y=4"):
            assert_read_or_refused(text[:end], mesh)


@given(st.sampled_from(TEXTS), st.integers(0, 400), st.integers(0, 3), st.text(CHARACTERS, max_size=4))
def test_texts_with_something_else_in_them(text: str, at: int, gone: int, new: str) -> None:
    at %= len(text) + 1
    assert_read_or_refused(text[:at] + new + text[at + gone :], "x=2,y=4")


@given(st.sampled_from(MESHES), st.integers(0, 60), st.integers(0, 3), st.text(CHARACTERS, max_size=4))
def test_meshes_with_something_else_in_them(mesh: str, at: int, gone: int, new: str) -> None:
    at %= len(mesh) + 1
    assert_read_or_refused("[[0]]", mesh[:at] + new + mesh[at + gone :])


@given(st.text(CHARACTERS, max_size=40), st.sampled_from([*FORMATS, None]))
def test_any_text(text: str, source: str | None) -> None:
    assert_read_or_refused(text, "x=2,y=4", source)


@pytest.mark.parametrize(
    "text",
    [
        "{" * 100_000,
        "(" * 100_000,
        "[" * 100_000,
        "[" + "[]," * 100_000,
        "P(" * 50_000,
        "P(x" + ",x" * 100_000 + ")",
        '<mesh<["' + "\\" * 100_000,
        '<mesh<["a"=' + "9" * 100_000 + ">",
        '<mesh<["a"=99999999999]>, [{"a"}]>',
        "{devices=[1000000000000]<=[1000000000000]}",
        "shard.grid @g(shape = " + "2x" * 50_000 + "2)",
        "mesh.cluster @m(rank = 9999, dim_sizes = []) [[0]]",
        "device: 1 " * 10_000,
        "sharded_dim { " * 10_000,
        "NamedSharding(mesh=Mesh(" + "'x': 2," * 20_000,
        "[" * 10 + "Shard(0)" + "," * 100_000,
        "(" + "R, " * 10_000 + ")",
        "%" * 100_000 + " = shard.sharding",
    ],
)
def test_long_texts_end_soon(text: str) -> None:
    for source in (None, *FORMATS):
        assert_read_or_refused(text, "x=2,y=4", source)
