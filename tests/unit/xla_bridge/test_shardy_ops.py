"""Shardy's ops, attributes and passes through jaxlib's MLIR, each private name met once."""

from __future__ import annotations

import numpy as np
import pytest

from hlosharding import xla_bridge
from hlosharding.errors import LoadError
from hlosharding.xla_bridge import conversions, shardy_ops

PROGRAM = """sdy.mesh @mesh = <["a"=2, "b"=4]>
func.func @main(%x: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}]>}) -> tensor<8x16xf32> {
  %0 = sdy.reshard %x <@mesh, [{}, {"a"}]> : tensor<8x16xf32>
  return %0 : tensor<8x16xf32>
}"""


def test_a_reshard_becomes_a_constraint() -> None:
    module = conversions._parsed(PROGRAM.encode())
    with module.context:
        shardy_ops.with_constraints_only(module)
        assert 'sdy.sharding_constraint %arg0 <@mesh, [{}, {"a"}]>' in str(module)
        assert "reshard" not in str(module)


def test_bytecode_is_looked_into_too() -> None:
    module = conversions._parsed(PROGRAM.encode())
    with module.context:
        bytecode = module.operation.get_asm(binary=True)
    assert shardy_ops.may_have_reshards(bytecode)
    assert not shardy_ops.may_have_reshards(PROGRAM.replace("sdy.reshard", "sdy.sharding_constraint").encode())
    assert xla_bridge.stablehlo_to_hlo_proto(bytecode)


def test_marks_become_shardys_attributes() -> None:
    said = '#sdy.sharding<mesh<[\\"a\\"=2]>, [{\\"a\\"}]>'
    text = f"""HloModule m
ENTRY e {{
  ROOT x = f32[4] parameter(0), frontend_attributes={{xla.sdy.sharding="{said}"}}
}}"""
    written = xla_bridge.hlo_proto_to_sdy(xla_bridge.hlo_text_to_proto(text), 2)
    assert 'sdy.mesh @mesh = <["a"=2]>' in written
    assert '%arg0: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}]>}' in written
    assert "mhlo.num_partitions = 2 : i32" in written
    assert "frontend_attributes" not in written


def test_marks_that_are_no_shardings_are_refused() -> None:
    text = 'HloModule m\nENTRY e {\n  ROOT x = f32[4] parameter(0), frontend_attributes={xla.sdy.sharding="#sdy.no"}\n}'
    with pytest.raises(LoadError, match="cannot be written for Shardy"):
        xla_bridge.hlo_proto_to_sdy(xla_bridge.hlo_text_to_proto(text), 2)


def test_a_local_text_says_no_shardings() -> None:
    text = "HloModule m\nENTRY e {\n  ROOT x = f32[4] parameter(0), sharding={devices=[2]<=[2]}\n}"
    written = xla_bridge.hlo_proto_to_local_stablehlo(xla_bridge.hlo_text_to_proto(text), 2)
    assert "sharding" not in written
    assert written.count("mhlo.") == 2  # how many partitions, how many replicas


def test_shardys_passes_run_on_text() -> None:
    found = xla_bridge.shardy_passes(PROGRAM, "func.func(sdy-reshard-to-collectives)")
    assert 'sdy.all_to_all [{"a"}: 0->1] %arg0' in found
    with pytest.raises(LoadError, match="Shardy does not take this"):
        xla_bridge.shardy_passes(PROGRAM, "no-such-pass")


def test_a_text_runs_on_devices_as_it_stands() -> None:
    local = """module attributes {mhlo.num_partitions = 2 : i32} {
  func.func @main(%x: tensor<2xf32>) -> tensor<4xf32> {
    %0 = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1,
      type = 0>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}>
      : (tensor<2xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}"""
    x = np.arange(4, dtype=np.float32)
    (outputs,) = xla_bridge.run_stablehlo(local, [[x[:2], x[2:]]], 2)
    assert [o.tolist() for o in outputs] == [[0, 1, 2, 3]] * 2
