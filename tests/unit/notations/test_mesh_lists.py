"""The RFC's lists of axes over a `mesh.cluster`."""

from __future__ import annotations

from typing import Any

import pytest

import hlosharding as hs


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("[[x]]", "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"),
        ("#mesh.shard<[[0], [], [1]]>", "{devices=[2,1,4]<=[8] last_tile_dims={unreduced}}"),
        ("[[y, x]]", "{devices=[8,1]<=[2,4]T(1,0)}"),
        ("[]", "{replicated}"),
        ([["x"], [1]], "{devices=[2,4]<=[8]}"),
        (hs.AxisSharding(((1,),)), "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}"),
        ("[[], [], [y, x]]", "{unreduced}"),
    ],
)
def test_lists_are_read(source: Any, expected: str) -> None:
    assert hs.convert(source, to="v2", mesh="x=2,y=4", ndim=2) == expected


def test_a_text_may_bring_its_cluster() -> None:
    text = "mesh.cluster @mesh0(rank = 2, dim_sizes = [2, 4])\n#mesh.shard<[[0], [1]]>"
    assert hs.convert(text, to="v2") == "{devices=[2,4]<=[8]}"
    assert hs.convert(text, to="spec", mesh="x=2,y=4") == hs.convert("P(x, y)", to="spec", mesh="x=2,y=4")
    with pytest.raises(hs.ShardingError, match="is not the given mesh"):
        hs.convert(text, to="v2", mesh="8")


def test_axes_without_names_that_are_words_are_written_by_number() -> None:
    assert hs.convert("{devices=[2,4]<=[8]}", to="mesh", mesh="2x4") == "[[0], [1]]"
    assert hs.convert("{devices=[2,4]<=[8]}", to="mesh", mesh={"1": 2, "0": 4}) == "[[0], [1]]"
    assert hs.convert("[[0], [1]]", to="v3", mesh={"1": 2, "0": 4}) == "{mesh['1'=2,'0'=4], [{'1'}, {'0'}]}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[2]]", "has no axis 2; its axes are 0 to 1"),
        ("[[z]]", "no axis 'z'"),
        ("[[x], [x]]", "used twice"),
        ("[[x]] partial=mean[y]", "no kind of partial value"),
        ("[[x] [y]]", "no list of lists"),
        ("mesh.cluster @m(rank = 2, dim_sizes = [2]) [[0]]", "axis 1 of @m"),
    ],
)
def test_bad_lists(text: str, says: str) -> None:
    with pytest.raises(hs.ShardingError, match=says):
        hs.convert(text, to="hlo", mesh=None if "cluster" in text else "x=2,y=4")
