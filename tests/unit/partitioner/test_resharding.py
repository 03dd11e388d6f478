"""Arrays of dynamic size: never split, since a tile would take what is past the end for data."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding import xla_bridge
from hlosharding.errors import ExecutionError, PartitionError
from hlosharding.executor.prelude import stablehlo
from tests.support.split_programs import mark, module_of, right

X = np.linspace(1, 2, 32, dtype=np.float32).reshape(8, 4)
BODIES = {
    "sum": """z = f32[] constant(0)
        ROOT r = f32[4] reduce(w, z), dimensions={{0}}, to_apply=add_f32""",
    "size": "ROOT r = s32[] get-dimension-size(w), dimensions={{0}}",
    "product": """v = f32[4,8] parameter(2)
        t = f32[4,<=8] transpose(w), dimensions={{1,0}}
        ROOT r = f32[4,4] dot(t, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}""",
}  # fmt: skip


def dynamic(name: str, tiling: str | None) -> str:
    return f"""x = f32[8,4] parameter(0){mark(tiling)}
        n = s32[] parameter(1)
        y = f32[<=8,4] set-dimension-size(x, n), dimensions={{0}}{mark(tiling)}
        w = f32[<=8,4] tanh(y){mark(tiling)}
        """ + BODIES[name].format()


@pytest.mark.parametrize("tiling", ["[8,1]<=[8]", "[2,4]<=[8]", None])
@pytest.mark.parametrize("name", BODIES)
def test_eight_devices_compute_what_one_does(name: str, tiling: str | None) -> None:
    arrays = [X, np.int32(5), np.zeros((4, 8), np.float32)][: 3 if name == "product" else 2]
    local = hs.partition(module_of(dynamic(name, tiling)))
    one = module_of(dynamic(name, None), devices=1)
    [[want]] = xla_bridge.run_proto(one.to_hlo_proto(), [[a] for a in arrays])
    np.testing.assert_allclose(local.run_reference(*arrays), want, rtol=1e-6)
    with pytest.raises(ExecutionError, match=r"arrays whose sizes change.*run_reference"):
        local.run(*arrays)


@pytest.mark.parametrize("in_tuple", [False, True])
def test_a_result_of_dynamic_size_cannot_be_split(in_tuple: bool) -> None:
    tile = mark("[8,1]<=[8]")
    body = f"""x = f32[8,4] parameter(0)
        n = s32[] parameter(1)
        {"" if in_tuple else "ROOT"} y = f32[<=8,4] set-dimension-size(x, n), dimensions={{0}}{tile}"""
    if in_tuple:
        body += "\nROOT t = (f32[<=8,4], s32[]) tuple(y, n), sharding={{devices=[8,1]<=[8]}, {replicated}}"
    with pytest.raises(PartitionError, match=r"%y has a size that is known only at run time.*replicated"):
        hs.partition(module_of(body))


def test_jax_takes_no_such_program_for_several_devices(mesh_2x4: Mesh) -> None:
    """If this fails, JAX takes them: let `run` do so."""
    text = """module @op { func.func @main(%x: tensor<8xf32>, %n: tensor<i32>) -> tensor<f32> {
      %y = stablehlo.set_dimension_size %x, %n, dim = 0
        : (tensor<8xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<8>>
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %r = stablehlo.reduce(%y init: %z) applies stablehlo.add across dimensions = [0]
        : (tensor<?xf32, #stablehlo.bounds<8>>, tensor<f32>) -> tensor<f32>
      return %r : tensor<f32> } }"""
    function = stablehlo(text, jax.ShapeDtypeStruct((), np.float32))
    mapped = jax.shard_map(function, mesh=mesh_2x4, in_specs=(P(), P()), out_specs=P(), check_vma=False)
    with pytest.raises(Exception, match="static shape"):
        jax.jit(mapped)(X[:, 0], np.int32(5))


@pytest.mark.parametrize("made", ["add(i, i)", "reverse(i), dimensions={0}", "reshape(n)"])
def test_small_values_made_of_whole_ones_never_travel(made: str) -> None:
    local = right(f"""
        i = s32[16] parameter(0), sharding={{replicated}}
        x = s32[16] parameter(1){mark("[8]<=[8]")}
        n = s32[2,8] reshape(i), sharding={{replicated}}
        s = s32[16] {made}{mark("[8]<=[8]")}
        parts = s32[16] multiply(s, x){mark("[8]<=[8]")}
        whole = s32[8,16] broadcast(s), dimensions={{1}}{mark("[8,1]<=[8]")}
        ROOT both = (s32[16], s32[8,16]) tuple(parts, whole){mark("{devices=[8]<=[8]}, {devices=[8,1]<=[8]}")}""")
    assert not local.collectives
