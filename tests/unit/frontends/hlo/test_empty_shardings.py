"""Files hold empty sharding attributes: XLA's converter takes them for its default, replicated."""

from __future__ import annotations

import hlosharding as hs
from hlosharding import wire, xla_bridge

TEXT = """module @m {
  func.func public @main(%arg0: tensor<8xf32> {mhlo.sharding = ""}) -> tensor<8xf32> {
    %0 = stablehlo.negate %arg0 : tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}
"""


def test_an_empty_sharding_is_what_xla_takes_it_for() -> None:
    module = hs.load(TEXT, format="stablehlo")
    theirs = wire.HloModuleProto.FromString(xla_bridge.stablehlo_to_hlo_proto(TEXT))
    [asked] = [i.sharding for c in theirs.computations for i in c.instructions if i.opcode == "parameter"]
    assert module.sharding(module.by_name("Arg_0.1")) == hs.HloSharding.from_proto(asked)
    assert module.num_partitions == 1
