"""Values that a single op reads, which wants them otherwise, are made as it wants them."""

from __future__ import annotations

import numpy as np
import pytest

import hlosharding as hs
from hlosharding.partitioner import PartitionOptions
from hlosharding.reshard.objectives import Objective
from tests.support.split_programs import mark, module_of, right

ROWS, COLUMNS = "[8,1]<=[8]", "[1,8]<=[8]"
OPERANDS = f"x = f32[64,64] parameter(0){mark(ROWS)}\n y = f32[64,64] parameter(1){mark(COLUMNS)}\n"


@pytest.mark.parametrize(
    "end",
    [
        f"ROOT t = (f32[64,64]) tuple(z), sharding={{{{devices={COLUMNS}}}}}",
        f"t = (f32[64,64]) tuple(z), sharding={{{{devices={COLUMNS}}}}}\n"
        f" ROOT r = f32[64,64] get-tuple-element(t), index=0{mark(COLUMNS)}",
    ],
)
def test_a_result_is_made_as_the_program_gives_it_back(end: str) -> None:
    local = right(f"{OPERANDS} z = f32[64,64] add(x, y)\n {end}")
    # x goes to y's columns; the sum would have gone there, too, had it been made by rows.
    assert local.comm_bytes_per_device == 64 * 64 * 4 / 8 * 7 / 8
    [override] = local.sharding_overrides
    assert (override.name, override.why) == ("z", "its only reader wants it so")
    assert override.chosen == hs.HloSharding.parse(f"{{devices={COLUMNS}}}")


def test_what_the_user_annotated_stays() -> None:
    module = module_of(
        f"{OPERANDS} z = f32[64,64] add(x, y){mark(ROWS)}\n"
        f" ROOT t = (f32[64,64]) tuple(z), sharding={{{{devices={COLUMNS}}}}}"
    )
    local = hs.partition(hs.propagate(module))
    assert local.sharding_overrides == ()
    assert local.comm_bytes_per_device == 2 * 64 * 64 * 4 / 8 * 7 / 8


def test_what_others_read_stays() -> None:
    local = right(f"""{OPERANDS} z = f32[64,64] add(x, y)
        n = f32[64,64] negate(z)
        ROOT t = (f32[64,64], f32[64,64]) tuple(z, n), sharding={{{{devices={COLUMNS}}}, {{devices={ROWS}}}}}""")
    assert "z" not in [o.name for o in local.sharding_overrides]


@pytest.mark.parametrize("objective", ["bytes", "time"])
def test_a_tuple_holds_results_as_they_are_given_back(objective: Objective) -> None:
    made, wanted = "[4,2]<=[2,4]T(1,0)", "[2,4]<=[8]"
    module = hs.propagate(
        module_of(f"""x = f32[48,256] parameter(0){mark("[2,1,4]<=[8] copies")}
            y = f32[48,256] parameter(1){mark(made)}
            z = f32[48,256] add(x, y)
            t = (f32[48,256]) tuple(z)
            ROOT r = f32[48,256] get-tuple-element(t), index=0{mark(wanted)}""")
    )
    local = hs.partition(module, options=PartitionOptions(objective=objective))
    # x is cut where it lies: y alone moves, to where the sum is wanted.
    ends = [hs.HloSharding.parse(f"{{devices={tiling}}}") for tiling in (made, wanted)]
    alone = hs.plan_reshard((48, 256), "f32", *ends, num_devices=8, objective=objective)
    assert local.comm_bytes_per_device <= alone.mean_received_bytes
    assert hs.cost(local, combine=False).comm_s <= 1.001 * alone.predicted_s


def test_a_program_that_gives_nothing_back() -> None:
    text = "HloModule m, num_partitions=8\nENTRY e {\n  x = f32[64,64] parameter(0)\n  ROOT r = () tuple()\n}"
    module = hs.load(text)
    module.shardings[module.by_name("x").id] = hs.HloSharding.parse(f"{{devices={ROWS}}}")
    assert hs.partition(hs.propagate(module, to_outputs=True)).collectives == []


def test_a_result_that_may_have_any_sharding_is_made_whole_as_it_is_given_back() -> None:
    """XLA reduces 13 partial counts; to split them by rows, and gather them, takes two collectives for one."""
    local = right(
        f"""
        i = s32[8192,1] parameter(0){mark("[2,1,4]<=[8] copies")}
        one = f32[] constant(1)
        u = f32[8192] broadcast(one), dimensions={{}}
        zero = f32[] constant(0)
        z = f32[13] broadcast(zero), dimensions={{}}
        ROOT s = f32[13] scatter(z, i, u), update_window_dims={{}}, inserted_window_dims={{0}},
          scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=add_f32""",
        np.arange(8192, dtype=np.int32).reshape(8192, 1) * 7 % 13,
    )
    assert len(local.collectives) == 1
