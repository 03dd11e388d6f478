"""MLIR's `shard` dialect, in the forms of its own documentation and tests."""

from __future__ import annotations

import pytest

import hlosharding as hs

GRIDS = "shard.grid @grid0(shape = 2x2x4)\nshard.grid @grid1d_4(shape = 4)\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%sharding0 = shard.sharding @grid0 split_axes = [[]]", "{replicated}"),
        ("shard.sharding @grid0 split_axes = [[0]] : !shard.sharding", "{devices=[2,8]<=[16] last_tile_dim_replicate}"),
        (
            "%s = shard.sharding @grid0 split_axes = [[2], [], [0, 1]] : !shard.sharding",
            "{devices=[4,1,4]<=[4,4]T(1,0)}",
        ),
        ("shard.sharding @grid1d_4 split_axes = [[], [0]] sharded_dims_offsets=[0,2,4,6,7]", "{devices=[1,4]<=[4]}"),
        ("%4 = shard.sharding @grid1d_4 split_axes = [[0]] halo_sizes = [0, 0]", "{devices=[4]<=[4]}"),
        ("%s = mesh.sharding @grid1d_4 split_axes = [[]] partial = sum[0] : !mesh.sharding", "{unreduced}"),
    ],
)  # fmt: skip
def test_the_documentations_examples(text: str, expected: str) -> None:
    assert hs.convert(GRIDS + text, to="v2") == expected


def test_the_older_name_of_the_dialect() -> None:
    text = (
        "mesh.mesh @mesh0(shape = 2x4)\n%0 = mesh.sharding @mesh0 split_axes = [[0]] partial = max[1] : !mesh.sharding"
    )
    assert hs.convert(text, to="mesh", mesh="x=2,y=4") == "[[x]] partial=max[y]"


def test_the_callers_mesh_names_the_axes_and_the_grid() -> None:
    found = hs.convert("P(y, x)", to="shard", mesh="shard.grid @g(shape = 2x4, axis_names = [x, y])")
    assert found == "shard.sharding @g split_axes = [[1], [0]] : !shard.sharding"
    assert hs.convert(found, to="mesh", mesh="x=2,y=4") == "[[y], [x]]"
    assert hs.convert(f"shard.grid @g(shape = ?x4) {found}", to="mesh", mesh="x=2,y=4") == "[[y], [x]]"
    assert hs.convert("P()", to="shard", mesh="x=2") == "shard.sharding @grid0 split_axes = [[]] : !shard.sharding"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("shard.sharding @grid1d_4 split_axes = [[0]] halo_sizes = [1, 2]", "halo_sizes = .* tiles that overlap"),
        ("shard.sharding @grid1d_4 split_axes = [[0]] halo_sizes = [?, 2]", "known only when the program runs"),
        ("shard.sharding @grid1d_4 split_axes = [[0]] halo_sizes = [4, %c3]", "sizes that the program computes"),
        ("shard.sharding @grid1d_4 split_axes = [[0]] sharded_dims_offsets = [0, 2, 5, 9, 14]", "2, 3, 4, 5"),
        ("shard.sharding @grid1d_4 split_axes = [[0]] sharded_dims_offsets = [0, 2, 4]", "are not 5 for"),
        ("shard.sharding @grid7 split_axes = [[0]]", "grid @grid7 is not known"),
        ("shard.sharding @grid1d_4 split_axes = [[1]]", "has no axis 1"),
        ("shard.sharding @grid0 split_axes = [[0], [0]]", "axis 0 is used twice"),
        ("shard.sharding @grid0 split_axes = [[-1]]", "axis -1 is negative"),
        ("shard.sharding @grid0 split_axes = [[0] [1]]", "expected ','"),
        ("shard.sharding @grid0 split_axes = [[0]] : !shard.grid", "expected !shard.sharding"),
        ("shard.sharding @grid0 split_axes = [[0]] partial = mean[1]", "no kind of partial value"),
        ("shard.sharding @grid0 split_axes = [[0]] and more", "text after"),
        ("%0 = shard.shard %a to %b", "expected shard.sharding"),
    ],
)  # fmt: skip
def test_what_only_this_dialect_says_is_named(text: str, says: str) -> None:
    with pytest.raises(hs.ShardingError, match=says):
        hs.convert(GRIDS + text, to="hlo")


@pytest.mark.parametrize(
    ("text", "mesh", "says"),
    [
        ("shard.sharding @g split_axes = [[0]]", None, "grid @g is read over a mesh"),
        ("shard.grid @g(shape = 4x?) shard.sharding @g split_axes = [[0]]", None, "size of axis 1"),
        ("shard.grid @g(shape = 4x2) shard.sharding @g split_axes = [[0]]", "x=2,y=4", "is not the given mesh"),
        ("shard.sharding @g split_axes = [[0]]", "shard.grid @h(shape = 2)", "grid @g is not known"),
    ],
)
def test_a_grid_must_be_known(text: str, mesh: str | None, says: str) -> None:
    with pytest.raises(hs.ShardingError, match=says):
        hs.convert(text, to="hlo", mesh=mesh)
