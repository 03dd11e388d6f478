"""The walk: boundary shardings, causes, and what is refused in words."""

from __future__ import annotations

import numpy as np
import pytest

import hlosharding as hs
from hlosharding.errors import PartitionError
from hlosharding.ir import verify
from tests.support.split_programs import mark, module_of, right, root_dims, split


def test_parameters_and_results_have_the_shape_of_tiles() -> None:
    local = split(f"""
        x = f32[16,6] parameter(0){mark("[2,4]<=[8]")}
        ROOT r = f32[16,6] negate(x){mark("[2,4]<=[8]")}""")
    assert tuple(local.module.entry.parameters[0].shape.dims) == (8, 2)
    assert tuple(root_dims(local)) == (8, 2)
    assert str(local.module.sharding(local.module.entry.root)) == "{devices=[2,4]<=[8]}"
    assert local.module.num_partitions == 8
    verify(local.module)


def test_a_result_without_sharding_is_whole() -> None:
    local = split(f"x = f32[16] parameter(0){mark('[8]<=[8]')}\n ROOT r = f32[16] negate(x)")
    assert tuple(root_dims(local)) == (16,)


def test_a_parameter_may_be_the_result() -> None:
    right(f"ROOT x = f32[9,6] parameter(0){mark('[8,1]<=[8]')}")
    right(f"""
        x = f32[9,6] parameter(0){mark("[8,1]<=[8]")}
        y = f32[9,6] parameter(1){mark("")}
        ROOT t = (f32[9,6], f32[9,6], f32[9,6]) tuple(x, y, x)""")


def test_tuple_parameters_are_taken() -> None:
    local = split("""
        p = (f32[16], f32[8]) parameter(0), sharding={{devices=[8]<=[8]}, {replicated}}
        a = f32[16] get-tuple-element(p), index=0
        ROOT r = f32[16] negate(a), sharding={devices=[8]<=[8]}""")
    assert [tuple(s.dims) for s in local.module.entry.parameters[0].shape.leaves] == [(2,), (8,)]


def test_empty_arrays_and_scalars_are_right() -> None:
    right(f"""
        x = f32[0,6] parameter(0){mark("[1,8]<=[8]")}
        s = f32[] parameter(1){mark("")}
        b = f32[0,6] broadcast(s), dimensions={{}}
        y = f32[0,6] add(x, b)
        z = f32[] constant(3)
        ROOT r = f32[] reduce(y, z), dimensions={{0,1}}, to_apply=add_f32""")


def test_one_device_needs_no_collectives() -> None:
    local = right(
        "x = f32[4] parameter(0), sharding={replicated}\n ROOT r = f32[4] negate(x), sharding={replicated}", devices=1
    )
    assert not local.collectives


def test_every_collective_says_why() -> None:
    local = split(f"""
        x = f32[16,8] parameter(0){mark("[1,8]<=[8]")}
        w = f32[8,24] parameter(1){mark("[8,1]<=[8]")}
        ROOT d = f32[16,24] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{mark("")}""")
    assert [c.cause for c in local.collectives] == ["add of partial results for %d (dot)"]


@pytest.mark.parametrize("sharding", ["{devices=[4]<=[4]}", "{devices=[16]<=[16]}"])
def test_shardings_that_do_not_fit_are_refused_in_words(sharding: str) -> None:
    module = module_of(f"x = f32[16] parameter(0), sharding={sharding}\n ROOT r = f32[16] negate(x)")
    with pytest.raises(PartitionError, match=r"%x") as caught:
        hs.partition(module, num_partitions=8)
    assert "sharding" in str(caught.value)


def test_a_value_of_one_device_is_computed_on_all_and_never_sent() -> None:
    x = np.arange(32.0, dtype=np.float32).reshape(8, 4)
    local = split(f"""
        x = f32[8,4] parameter(0), sharding={{maximal device=2}}
        y = f32[8,4] add(x, x), sharding={{maximal device=1}}
        ROOT z = f32[8,4] negate(y){mark("[8,1]<=[8]")}""")
    assert local.collectives == []
    np.testing.assert_array_equal(local.run(x), -2 * x)


def test_a_device_count_below_one_is_refused() -> None:
    module = module_of("x = f32[16] parameter(0)\n ROOT r = f32[16] negate(x)")
    with pytest.raises(PartitionError, match="num_partitions is 0"):
        hs.partition(module, num_partitions=0)


def test_shardings_of_two_device_counts_are_refused() -> None:
    module = module_of(
        f"x = f32[16] parameter(0){mark('[8]<=[8]')}\n ROOT r = f32[16] negate(x){mark('[4]<=[4]')}", devices=1
    )
    with pytest.raises(PartitionError, match=r"\['4', '8'\]"):
        hs.partition(module)


@pytest.mark.parametrize("op", ["partition-id", "replica-id"])
def test_a_device_number_has_no_meaning_before_partitioning(op: str) -> None:
    with pytest.raises(PartitionError, match=f"{op} has no meaning"):
        split(f"ROOT i = u32[] {op}()")


def test_the_program_given_is_not_changed() -> None:
    module = module_of(f"x = f32[16] parameter(0){mark('[8]<=[8]')}\n ROOT r = f32[16] negate(x)")
    before = module.to_hlo_proto(), dict(module.shardings)
    hs.partition(module)
    assert (module.to_hlo_proto(), module.shardings) == before


def test_replicas_are_refused_and_never_run_as_one() -> None:
    text = """HloModule m, replica_count=4, num_partitions=4
        ENTRY e { ROOT x = f32[8] parameter(0), sharding={devices=[4]<=[4]} }"""
    with pytest.raises(PartitionError, match="runs in 4 replicas"):
        hs.partition(hs.load(text))
    assert hs.partition(hs.load(text.replace("replica_count=4, ", ""))).num_partitions == 4
