"""What lies past the end of an uneven dim."""

from __future__ import annotations

import numpy as np
import pytest

from hlosharding.errors import PartitionError
from hlosharding.ir import Builder, Shape
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
