"""Custom calls with rules of the user's: the kernel gets pieces that make up the whole.

The kernels stand for ops that XLA knows: the per-device program runs with those in their place.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import hlosharding as hs
from hlosharding.executor import run_reference
from hlosharding.partitioner import PartitionOptions
from tests.support.split_programs import kinds, mark, module_of, split

hs.register_rule("test_matmul", "b m k, b k n -> b m n", reduction_factors=("k",))
hs.register_rule("test_flip", "i j -> i j", need_replication_factors=("j",))
hs.register_rule("test_shift", "i j -> i j", permutation_factors=("j",))
hs.register_rule("test_halves", "i (two j) -> i two j", two=2)

DIMS = "lhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, rhs_batch_dims={{0}}, rhs_contracting_dims={{1}}"
KERNELS = {
    "test_matmul": f"dot({{args}}), {DIMS}",
    "test_flip": "reverse({args}), dimensions={{1}}",
    "test_shift": "reverse({args}), dimensions={{1}}",
    "test_halves": "reshape({args})",
    "test_unknown": f"dot({{args}}), {DIMS}",
}
MATMULS = {
    "batch": ("[8,1,1]<=[8]", "[8,1,1]<=[8]", [], [1, 6, 8]),
    "rows": ("[1,2,1,4]<=[8] copies", "", [], [8, 3, 8]),
    "contracted": ("[1,1,4,2]<=[8] copies", "[1,4,1,2]<=[8] copies", ["all-reduce"], [4, 6, 2]),
    "both": ("[2,1,4]<=[8]", "[2,4,1]<=[8]", ["all-reduce"], [4, 6, 2]),
}


def with_kernels(local: hs.Partitioned) -> hs.Module:
    """The per-device program, each kernel written out."""
    pattern = r'custom-call\(([^)]*)\), custom_call_target="(test_\w+)"'

    def written(found: re.Match[str]) -> str:
        return KERNELS[found[2]].format(args=found[1])

    module = hs.load(re.sub(pattern, written, local.to_hlo_text()), format="hlo")
    module.num_partitions = local.num_partitions
    return module


def ran(local: hs.Partitioned, *arrays: np.ndarray) -> np.ndarray:
    inputs, outputs = local.program.written.inputs, local.program.written.outputs
    return run_reference(with_kernels(local), arrays, inputs=inputs, outputs=outputs)[0]


def drawn(*dims: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=dims).astype(np.float32)


@pytest.mark.parametrize("name", MATMULS)
def test_a_product_is_split_along_any_factor(name: str) -> None:
    first, second, collectives, piece = MATMULS[name]
    local = hs.partition(
        module_of(f"""a = f32[8,6,8] parameter(0){mark(first)}
        b = f32[8,8,4] parameter(1){mark(second)}
        c = f32[8,6,4] custom-call(a, b), custom_call_target="test_matmul"
        ROOT r = f32[8,6,4] negate(c)"""),
        options=PartitionOptions(objective="time"),
    )
    [call] = [i for i in local.module.entry.instructions if i.opcode == "custom-call"]
    assert list(call.operands[0].shape.dims) == piece
    assert [k for k in kinds(local) if k == "all-reduce"] == collectives
    assert local.warnings == ()
    a, b = drawn(8, 6, 8), drawn(8, 8, 4)
    np.testing.assert_allclose(ran(local, a, b), -(a @ b), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", ["test_flip", "test_shift"])
@pytest.mark.parametrize("tiling", ["[8,1]<=[8]", "[2,4]<=[8]", "[1,8]<=[8]"])
def test_what_needs_the_whole_gets_it_and_the_rest_stays_split(target: str, tiling: str) -> None:
    local = split(
        f"""x = f32[64,4096] parameter(0){mark(tiling)}
        ROOT y = f32[64,4096] custom-call(x), custom_call_target="{target}"{mark(tiling)}""",
        objective="bytes",
    )
    [call] = [i for i in local.module.entry.instructions if i.opcode == "custom-call"]
    assert call.shape.dims[1] == 4096
    assert call.shape.dims[0] < 64
    assert local.warnings == ()
    x = drawn(64, 4096)
    np.testing.assert_array_equal(ran(local, x), x[:, ::-1])


def test_a_dim_of_two_factors_is_split_along_the_major_one() -> None:
    rows: Callable[[np.ndarray], np.ndarray] = lambda x: x.reshape(8, 2, 8)  # noqa: E731
    local = hs.partition(
        module_of(f"""x = f32[8,16] parameter(0){mark("[4,2]<=[8]")}
        ROOT y = f32[8,2,8] custom-call(x), custom_call_target="test_halves"{mark("[4,2,1]<=[8]")}""")
    )
    x = drawn(8, 16)
    np.testing.assert_array_equal(ran(local, x), rows(x))
    assert local.warnings == ()


def test_a_rule_that_came_with_stablehlo_is_followed() -> None:
    text = """module @m attributes {mhlo.num_partitions = 8 : i32} {
      sdy.mesh @mesh = <["x"=8]>
      func.func public @main(%a: tensor<8x6x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}, {"x"}]>},
                             %b: tensor<8x8x4xf32>) -> (tensor<8x6x4xf32>) {
        %c = stablehlo.custom_call @test_unknown(%a, %b) {sdy.sharding_rule = #sdy.op_sharding_rule<
          ([i, j, k], [i, k, l])->([i, j, l]) {i=8, j=6, k=8, l=4} reduction={k}, custom>}
          : (tensor<8x6x8xf32>, tensor<8x8x4xf32>) -> tensor<8x6x4xf32>
        return %c : tensor<8x6x4xf32> } }"""
    module = hs.load(text.replace("rule<\n          (", "rule<("), format="stablehlo")
    local = hs.partition(module)
    assert local.warnings == ()
    [call] = [i for i in local.module.entry.instructions if i.opcode == "custom-call"]
    assert call.operands[0].shape.size == 8 * 6 * 8 / 8
    a, b = drawn(8, 6, 8), drawn(8, 8, 4)
    np.testing.assert_allclose(ran(local, a, b), a @ b, rtol=1e-4, atol=1e-5)
