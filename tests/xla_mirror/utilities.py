"""Questions to XLA's sharding utilities that mirror its tests of them: our own tiles and sizes, live XLA's answers.

A question names a utility as XLA does and gives its arguments; `tests.oracle.sharding_cases` knows how ours is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
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


_RESHAPES: dict[str, tuple[str, str, tuple[int, ...], tuple[int, ...], bool]] = {
    # our name: XLA's, tiles, sizes before and after, also backwards?
    "split_size_one_in_front": ("DimensionSizeOnePartitioned1", "[5,3,2]", (1, 3, 20), (3, 20), False),
    "split_size_one_between": ("DimensionSizeOnePartitioned2", "[3,5,2]", (3, 1, 20), (3, 20), False),
    "split_size_one_between_merged": ("DimensionSizeOnePartitioned3", "[3,5,2]", (3, 1, 20), (60,), False),
    "split_size_one_taken_up": ("DimensionSizeOnePartitioned4", "[5,6]", (1, 30), (3, 10), False),
    "split_sizes_one_kept": ("DimensionSizeOnePartitioned5", "[2,3,6]", (1, 1, 30), (1, 1, 3, 10), False),
    "nothing_fits": ("TiledInvalid", "[1,7,1]", (2, 7, 3), (7, 3, 2), False),
    "merge_of_dims": ("TiledMerge", "[3,1,1]", (6, 5, 4), (30, 4), False),
    "split_of_a_dim": ("TiledSplit", "[3,1]", (18, 5), (6, 3, 5), False),
    "split_over_both_parts": ("TiledSplit2", "[18,1]", (18, 5), (6, 3, 5), False),
    "split_that_fits_in_part": ("TiledSplit3", "[4]", (100,), (10, 10), False),
    "split_and_merge": ("TiledSplitThenMerge", "[3,1,1]", (18, 4, 5), (6, 12, 5), False),
    "minor_dims_do_not_matter": ("TiledArbitraryMinorDimensions", "[3,1,1,1]", (18, 7, 5, 2), (6, 10, 3, 7), False),
    "size_one_moves": ("TiledTrivialDimensions", "[1,1,3,1]", (4, 1, 6, 5), (4, 6, 1, 5), False),
    "size_one_at_the_end": ("TrivialDimensionInsertedToEnd", "[3,1]", (9, 10), (9, 10, 1), False),
    "same_shape_uneven": ("NoopReshapeShardingEmptyTile", "[3,1,1]", (5, 1, 1), (5, 1, 1), False),
    "to_a_scalar": ("Scalar", "[3,1,1]", (1, 1, 1), (), False),
    "sizes_one_behind": ("SuffixShapeSizeOne1", "[5,1,1]", (45, 1, 1), (45, 1), True),
    "split_sizes_one_behind": ("SuffixShapeSizeOne2", "[5,2,3]", (45, 1, 1), (45, 1), False),
    "one_more_size_one_behind": ("SuffixShapeSizeOne3", "[5,2]", (45, 1), (45, 1, 1), False),
    "split_size_one_behind_dropped": ("SuffixShapeSizeOne4", "[5,3,2]", (5, 3, 1), (5, 3), False),
    "sizes_one_in_front": ("PrefixShapeSizeOne1", "[1,1,5]", (1, 1, 45), (1, 45), True),
    "split_sizes_one_in_front": ("PrefixShapeSizeOne2", "[3,1,1]", (1, 1, 45), (1, 45), True),
    "regrouped_dims": ("Transpose1", "[2,1,7]", (10, 2, 7), (4, 5, 7), False),
    "three_into_one": ("Transpose2", "[3,1,1,1,11]", (3, 2, 7, 5, 4), (21, 10, 4), False),
    "minor_into_major": ("Transpose3", "[1,1,7]", (3, 2, 7), (2, 21), False),
    "many_dims_regrouped": (
        "Transpose4", "[1,1,5,1,1,11,1,1]", (3, 2, 5, 7, 4, 11, 9, 13), (2, 3, 20, 77, 13, 9), False,
    ),
}  # fmt: skip


def _reshapes() -> Iterator[Questions]:
    for name, (xla, ways, before, after, both) in _RESHAPES.items():
        count = eval_product(ways)
        calls: list[Call] = [("ReshapeSharding", [array(*before), array(*after), tiles(f"{ways}<=[{count}]")])]
        if both:
            kept = [n for n in ways.strip("[]").split(",") if n != "1"][0]
            back = f"[{kept},1]" if before[0] != 1 or xla.endswith("Two") or after[0] == int(kept) else f"[1,{kept}]"
            calls.append(("ReshapeSharding", [array(*after), array(*before), tiles(f"{back}<=[{count}]")]))
        full = xla if xla.startswith("Noop") else f"ReshapeSharding{xla}"
        yield Questions(f"reshape_{name}", full, tuple(calls))
    maximal = {"sharding": "{maximal device=4}"}
    call = ("ReshapeSharding", [array(2, 7, 3), array(7, 3, 2), maximal])
    yield Questions("reshape_on_one_device", "ReshapeShardingMaximal", (call,))
