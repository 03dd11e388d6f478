"""Clusters and shardings as axes: texts, sizes that nobody knows, and tiles (T1)."""

from __future__ import annotations

import pytest

from hlosharding.errors import ShardingError, ShardingParseError
from hlosharding.notations import AxisSharding
from hlosharding.sharding import Cluster, HloSharding, MeshInfo


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("mesh.cluster @mesh0(rank = 3, dim_sizes = [4, 8, 12])", (4, 8, 12)),
        ("mesh.cluster @mesh0(rank = 2, dim_sizes = [4])", (4, None)),
        ("mesh.cluster @mesh0(rank = 2, dim_sizes = [0, 4])", (None, 4)),
        ("mesh.cluster @mesh0(rank = 1)", (None,)),
    ],
)
def test_t1_the_rfcs_clusters_are_read_and_printed(text: str, sizes: tuple[int | None, ...]) -> None:
    cluster = Cluster.of(text)
    assert cluster.sizes == sizes
    assert str(cluster) == text


@pytest.mark.parametrize(
    ("source", "sizes", "names"),
    [
        ("2x?x4", (2, None, 4), ()),
        ("data=2, model=?", (2, None), ("data", "model")),
        ("shard.grid @grid0(shape = 4x?)", (4, None), ()),
        ("mesh.cluster @m(rank = 2, dim_sizes = [2], axis_names = [a, b])", (2, None), ("a", "b")),
        ([2, 0, -1, None, "?"], (2, None, None, None, None), ()),
        ({"x": 4, "y": "?"}, (4, None), ("x", "y")),
        (MeshInfo(("x", "y"), (2, 4)), (2, 4), ("x", "y")),
    ],
)
def test_other_ways_to_give_a_cluster(source: object, sizes: tuple[int | None, ...], names: tuple[str, ...]) -> None:
    cluster = Cluster.of(source)
    assert (cluster.sizes, cluster.names) == (sizes, names)
    assert Cluster.of(str(cluster)) == cluster


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("two", "no cluster: 'two'; write"),
        ("mesh.cluster @m(dim_sizes = [2])", "says no rank"),
        ("mesh.cluster @m(rank = 1, dim_sizes = [2, 2])", "2 sizes for rank 1"),
        ("a=2,a=4", "have one name"),
        ([2, "x"], "'x' is no size"),
        (MeshInfo(("a",), (2,), (1, 0)), "in axis order"),
        (7, "is no mesh"),
    ],
)
def test_no_clusters(source: object, message: str) -> None:
    with pytest.raises(ShardingError, match=message):
        Cluster.of(source)


def test_t1_a_size_that_is_needed_and_unknown() -> None:
    sharding = AxisSharding.parse("[[0], [1]]")
    with pytest.raises(ShardingError, match=r"needs the size of axis 1 of @mesh0, which is unknown; give it, as in"):
        sharding.local_shape((8, 8), Cluster.of("2x?"))
    with pytest.raises(ShardingError, match="as HLO tiles needs the size of axis model"):
        AxisSharding().to_hlo(Cluster.of("data=2,model=?"), 2)


@pytest.mark.parametrize(
    ("text", "rank", "printed", "as_list"),
    [
        ("[[0]]", 2, "[[0]]", "[[0]]"),
        ("[[0], [], [1]]", 2, "[[0]] partial=sum[1]", "[[0], [], [1]]"),
        ("[[], [], []]", 3, "[]", "[]"),
        ("[]", 0, "[]", "[]"),
        ("[[3,2],[],[0,1]]", 3, "[[3, 2], [], [0, 1]]", "[[3, 2], [], [0, 1]]"),
        ("#mesh.shard<[[0], [], [1]]>", 2, "[[0]] partial=sum[1]", "[[0], [], [1]]"),
        ("[['x'], [data]] partial = max[y]", 2, "[[x], [data]] partial=max[y]", "[[x], [data], [y]]"),
    ],
)
def test_t1_shardings_are_lists_of_axes(text: str, rank: int, printed: str, as_list: str) -> None:
    sharding = AxisSharding.parse(text, rank)
    assert (str(sharding), sharding.as_list(rank)) == (printed, as_list)
    assert AxisSharding.parse(printed, rank) == sharding


def test_t1_trailing_empty_lists_do_not_count() -> None:
    assert AxisSharding.of([[0], [], []]) == AxisSharding.parse("[[0]]")


def test_t1_each_axis_is_used_once() -> None:
    with pytest.raises(ShardingError, match="axis 0 is used twice"):
        AxisSharding.parse("[[0], [0]]")
    with pytest.raises(ShardingError, match="axis 1 is used twice"):
        AxisSharding.parse("[[1], [], [1]]", rank=2)


@pytest.mark.parametrize("text", ["", "0", "[0]", "[[0]", "[[0]]]", "[[-1]]", "[[0] [1]]", "[[a b]]", "[" * 5000])
def test_no_shardings(text: str) -> None:
    with pytest.raises(ShardingParseError):
        AxisSharding.parse(text)


def test_more_lists_than_dims() -> None:
    with pytest.raises(ShardingError, match="4 entries for rank 2"):
        AxisSharding.parse("[[0], [], [1], [2]]", rank=2)
    with pytest.raises(ShardingError, match="no kind of partial value: 'mean'"):
        AxisSharding.parse("[[0]] partial=mean[1]")
    with pytest.raises(ShardingError, match="-1 is no axis"):
        AxisSharding.of([[-1]])


@pytest.mark.parametrize(
    ("text", "tiles"),
    [
        ("[]", "{replicated}"),
        ("[[0], [1]]", "{devices=[2,4]<=[8]}"),
        ("[[1], [0]]", "{devices=[4,2]<=[2,4]T(1,0)}"),
        ("[[1, 0]]", "{devices=[8,1]<=[2,4]T(1,0)}"),
        ("[[], [1]]", "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}"),
        ("[[0]] partial=sum[1]", "{devices=[2,1,4]<=[8] last_tile_dims={unreduced}}"),
        ("[] partial=sum[0, 1]", "{unreduced}"),
    ],
)
def test_axes_and_tiles(text: str, tiles: str) -> None:
    sharding, cluster = AxisSharding.parse(text), Cluster.of("2x4")
    assert sharding.to_hlo(cluster, 2) == HloSharding.parse(tiles)
    assert AxisSharding.from_hlo(HloSharding.parse(tiles), cluster) == sharding


def test_named_axes_stay_named() -> None:
    cluster = Cluster.of("data=2,model=4")
    assert str(AxisSharding.parse("[[model]]").to_hlo(cluster, 1)) == "{mesh['data'=2,'model'=4], [{'model'}]}"
    assert str(AxisSharding.from_hlo(HloSharding.parse("{devices=[2,4]<=[8]}"), cluster)) == "[[data], [model]]"


@pytest.mark.parametrize(
    ("tiles", "message"),
    [
        ("{devices=[8]0,2,1,3,4,5,6,7}", "whole axes .* cannot say"),
        ("{devices=[2,4]<=[4,2]T(1,0) last_tile_dim_replicate}", "part of axis 1"),
        ("{manual}", "cannot say"),
        ("{maximal device=1}", "cannot say"),
    ],
)
def test_tiles_that_are_no_axes(tiles: str, message: str) -> None:
    with pytest.raises(ShardingError, match=message):
        AxisSharding.from_hlo(HloSharding.parse(tiles), Cluster.of("2x4"))


def test_partial_values_in_hlo_are_sums() -> None:
    with pytest.raises(ShardingError, match="its partial values are sums; reduce the value first"):
        AxisSharding.parse("[[0]] partial=max[1]").to_hlo(Cluster.of("2x4"), 1)
