"""The two credits of the ideal figure, on modules whose bytes are counted by hand: 100 f32 on four devices."""

from __future__ import annotations

from benchmarks.ideal import ideal_bytes
from hlosharding.ir import Builder, ComputationBuilder, Instruction, Module, Shape

BUFFER = Shape.array("f32", (100,))
PAIRS, OTHER_PAIRS, ALL = ((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 1, 2, 3),)


def begin() -> tuple[Builder, ComputationBuilder, Instruction]:
    builder = Builder("m", num_partitions=4)
    main = builder.computation("main")
    return builder, main, main.parameter(0, BUFFER)


def reduced(main: ComputationBuilder, x: Instruction, groups: tuple[tuple[int, ...], ...]) -> Instruction:
    return main.add("all-reduce", BUFFER, (x,), replica_groups=groups, channel_id=1, use_global_device_ids=True)


def own_quarter(main: ComputationBuilder, x: Instruction) -> Instruction:
    start = main.parameter(1, Shape.array("s32", ()))
    return main.add("dynamic-slice", Shape.array("f32", (25,)), (x, start), dynamic_slice_sizes=(25,))


def ideal(builder: Builder, main: ComputationBuilder) -> float:
    module: Module = builder.finish(main)
    return ideal_bytes(module)


def test_one_all_reduce_has_no_credit() -> None:
    builder, main, x = begin()
    reduced(main, x, ALL)
    assert ideal(builder, main) == 2 * 3 / 4 * 400


def test_all_reduces_in_a_row_count_as_one_over_all_devices() -> None:
    builder, main, x = begin()
    reduced(main, reduced(main, x, PAIRS), OTHER_PAIRS)
    assert ideal(builder, main) == 2 * 3 / 4 * 400  # as they stand: 400 + 400


def test_all_reduces_in_a_row_keep_their_bytes_when_the_first_is_read_again() -> None:
    builder, main, x = begin()
    first = reduced(main, x, PAIRS)
    second = reduced(main, first, OTHER_PAIRS)
    main.add("add", BUFFER, (first, second))
    assert ideal(builder, main) == 400 + 400


def test_a_slice_of_the_own_part_makes_a_reduce_scatter() -> None:
    builder, main, x = begin()
    own_quarter(main, reduced(main, x, ALL))
    assert ideal(builder, main) == 3 / 4 * 400


def test_both_credits_together() -> None:
    builder, main, x = begin()
    own_quarter(main, reduced(main, reduced(main, x, PAIRS), OTHER_PAIRS))
    assert ideal(builder, main) == 3 / 4 * 400


def test_a_slice_of_another_size_is_none() -> None:
    builder, main, x = begin()
    own_quarter(main, reduced(main, x, PAIRS))  # a half would be
    assert ideal(builder, main) == 400
