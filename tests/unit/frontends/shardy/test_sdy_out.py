"""Programs in Shardy's words: read back, and compiled by XLA with Shardy, against one device's run."""

from __future__ import annotations

from random import Random

import pytest

import hlosharding as hs
from hlosharding.errors import ShardingError
from hlosharding.ir import Instruction, Module
from hlosharding.sharding import MeshInfo, uneven_dims
from hlosharding.xla_bridge import run_stablehlo
from tests.support.program_check import is_close, is_no_worse, joined, one_device, tiles, wide, widened
from tests.support.random_programs.programs import RandomProgram, random_program

MATMUL = """
sdy.mesh @mesh = <["data"=2, "model"=4]>
func.func @main(%x: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}, %w: tensor<16x32xf32>)
    -> tensor<8x32xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %1 = sdy.sharding_constraint %0 <@mesh, [{?}, {"model":(1)2, ?}]> : tensor<8x32xf32>
  return %1 : tensor<8x32xf32>
}"""


def test_what_the_user_said_comes_out_as_it_came_in() -> None:
    text = hs.to_sdy_text(hs.load(MATMUL))
    assert 'sdy.mesh @mesh = <["data"=2, "model"=4]>' in text
    assert '%arg0: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}' in text
    assert "%arg1: tensor<16x32xf32>)" in text  # open, as it was
    assert 'sdy.sharding_constraint %0 <@mesh, [{?}, {"model":(1)2, ?}]> : tensor<8x32xf32>' in text


def test_every_value_of_a_propagated_module_says_its_axes() -> None:
    text = hs.to_sdy_text(hs.propagate(hs.load(MATMUL)).module)
    assert '%arg1: tensor<16x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"model":(1)2}]>}' in text
    assert '#sdy.sharding_per_value<[<@mesh, [{"data"}, {"model":(1)2}]>]>} : (tensor<8x16xf32>' in text
    assert '-> (tensor<8x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {"model":(1)2}]>})' in text


def test_devices_in_an_order_of_their_own_get_a_mesh() -> None:
    text = """HloModule m, num_partitions=4
ENTRY e {
  x = f32[8,4] parameter(0), sharding={devices=[2,2]3,1,0,2}
  ROOT y = f32[8,4] negate(x), sharding={devices=[4,1]<=[4]}
}"""
    written = hs.to_sdy_text(hs.load(text))
    assert 'sdy.mesh @mesh_0 = <["axis_0"=2, "axis_1"=2], device_ids=[3, 1, 0, 2]>' in written or (
        'sdy.mesh @mesh = <["axis_0"=2, "axis_1"=2], device_ids=[3, 1, 0, 2]>' in written
    )
    again = hs.load(written)
    (x,) = again.entry.parameters
    assert hs.same_sharding(again.sharding(x), "{devices=[2,2]3,1,0,2}")


def test_a_closed_boundary_stays_closed() -> None:
    bare = "HloModule m, num_partitions=2\nENTRY e {\n  x = f32[4] parameter(0)\n  ROOT y = f32[4] negate(x)\n}"
    text = hs.to_sdy_text(hs.load(bare))
    assert text.count("#sdy.sharding<@mesh, [{}]>") == 2


def test_what_shardy_has_no_word_for_is_refused_by_name() -> None:
    manual = """HloModule m, num_partitions=2
ENTRY e {
  x = f32[4] parameter(0), sharding={devices=[2]<=[2]}
  ROOT y = f32[2] custom-call(x), custom_call_target="SPMDFullToShardShape", sharding={manual}
}"""
    with pytest.raises(ShardingError, match=r"manual axes.*%y"):
        hs.to_sdy_text(hs.load(manual))


def test_a_tuple_at_the_edge_is_refused() -> None:
    text = """HloModule m
ENTRY e {
  x = (f32[4], f32[4]) parameter(0), sharding={{devices=[2]<=[2]}, {replicated}}
  ROOT y = f32[4] get-tuple-element(x), index=0
}"""
    with pytest.raises(ShardingError, match="parameter that is a tuple"):
        hs.to_sdy_text(hs.load(text))


@pytest.mark.parametrize(("name", "is_lawful"), [('a"b', True), ("c>, <", True), ("x\\", False), ("é", False)])
def test_axis_names_are_data(name: str, is_lawful: bool) -> None:
    module = hs.load("HloModule m\nENTRY e {\n  ROOT x = f32[4] parameter(0), sharding={devices=[2]<=[2]}\n}")
    module.mesh = MeshInfo((name,), (2,))
    if is_lawful:
        again = hs.load(hs.to_sdy_text(module))
        assert again.mesh == module.mesh
        return
    with pytest.raises(ShardingError, match="rename it"):
        hs.to_sdy_text(module)


@pytest.mark.parametrize("seed", [1, 4, 13])
def test_random_programs_come_back(seed: int) -> None:
    module = hs.propagate(random_program(Random(seed)).module).module
    again = hs.load(hs.to_sdy_text(module), prepare=False)
    given, back = ([m.sharding(p) for p in m.entry.parameters] for m in (module, again))
    for before, after in zip(given, back, strict=True):
        assert hs.same_sharding(before or hs.HloSharding.replicate(), after)


XLAS_OWN = {22: "XLA's partitioner gets a convolution with uneven tiles wrong", 37: "jaxlib drops a carry of a loop"}


@pytest.mark.parametrize("seed", [s for s in range(40) if s not in XLAS_OWN])
def test_xla_with_shardy_computes_the_same(seed: int) -> None:
    _check(random_program(Random(seed)))


def test_xla_with_shardy_takes_it() -> None:
    _check(random_program(Random(2)))


def _check(program: RandomProgram) -> None:
    """Shardy takes no uneven arrays at the boundary: these are whole here."""
    given = program.module
    for inst in (*given.entry.parameters, given.entry.root):
        if any(uneven_dims(s, shape.dims) for s, shape in zip(_leaves(given, inst), inst.shape.leaves, strict=True)):
            del given.shardings[inst.id]
    module, devices = hs.propagate(given).module, given.num_partitions
    pairs = zip(program.arguments, module.entry.parameters, strict=True)
    cut = [tiles(array, _leaves(module, parameter)[0], devices) for array, parameter in pairs]
    outputs = run_stablehlo(hs.to_sdy_text(module), cut, devices, with_shardy=True)
    root, wanted = module.entry.root, one_device(given, program.arguments)
    exact = one_device(widened(given), [wide(a) for a in program.arguments])
    leaves = zip(outputs, _leaves(module, root), root.shape.leaves, strict=True)
    for (copies, sharding, shape), want, best in zip(leaves, wanted, exact, strict=True):
        found = joined(copies, sharding, shape)
        assert is_close(found, want) or is_no_worse(found, want, best)


def _leaves(module: Module, inst: Instruction) -> tuple[hs.HloSharding, ...]:
    sharding = module.sharding(inst) or hs.HloSharding.replicate()
    return sharding.leaves if sharding.is_tuple() else (sharding,) * len(inst.shape.leaves)
