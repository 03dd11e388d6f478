"""What lies past the end of an uneven dim."""

from __future__ import annotations

import numpy as np
import pytest

from hlosharding import load, partition, verify_partitioned
from hlosharding.errors import PartitionError
from hlosharding.ir import Builder, Shape
from hlosharding.partitioner import PartitionOptions
from hlosharding.sharding import HloSharding
from hlosharding.spmd import Emitter, Program, identity, mask_padding
from hlosharding.xla_bridge import run_proto


def test_an_unknown_reduction_has_none() -> None:
    with pytest.raises(PartitionError, match="no neutral element"):
        identity("assign", Shape.array("f32"))


def test_padding_is_replaced_on_the_devices_that_have_some() -> None:
    # Seven rows over four devices in reverse order: device 0 holds row 6 and one row of padding.
    builder = Builder("m", num_partitions=4)
    main = builder.computation("main")
    x = main.parameter(0, Shape.array("f32", (2, 3)))
    sharding = HloSharding.parse("{devices=[4,1]3,2,1,0}")
    emitter = Emitter(Program(builder, 4), main)
    main.root(mask_padding(emitter, x, Shape.array("f32", (7, 3)), sharding, (0,), np.float32(-1)))
    garbage = [np.full((2, 3), np.nan, np.float32) for _ in range(4)]
    found = run_proto(builder.finish(main).to_hlo_proto(), [garbage], 4)[0]
    assert [[float(row[0]) == -1 for row in tile] for tile in found] == [
        [False, True],
        [False, False],
        [False, False],
        [False, False],
    ]


BEYOND = 2**33
PIECES = "sharding={devices=[8]<=[8]}"
LONG = {
    "reduce-window": (BEYOND - 2, "reduce-window(x, zero), window={size=3}, to_apply=add"),
    "padded": (BEYOND, "reduce-window(x, zero), window={size=3 pad=1_1}, to_apply=add"),
    "strides": (BEYOND // 2, "reduce-window(x, zero), window={size=3 stride=2 pad=1_0}, to_apply=add"),
    "concatenate": (2 * BEYOND, "concatenate(x, x), dimensions={0}"),
    "spread": (2 * BEYOND - 1, "pad(x, zero), padding=0_0_1"),
    "scatter": (BEYOND, "scatter(x, first, y), update_window_dims={0}, inserted_window_dims={},"
                " scatter_dims_to_operand_dims={0}, index_vector_dim=0, to_apply=second"),
}  # fmt: skip


@pytest.mark.parametrize("name", LONG)
def test_places_past_32_bits_are_of_64(name: str) -> None:
    """Nothing so long runs here: XLA's parser and the laws of programs say that the text is one."""
    size, op = LONG[name]
    local = partition(
        load(f"""HloModule m, num_partitions=8
        add {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }}
        second {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] copy(b) }}
        ENTRY e {{
          x = f32[{BEYOND}] parameter(0), {PIECES}
          y = f32[{BEYOND - 5 * 10**9}] parameter(1)
          zero = f32[] constant(0)
          first = s64[1] constant({{{5 * 10**9}}})
          ROOT r = f32[{size}] {op}, {PIECES}
        }}""")
    )
    verify_partitioned(local.module)
    assert load(local.to_hlo_text()).num_partitions == 8


def test_so_are_those_of_tiles_that_are_passed_on() -> None:
    local = partition(
        load(f"""HloModule m, num_partitions=8
        ENTRY e {{
          a = bf16[{BEYOND},4096] parameter(0), sharding={{devices=[1,8]<=[8]}}
          b = bf16[4096,64] parameter(1), sharding={{devices=[8,1]<=[8]}}
          ROOT r = bf16[{BEYOND},64] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},
            sharding={{devices=[8,1]<=[8]}}
        }}"""),
        options=PartitionOptions(overlap="always"),
    )
    verify_partitioned(local.module)
    assert any(inst.opcode == "while" for inst in local.module.instructions)
    assert local.to_hlo_text()
