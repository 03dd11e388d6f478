"""Questions to XLA's sharding utilities that mirror its tests of them: our own tiles and sizes, live XLA's answers.

A question names a utility as XLA does and gives its arguments; `tests.oracle.sharding_cases` knows how ours is asked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Call = tuple[str, list[Any]]


@dataclass(frozen=True, slots=True)
class Questions:
    """One of our tests: what is asked, and which of XLA's tests asks alike."""

    name: str
    mirrors: str
    calls: tuple[Call, ...]


def tiles(text: str) -> dict[str, str]:
    """A tiled sharding, from what stands behind `devices=`."""
    return {"sharding": f"{{devices={text}}}"}


def partial(text: str) -> dict[str, str]:
    """Tiles of which the last dim is replicated."""
    return {"sharding": f"{{devices={text} last_tile_dim_replicate}}"}


def array(*sizes: int) -> dict[str, str]:
    """An array's shape."""
    return {"shape": f"f32[{','.join(map(str, sizes))}]"}


WHOLE = {"sharding": "{replicated}"}


def _merges() -> Iterator[Questions]:
    by_minor = "[1,3,2,12]<=[12,6]T(1,0)"
    pairs = {
        "of_minor_and_major_devices": (partial(by_minor), partial("[4,1,1,18]<=[72]")),
        "of_swapped_ways": (partial("[1,2,3,12]<=[12,6]T(1,0)"), partial("[4,1,1,18]<=[72]")),
        "of_major_into_a_later_dim": (partial("[3,2,1,12]<=[12,6]T(1,0)"), partial("[1,1,4,18]<=[72]")),
        "of_middle_devices": (partial(by_minor), partial("[4,1,1,18]<=[3,24]T(1,0)")),
        "of_clashing_minor_devices": (partial(by_minor), partial("[4,1,1,18]<=[18,4]T(1,0)")),
        "of_clashing_major_devices": (partial("[1,3,2,12]<=[72]"), partial("[4,1,1,18]<=[72]")),
        "that_leaves_no_copies": (partial("[3,1,2,2]<=[2,2,3]T(2,1,0)"), partial("[1,2,1,6]<=[12]")),
        "with_a_reversed_device_order": (partial("[3,1,4]<=[12]"), partial("[1,4,3]<=[3,2,2]T(2,1,0)")),
    }
    for number, (name, pair) in enumerate(pairs.items(), start=1):
        call = ("MergeShardingIfCompatible", list(pair))
        yield Questions(f"merge_{name}", f"MergeShardingIfCompatible{number}", (call,))
    both = {"sharding": "{devices=[6,5]<=[30] last_tile_dims={manual, replicated}}"}
    yield Questions(
        "merge_of_a_manual_subgroup_with_itself",
        "MergeManualSubgroupSharding",
        (("MergeShardingIfCompatible", [both, both]),),
    )


def _moves() -> Iterator[Questions]:
    copies = partial("[3,2,4,5,7]<=[840]")
    manual = {"sharding": "{devices=[3,2,4,5,7]<=[840] last_tile_dims={manual, replicated}}"}
    move = "MoveAndMergeShardingTiles"
    there_and_back = ((move, [copies, 1, 3]), (move, [copies, 3, 1]))
    yield Questions("move_tiles_beside_copies", "MoveAndMergeShardingTilesPartialTile", there_and_back)
    there_and_back = ((move, [manual, 0, 2]), (move, [manual, 2, 0]))
    yield Questions("move_tiles_beside_a_subgroup", "MoveAndMergeShardingTilesSubGroup", there_and_back)


def _transposes() -> Iterator[Questions]:
    turn = "TransposeSharding"
    yield Questions("transpose_of_a_whole_array", "TransposeShardingReplicated", ((turn, [WHOLE, [2, 0, 1]]),))
    yield Questions("transpose_of_tiles", "TransposeShardingTiled", ((turn, [tiles("[3,1,1,2]<=[6]"), [3, 1, 0, 2]]),))
    manual = {"sharding": "{devices=[1,3,2]<=[6] last_tile_dims={manual}}"}
    yield Questions(
        "transpose_that_collapses_a_dim",
        "TransposeShardingWithCollapsedDimsSubgroupManual",
        (("TransposeShardingWithCollapsedDims", [manual, [-1, 2], [-1, -1, 1]]),),
    )


_RESHAPES = """
    # our name, XLA's test, tiles, sizes before, sizes after; a name that comes twice asks twice
    split_size_one_in_front ReshapeShardingDimensionSizeOnePartitioned1 [5,3,2]<=[30] 1,3,20 3,20
    split_size_one_between ReshapeShardingDimensionSizeOnePartitioned2 [3,5,2]<=[30] 3,1,20 3,20
    split_size_one_between_merged ReshapeShardingDimensionSizeOnePartitioned3 [3,5,2]<=[30] 3,1,20 60
    split_size_one_taken_up ReshapeShardingDimensionSizeOnePartitioned4 [5,6]<=[30] 1,30 3,10
    split_sizes_one_kept ReshapeShardingDimensionSizeOnePartitioned5 [2,3,6]<=[36] 1,1,30 1,1,3,10
    nothing_fits ReshapeShardingTiledInvalid [1,7,1]<=[7] 2,7,3 7,3,2
    merge_of_dims ReshapeShardingTiledMerge [3,1,1]<=[3] 6,5,4 30,4
    split_of_a_dim ReshapeShardingTiledSplit [3,1]<=[3] 18,5 6,3,5
    split_over_both_parts ReshapeShardingTiledSplit2 [18,1]<=[18] 18,5 6,3,5
    split_that_fits_in_part ReshapeShardingTiledSplit3 [4]<=[4] 100 10,10
    split_and_merge ReshapeShardingTiledSplitThenMerge [3,1,1]<=[3] 18,4,5 6,12,5
    minor_dims_do_not_matter ReshapeShardingTiledArbitraryMinorDimensions [3,1,1,1]<=[3] 18,7,5,2 6,10,3,7
    size_one_moves ReshapeShardingTiledTrivialDimensions [1,1,3,1]<=[3] 4,1,6,5 4,6,1,5
    size_one_at_the_end ReshapeShardingTrivialDimensionInsertedToEnd [3,1]<=[3] 9,10 9,10,1
    same_shape_uneven NoopReshapeShardingEmptyTile [3,1,1]<=[3] 5,1,1 5,1,1
    to_a_scalar ReshapeShardingScalar [3,1,1]<=[3] 1,1,1 -
    sizes_one_behind ReshapeShardingSuffixShapeSizeOne1 [5,1,1]<=[5] 45,1,1 45,1
    sizes_one_behind ReshapeShardingSuffixShapeSizeOne1 [5,1]<=[5] 45,1 45,1,1
    split_sizes_one_behind ReshapeShardingSuffixShapeSizeOne2 [5,2,3]<=[30] 45,1,1 45,1
    one_more_size_one_behind ReshapeShardingSuffixShapeSizeOne3 [5,2]<=[10] 45,1 45,1,1
    split_size_one_behind_dropped ReshapeShardingSuffixShapeSizeOne4 [5,3,2]<=[30] 5,3,1 5,3
    sizes_one_in_front ReshapeShardingPrefixShapeSizeOne1 [1,1,5]<=[5] 1,1,45 1,45
    sizes_one_in_front ReshapeShardingPrefixShapeSizeOne1 [1,5]<=[5] 1,45 1,1,45
    split_sizes_one_in_front ReshapeShardingPrefixShapeSizeOne2 [3,1,1]<=[3] 1,1,45 1,45
    split_sizes_one_in_front ReshapeShardingPrefixShapeSizeOne2 [3,1]<=[3] 1,45 1,1,45
    regrouped_dims ReshapeShardingTranspose1 [2,1,7]<=[14] 10,2,7 4,5,7
    pairs_into_one ReshapeShardingTranspose2 [3,1,1,1,11]<=[33] 3,2,7,5,4 21,10,4
    minor_into_major ReshapeShardingTranspose3 [1,1,7]<=[7] 3,2,7 2,21
    many_dims_regrouped ReshapeShardingTranspose4 [1,1,5,1,1,11,1,1]<=[55] 3,2,5,7,4,11,9,13 2,3,20,77,13,9
"""

_PROPAGATED_RESHAPES = """
    split_in_part PropagateReshapeShardingTranspose1 [10,1]<=[10] 10,6 2,3,5,2
    common_factor PropagateReshapeShardingTranspose2 [10,1]<=[10] 10,6 6,10
    common_factor_of_two_dims PropagateReshapeShardingTranspose3 [3,10,1]<=[30] 6,10,7 3,2,2,7,5
    second_dim_only PropagateReshapeShardingTiledSplitPartialMatch [4,8]<=[32] 22,24 2,11,4,6
    merged_and_second_dim PropagateReshapeShardingTiledMergeSplitPartialMatch [3,2,4,8]<=[192] 3,2,22,24 6,2,11,4,6
"""


def _rows(table: str) -> Iterator[list[str]]:
    return (line.split() for line in table.strip().splitlines() if not line.strip().startswith("#"))


def _sizes(text: str) -> tuple[int, ...]:
    return () if text == "-" else tuple(map(int, text.split(",")))


def _reshapes(utility: str, prefix: str, table: str) -> Iterator[Questions]:
    asked: dict[tuple[str, str], list[Call]] = defaultdict(list)
    for name, xla, ways, before, after in _rows(table):
        asked[name, xla].append((utility, [array(*_sizes(before)), array(*_sizes(after)), tiles(ways)]))
    for (name, xla), calls in asked.items():
        yield Questions(f"{prefix}_{name}", xla, tuple(calls))


def _more_reshapes() -> Iterator[Questions]:
    maximal = {"sharding": "{maximal device=4}"}
    call = ("ReshapeSharding", [array(2, 7, 3), array(7, 3, 2), maximal])
    yield Questions("reshape_on_one_device", "ReshapeShardingMaximal", (call,))
    manual = {"sharding": "{devices=[4,8,3]<=[96] last_tile_dims={manual}}"}
    call = ("PropagateShardingThroughReshape", [array(22, 24), array(2, 11, 4, 6), manual])
    yield Questions("propagated_beside_a_subgroup", "PropagateReshapeShardingTiledSplitPartialMatchManual", (call,))


def _along_dims() -> Iterator[Questions]:
    along, source = "PropagateShardingAlongDimsAndReplicateOthers", tiles("[2,3,4,5,7]<=[840]")
    yield Questions("along_dims_out_of_order", f"{along}1", ((along, [source, [3, 4, 1], [2, 1, 3], 5]),))
    yield Questions("along_dims_in_order", f"{along}2", ((along, [source, [1, 2, 4], [0, 1, 2], 3]),))
    yield Questions("along_dims_with_a_gap", f"{along}3", ((along, [source, [4, 2, 0], [0, 1, 3], 4]),))


def _subtiling(name: str, xla: str, shapes: Iterable[Sequence[int]], fine: Iterable[Any], coarse: Any) -> Questions:
    """Is each of `fine` a sub-tiling of `coarse`, for each shape?"""
    test = "IsSubTilingOrEqualSharding"
    calls = tuple((test, [array(*sizes), one, coarse]) for sizes in shapes for one in fine)
    return Questions(f"subtiling_{name}", xla, calls)


def _subtilings() -> Iterator[Questions]:
    odd, even = [(65, 99)], [(66, 99)]
    rows, columns = tiles("[6,1]<=[6]"), tiles("[1,6]<=[6]")
    in_part = partial("[2,3]<=[6]")
    yield _subtiling("of_a_whole_array", "IsSubShardingTiledReplicated", odd, [rows], WHOLE)
    yield _subtiling("by_a_whole_array", "IsSubShardingReplicatedTiled", odd, [WHOLE], rows)
    yield _subtiling("copies_of_a_whole_array", "IsSubShardingTiledPartialReplicated", odd, [in_part], WHOLE)
    yield _subtiling("whole_array_of_copies", "IsSubShardingReplicatedTiledPartial", odd, [WHOLE], in_part)
    yield _subtiling("rank_of_copies_differs", "IsSubShardingPartialTiledTiled", odd, [rows], partial("[3,2]<=[6]"))
    yield _subtiling("across", "IsSubShardingIncompatibleTiled", odd, [columns], rows)
    rows_in_part = partial("[2,1,3]<=[6]")
    yield _subtiling("uneven_size", "IsSubShardingIncompatibleShapeTiledPartialTiled", [(64, 99)], [rows], rows_in_part)
    yield _subtiling("even_size", "IsSubShardingCompatibleShapeTiledPartialTiled", even, [rows], rows_in_part)
    line, coarse = tiles("[6]<=[6]"), partial("[2,3]<=[6]")
    every = [(n,) for n in range(1, 31)]
    yield _subtiling("of_every_size", "IsSubTilingOrEqualShardingNoShortcut", every, [line], coarse)
    twelve = [(12,)]
    yield _subtiling("same_order", "IsSubTilingOrEqualShardingShortcut1", twelve, [line], coarse)
    mixed = tiles("[6]1,0,2,3,5,4")
    yield _subtiling("mixed_within_a_tile", "IsSubTilingOrEqualShardingShortcut2", twelve, [mixed], coarse)
    turned = tiles("[6]<=[3,2]T(1,0)")
    yield _subtiling("other_order", "IsSubTilingOrEqualShardingShortcut3", twelve, [turned], coarse)
    both = partial("[2,3]<=[3,2]T(1,0)")
    yield _subtiling("other_order_of_both", "IsSubTilingOrEqualShardingShortcut4", twelve, [turned], both)


def _larger_subtilings() -> Iterator[Questions]:
    orders = ("<=[3,2,5,7]T(0,1,3,2)", "<=[3,2,5,7]T(0,2,3,1)", "<=[210]")
    yield _subtiling(
        "copies_taken_up_by_one_dim",
        "IsSubTilingOrEqualShardingShortcut5",
        [(12, 42, 10), (13, 41, 11)],
        [tiles(f"[3,14,5]{order}") for order in orders],
        partial("[3,2,5,7]<=[210]"),
    )
    orders = (
        "<=[2,3,5,7,4,9]T(0,3,1,2,4,5)",
        "<=[2,3,5,4,7,9]T(0,4,1,2,3,5)",
        "<=[2,3,5,9,7,4]T(0,4,1,2,5,3)",
        "<=[2,3,5,7,9,4]T(0,3,1,2,5,4)",
        "<=[7560]",
    )
    yield _subtiling(
        "copies_taken_up_by_two_dims",
        "IsSubTilingOrEqualShardingShortcut6",
        [(14, 9, 20), (13, 4, 19)],
        [partial(f"[14,3,20,9]{order}") for order in orders],
        partial("[2,3,5,252]<=[7560]"),
    )
    yield _subtiling(
        "whole_dims_become_split",
        "IsSubTilingOrEqualShardingShortcut7",
        [(5, 2, 7, 3), (2, 2, 9, 3)],
        [partial("[5,2,7,3,4]<=[2,3,5,7,4]T(2,0,3,1,4)")],
        partial("[1,2,1,3,140]<=[840]"),
    )


def all_questions() -> tuple[Questions, ...]:
    """Every question, in the order of XLA's file."""
    return (
        *_merges(),
        *_moves(),
        *_transposes(),
        *_reshapes("ReshapeSharding", "reshape", _RESHAPES),
        *_reshapes("PropagateShardingThroughReshape", "propagated", _PROPAGATED_RESHAPES),
        *_more_reshapes(),
        *_along_dims(),
        *_subtilings(),
        *_larger_subtilings(),
    )
