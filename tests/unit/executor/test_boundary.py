"""How arrays enter and leave: names where they can say it, stacked tiles where they cannot, and back unchanged."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from hlosharding import load, partition
from hlosharding.errors import ExecutionError
from hlosharding.executor import (
    BoundaryArray,
    ShardedArray,
    ShardMapProgram,
    assemble,
    lay_out,
    run_reference,
    sharded_array,
    split,
)
from hlosharding.ir import Builder, Module, Shape
from hlosharding.sharding import HloSharding, MeshInfo
from tests.unit.executor.op_cases import module_of

MESH = MeshInfo(("data", "model"), (2, 4))
# sharding, global dims, said with axis names?
CASES = [
    ("{replicated}", (3, 5), True),
    ("{devices=[2,4]<=[8]}", (4, 8), True),
    ("{devices=[4,2]<=[2,4]T(1,0)}", (4, 8), True),
    ("{devices=[8,1]<=[8]}", (16, 3), True),
    ("{devices=[1,8]<=[2,4]T(1,0)}", (3, 16), True),
    ("{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}", (3, 8), True),
    ("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", (4, 3), True),
    ("{devices=[2,2,2]<=[8] last_tile_dim_replicate}", (4, 6), True),
    ("{devices=[2,2,2]<=[2,4]T(1,0) last_tile_dim_replicate}", (4, 6), True),
    ("{devices=[8,1]7,6,5,4,3,2,1,0}", (16, 3), False),
    ("{devices=[2,4]3,1,0,2,7,5,4,6}", (4, 8), False),
    ("{devices=[2,4]<=[8]}", (3, 7), False),
    ("{devices=[8,1]<=[8]}", (5, 2), False),
    ("{devices=[4,1,2]<=[8] last_tile_dim_replicate}", (10, 2), False),
    ("{maximal device=3}", (3, 5), False),
    ("{manual}", (3, 5), False),
    ("{unreduced}", (3, 5), False),
    ("{devices=[4,1,2]<=[8] last_tile_dims={unreduced}}", (8, 2), False),
    ("{devices=[2,1,2,2]<=[8] last_tile_dims={unreduced, replicated}}", (7, 2), False),
]


def identity_module(layouts: list[BoundaryArray], kind: str = "f32") -> Module:
    builder = Builder("identity", num_partitions=8)
    main = builder.computation("main")
    shapes = [Shape.array(kind, layout.tile) for layout in layouts]
    values = [main.add("copy", s, (main.parameter(i, s),)) for i, s in enumerate(shapes)]
    main.root(main.add("tuple", Shape.tuple(tuple(shapes)), values))
    module = builder.finish(main)
    module.mesh = MESH
    return module


def layout_of(text: str, dims: tuple[int, ...], kind: str = "f32") -> BoundaryArray:
    return BoundaryArray(Shape.array(kind, dims), HloSharding.parse(text))


@pytest.mark.parametrize(("text", "dims", "is_named"), CASES)
def test_arrays_go_in_and_out_unchanged(text: str, dims: tuple[int, ...], is_named: bool) -> None:
    layout = layout_of(text, dims)
    module = identity_module([layout])
    x = np.random.default_rng(0).normal(size=dims).astype(np.float32)
    program = ShardMapProgram(module, inputs=[layout], outputs=[layout])
    assert program.written.inputs[0].is_stacked != is_named, program.source
    (out,) = program.compile()(x)
    assert isinstance(out, ShardedArray) != is_named
    np.testing.assert_array_equal(np.asarray(out), x)
    np.testing.assert_array_equal(np.asarray(program.compile()(out)[0]), x)
    np.testing.assert_array_equal(run_reference(module, [x], inputs=[layout], outputs=[layout])[0], x)


@pytest.mark.parametrize(("text", "dims", "is_named"), CASES)
def test_tiles_join_to_the_whole(text: str, dims: tuple[int, ...], is_named: bool) -> None:
    sharding = HloSharding.parse(text)
    x = np.random.default_rng(0).normal(size=dims).astype(np.float32)
    tiles = split(x, sharding, 8)
    assert {tile.shape for tile in tiles} == {tuple(sharding.tile_shape(dims))}
    np.testing.assert_array_equal(assemble(tiles, sharding, dims), x)


def test_named_shardings_are_those_of_jax() -> None:
    """The tile on each device is the one that jax puts there for the same spec."""
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))
    x = np.arange(128, dtype=np.float32).reshape(8, 16)
    for spec in (PartitionSpec("model", "data"), PartitionSpec(("model", "data")), PartitionSpec(None, "data")):
        theirs = jax.device_put(x, NamedSharding(mesh, spec))
        tiles = split(x, HloSharding.named(MESH, spec, 2), 8)
        for device, tile in enumerate(tiles):
            local = next(s.data for s in theirs.addressable_shards if s.device == jax.devices()[device])
            np.testing.assert_array_equal(np.asarray(local), tile)


def test_stacked_scalar() -> None:
    layout = layout_of("{maximal device=2}", ())
    module = identity_module([layout])
    program = ShardMapProgram(module, inputs=[layout], outputs=[layout])
    np.testing.assert_array_equal(program.run(np.float32(2.5))[0], np.float32(2.5))


def test_what_lies_right_is_not_copied() -> None:
    """A jax array with the program's sharding, and a ShardedArray, go in by the same buffers."""
    even, odd = layout_of("{devices=[2,4]<=[8]}", (4, 8)), layout_of("{devices=[8,1]7,6,5,4,3,2,1,0}", (5, 2))
    executable = ShardMapProgram(identity_module([even, odd]), inputs=[even, odd], outputs=[even, odd]).compile()
    first = jax.device_put(np.ones((4, 8), np.float32), executable.input_shardings[0])
    second = sharded_array(np.ones((5, 2), np.float32), odd.sharding, executable.devices)
    for number, (array, shards) in enumerate(((first, first), (second, second.tiles))):
        placed = executable.place(array, number)
        before = {s.device: s.data.unsafe_buffer_pointer() for s in shards.addressable_shards}
        assert before == {s.device: s.data.unsafe_buffer_pointer() for s in placed.addressable_shards}


def test_users_see_their_own_axes_where_the_program_splits_them() -> None:
    """An all-gather over half of `model` splits that axis inside; inputs and outputs keep the user's mesh."""
    sharding = "{devices=[2,4]<=[8]}"
    body = (
        f"x = f32[2,2] parameter(0), sharding={sharding} ROOT r = f32[2,2] all-reduce(x), to_apply=add_f32,"
        " channel_id=1, use_global_device_ids=true, replica_groups={{0,1},{2,3},{4,5},{6,7}},"
        f" sharding={sharding}"
    )
    module = module_of(body, 8)
    module.mesh = MESH
    executable = ShardMapProgram(module).compile()
    assert executable.mesh.axis_names == ("data", "model_0", "model_1")
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))
    wanted = NamedSharding(mesh, PartitionSpec("data", "model"))
    x = jax.device_put(np.arange(32, dtype=np.float32).reshape(4, 8), wanted)
    assert executable.place(x, 0) is x
    (out,) = executable(x)
    assert out.sharding == wanted
    np.testing.assert_array_equal(np.asarray(out), run_reference(module, [x])[0])
    text = executable.compiled.as_text()
    assert "all-to-all" not in text
    assert "collective-permute" not in text
    assert "all-gather" not in text


def test_donated_input_is_gone() -> None:
    layout = layout_of("{devices=[2,4]<=[8]}", (4, 8))
    executable = ShardMapProgram(identity_module([layout]), inputs=[layout], outputs=[layout]).compile(donate=(0,))
    x = jax.device_put(np.ones((4, 8), np.float32), executable.input_shardings[0])
    (out,) = executable(x)
    assert x.is_deleted()
    np.testing.assert_array_equal(np.asarray(out), 1)


@pytest.mark.parametrize(("text", "dims", "is_named"), CASES)
def test_lay_out_takes_a_jax_array_where_jax_has_a_name(text: str, dims: tuple[int, ...], is_named: bool) -> None:
    x = np.random.default_rng(0).normal(size=dims).astype(np.float32)
    sharding = HloSharding.parse(text)
    out = lay_out(x, sharding, jax.devices()[:8])
    assert isinstance(out, jax.Array) == is_named
    np.testing.assert_array_equal(np.asarray(out), x)
    if isinstance(out, jax.Array):
        by_device = {s.device: np.asarray(s.data) for s in out.addressable_shards}
        for device, tile in zip(jax.devices()[:8], split(x, sharding, 8), strict=True):
            np.testing.assert_array_equal(by_device[device], tile)


def test_sharded_array_knows_its_tiles() -> None:
    sharding = HloSharding.parse("{devices=[8]7,6,5,4,3,2,1,0}")
    x = sharded_array(np.arange(10, dtype=np.int32), sharding, jax.devices()[:8])
    assert isinstance(x, ShardedArray)
    np.testing.assert_array_equal(np.asarray(x), np.arange(10))
    assert (x.shape, x.dtype, x.ndim, x.tile_shape) == ((10,), np.int32, 1, (2,))
    np.testing.assert_array_equal(np.asarray(x.local_arrays[7]), [0, 1])
    assert repr(x) == "ShardedArray(shape=(10,), dtype=int32, sharding={devices=[8]7,6,5,4,3,2,1,0})"


def test_errors_say_what_to_do() -> None:
    layout = layout_of("{devices=[2,4]<=[8]}", (3, 7))
    module = identity_module([layout])
    program = ShardMapProgram(module, inputs=[layout], outputs=[layout])
    with pytest.raises(ExecutionError, match="8 devices are needed, and 4 are given"):
        program.compile(jax.devices()[:4])
    with pytest.raises(ExecutionError, match=r"input 0 has shape \[4, 7\], the program takes f32\[3,7\]"):
        program.run(np.ones((4, 7), np.float32))
    with pytest.raises(ExecutionError, match=r"an input of type int32, the program takes f32\[3,7\]"):
        program.run(np.ones((3, 7), np.int32))
    with pytest.raises(ExecutionError, match="2 arrays for the 1 inputs of identity"):
        program.run(np.ones((3, 7), np.float32), np.ones(3, np.float32))
    wrong = BoundaryArray(Shape.array("f32", (16, 16)), layout.sharding)
    with pytest.raises(
        ExecutionError, match=r"has tiles \[8, 4\], the program holds f32\[2,2\]; pass the global shapes"
    ):
        ShardMapProgram(module, inputs=[wrong], outputs=[layout]).run(np.ones((16, 16), np.float32))


@pytest.mark.parametrize("kind", ["s64", "f64", "bf16", "pred", "u8", "c64", "f8e4m3fn"])
def test_element_types_keep_their_width(kind: str) -> None:
    layouts = [layout_of("{devices=[2,4]<=[8]}", (4, 8), kind), layout_of("{devices=[8,1]<=[8]}", (5, 2), kind)]
    arrays = [(np.arange(np.prod(x.shape.dims)).reshape(x.shape.dims) % 7).astype(x.shape.dtype) for x in layouts]
    if kind == "s64":
        arrays[0] = arrays[0] + 2**40
    outputs = ShardMapProgram(identity_module(layouts, kind), inputs=layouts, outputs=layouts).run(*arrays)
    for got, want in zip(outputs, arrays, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


NUMBERS = {
    "s32": (2**40, 1.5, float("nan"), 1j, "x"),
    "u8": (300, -1, [1, 300], 2.5),
    "pred": (300, -1, 0.5, "x"),
    "f32": (1j, "x", None, [[1], [2, 3]]),
}
"""Python's, of which `jax.jit` refuses each for a parameter of the type."""


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("how", ["run", "run_reference"])
def test_numbers_that_a_type_does_not_hold_are_refused(kind: str, how: str) -> None:
    local = partition(load(f"HloModule m, num_partitions=2\nENTRY e {{\n  ROOT p = {kind}[] parameter(0)\n}}\n"))
    for number in NUMBERS[kind]:
        with pytest.raises(ExecutionError, match=rf"is no {kind}\[\]"):
            getattr(local, how)(number)


@pytest.mark.parametrize("how", ["run", "run_reference"])
def test_arrays_of_64_bits_are_cut_as_jax_cuts_them(how: str) -> None:
    local = partition(load("HloModule m, num_partitions=2\nENTRY e {\n  ROOT p = s32[] parameter(0)\n}\n"))
    given = np.array(2**40 + 7)
    assert int(getattr(local, how)(given)) == int(jax.jit(lambda x: x)(given)) == 7
    with pytest.raises(ExecutionError, match="an input of type float64, the program takes s32"):
        getattr(local, how)(np.array(1.5))
