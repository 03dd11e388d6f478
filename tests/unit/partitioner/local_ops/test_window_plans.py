"""What pieces of a windowed dim need: plans by hand."""

from __future__ import annotations

import pytest

from hlosharding.ir import Builder, Shape, WindowDim
from hlosharding.partitioner.local_ops.window_plans import (
    HaloPlan,
    cut_out,
    selection_plan,
    split_result_plan,
    split_window_plan,
)
from hlosharding.spmd import Emitter, Program


def plan(window: WindowDim, size: int, result: int, ways: int) -> HaloPlan:
    found = split_result_plan(window, size, result, ways)
    assert found is not None
    return found


def test_a_centred_window_needs_one_element_of_each_side() -> None:
    found = plan(WindowDim(size=3, padding_low=1, padding_high=1), 16, 16, 4)
    assert (found.left, found.right, found.count) == (1, 1, 6)
    assert found.starts == (-1, 3, 7, 11)


def test_windows_that_do_not_overlap_need_nothing() -> None:
    found = plan(WindowDim(size=2, stride=2), 16, 8, 4)
    assert (found.left, found.right, found.count) == (0, 0, 4)


def test_a_causal_window_looks_back_only() -> None:
    found = plan(WindowDim(size=4, padding_low=3), 16, 16, 4)
    assert (found.left, found.right, found.count) == (3, 0, 7)


def test_dilated_taps_reach_further() -> None:
    found = plan(WindowDim(size=3, padding_low=2, padding_high=2, window_dilation=2), 16, 16, 4)
    assert (found.left, found.right) == (2, 2)


def test_a_slice_that_shifts_moves_its_start() -> None:
    # slice [3:15] of 16 over 4: three results each, from 3, 6, 9 and 12 on.
    found = plan(WindowDim(size=1, padding_low=-3), 16, 12, 4)
    assert found.starts == (3, 6, 9, 12)
    # Element 3 lies on piece 0, but 4 and 5 do not.
    assert (found.left, found.right) == (0, 2)


def test_uneven_tiles_end_inside() -> None:
    found = plan(WindowDim(size=3, padding_low=1, padding_high=1), 10, 10, 4)
    assert (found.tile, found.count) == (3, 5)
    assert (found.left, found.right) == (1, 1)


def test_a_window_over_most_of_the_array_is_far() -> None:
    assert plan(WindowDim(size=31, padding_low=15, padding_high=15), 16, 16, 8).is_far
    assert not plan(WindowDim(size=3, padding_low=1, padding_high=1), 16, 16, 8).is_far


def test_pieces_out_of_step_with_a_dilation_begin_early() -> None:
    # Three results each; the input lies on every second place: pieces 1 and 3 begin on a gap, one result early.
    found = plan(WindowDim(size=1, base_dilation=2), 6, 11, 4)
    assert found.lags == (0, 1, 0, 1)
    assert found.starts == (0, 1, 3, 4)
    # Of four places from 0, 2, 6 and 8 on each sees two elements.
    assert found.count == 2
    # Tiles of two: the third piece needs element 3, the last one element 5.
    assert (found.left, found.right) == (1, 0)


def test_a_stride_brings_pieces_back_into_step() -> None:
    # Dilated by 4, every sixth place: results alternate between places 0 and 2 of the gap.
    found = plan(WindowDim(size=1, stride=6, base_dilation=4), 16, 11, 4)
    assert found.lags == (0, 1, 0, 1)


def test_each_piece_holds_its_taps() -> None:
    window = WindowDim(size=8, padding_low=1, padding_high=1)
    found = split_window_plan(window, 8, 3, 4)
    assert found is not None
    assert found.window.size == 2
    # Piece p sees taps 2p and 2p + 1 of three results: four places from 2p - 1 on.
    assert found.starts == (-1, 1, 3, 5)
    assert found.count == 4


def test_the_last_piece_may_hold_fewer_taps() -> None:
    found = split_window_plan(WindowDim(size=5, padding_low=1, window_dilation=2), 10, 3, 2)
    assert found is not None
    # Taps 0, 1, 2 of results 0, 1, 2 see places -1 to 5; taps 3 and 4 places 5 to 9.
    assert found.needed == ((0, 6), (5, 10))
    assert (found.left, found.right) == (0, 1)


def test_taps_that_no_stride_brings_into_step_are_not_split() -> None:
    # Dilated by 2, every second place: the first tap sees elements, the second one gaps.
    assert split_window_plan(WindowDim(size=2, stride=2, base_dilation=2), 4, 4, 2) is None


def test_taps_of_a_reversed_window_meet_the_operand_from_its_end() -> None:
    found = split_window_plan(WindowDim(size=5, window_reversal=True), 5, 1, 2)
    assert found is not None
    # The first piece holds elements 3 and 4 of the kernel, which meet places 1 and 0.
    assert found.starts == (-1, 2)
    assert found.needed == ((0, 2), (2, 5))


@pytest.mark.parametrize("ways", [2, 4])
def test_windows_that_select_in_their_own_tile_need_nothing(ways: int) -> None:
    found = selection_plan(WindowDim(size=2, stride=2), 16, 8, ways)
    assert found is not None
    operand, source, begins = found
    assert (operand.left, operand.right, source.left, source.right, set(begins)) == (0, 0, 0, 0, {0})


def test_overlapping_windows_come_with_all_their_elements() -> None:
    # Windows of 3 every 2, tiles of 4: the window before touches element 0, the last one reaches behind.
    found = selection_plan(WindowDim(size=3, stride=2, padding_high=1), 16, 8, 4)
    assert found is not None
    operand, source, begins = found
    assert (operand.left, operand.right) == (2, 1)
    assert (source.left, source.right) == (1, 0)
    assert begins == (2, 2, 2, 2)


def test_tiles_out_of_step_with_the_stride_begin_at_their_own_windows() -> None:
    # Windows of 2 side by side, tiles of 3: the second tile begins inside window 1, the last one inside window 4.
    found = selection_plan(WindowDim(size=2, stride=2), 12, 6, 4)
    assert found is not None
    operand, source, begins = found
    assert begins == (0, 1, 0, 1)
    assert operand.needed == ((0, 4), (2, 6), (6, 10), (8, 12))
    assert source.needed == ((0, 2), (1, 3), (3, 5), (4, 6))


@pytest.mark.parametrize(("far", "kind"), [(1 << 30, "s32[]"), (1 << 32, "s64[]")])
def test_starts_of_a_cut_are_of_one_type(far: int, kind: str) -> None:
    """As HLO asks, also where 32 bits are too few for some."""
    program = Program(Builder("m", num_partitions=2), 2)
    body = program.builder.computation("main")
    cut = cut_out(Emitter(program, body), body.parameter(0, Shape.array("s8", (2 * far, 2))), 0, [3, far], 8)
    assert {str(start.shape) for start in cut.operands[1:]} == {kind}
