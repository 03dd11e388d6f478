"""DTensor's placements against their meaning in torch, replayed with numpy: which elements each device keeps."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import hlosharding as hs
from hlosharding.sharding import MeshInfo

SIZES = (2, 2, 4)
MESH = MeshInfo(("a", "b", "c"), SIZES)


def kept(placements: list[tuple[str, int, int]], length: int) -> list[list[int]]:
    """Rows that each device keeps of an array of one dim: placements act from left to right, as torch splits.

    A strided one splits into `factor` pieces first, each of those over the axis, and joins what a device gets.
    """
    rows: list[list[int]] = []
    for coordinates in itertools.product(*map(range, SIZES)):
        own = np.arange(length)
        for (kind, _, factor), size, at in zip(placements, SIZES, coordinates, strict=True):
            if kind == "shard":
                own = np.concatenate([np.split(piece, size)[at] for piece in np.split(own, factor)])
        rows.append(own.tolist())
    return rows


def text_of(placements: list[tuple[str, int, int]]) -> str:
    words = [
        "Replicate()" if kind == "copy" else f"_StridedShard(dim={dim}, sf={factor})" if factor > 1 else f"Shard({dim})"
        for kind, dim, factor in placements
    ]
    return f"({', '.join(words)})"


CHOICES = [("copy", 0, 1), *(("shard", 0, factor) for factor in (1, 2, 4, 8))]


@pytest.mark.parametrize("placements", list(itertools.product(CHOICES, repeat=3)), ids=lambda p: text_of(list(p)))
def test_every_placement_of_three_axes(placements: tuple[tuple[str, int, int], ...]) -> None:
    length = 64 * 16
    rows = kept(list(placements), length)
    is_contiguous = all(row == list(range(row[0], row[0] + len(row))) for row in rows)
    text = text_of(list(placements))
    if not is_contiguous:
        with pytest.raises(hs.ShardingError, match=r"pieces apart|amiss"):
            hs.convert(text, to="hlo", mesh=MESH)
        return
    found = hs.convert(text, to="hlo", mesh=MESH)
    if found.is_replicated():
        assert rows == [list(range(length))] * 16
    else:
        assert [(row[0], row[-1] + 1) for row in rows] == [
            (found.tile_offset((length,), d)[0], found.tile_limit((length,), d)[0]) for d in range(16)
        ]
    again = hs.convert(found, to="dtensor", mesh=MESH)
    assert hs.same_sharding(again, found, mesh=MESH)


def test_fsdp_inside_of_tensor_parallelism() -> None:
    """torch's own example: rows over tp first, then over dp; device 1 holds rows 4 and 5 of 8."""
    mesh = "dp=2,tp=2"
    found = hs.convert("(_StridedShard(dim=0, sf=2), Shard(dim=0))", to="v3", mesh=mesh)
    assert found == "{mesh['dp'=2,'tp'=2], [{'tp', 'dp'}]}"
    sharding = hs.convert("[_S(0, 2), S(0)]", to="hlo", mesh=mesh)
    assert [sharding.tile_offset((8, 8)[:1], d)[0] for d in range(4)] == [0, 4, 2, 6]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(Shard(dim=0), Replicate(), Partial(sum))", "[[a]] partial=sum[c]"),
        ("[Shard(0), R, P]", "[[a]] partial=sum[c]"),
        ("(Partial('max'), Shard(dim=1), Partial(reduce_op='max'))", "[[], [b]] partial=max[a, c]"),
        ("(_StridedShard(dim=0, sf=2), Replicate(), Shard(dim=0))", None),
        ("(S(-1), R, R)", "[[], [a]]"),
    ],
)
def test_spellings(text: str, expected: str | None) -> None:
    if expected is None:
        found = hs.convert(text, to="v3", mesh=MESH)
        assert found == "{mesh['a'=2,'b'=2,'c'=4], [{'c':(1)2, 'a', 'c':(2)2}]}"
        assert hs.convert(found, to="dtensor") == text
    else:
        assert hs.convert(text, to="mesh", mesh=MESH, ndim=2) == expected


def test_torchs_own_objects_are_read_by_how_they_print() -> None:
    class Shard:
        def __repr__(self) -> str:
            return "Shard(dim=0)"

    class Replicate:
        def __repr__(self) -> str:
            return "Replicate()"

    assert hs.convert((Shard(), Replicate()), to="spec", mesh="a=2,b=2")[0] == "a"
    assert hs.convert([Replicate()], to="mesh", mesh="a=2") == "[]"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("(Shard(0), Shard(0))", "2 placements for the 3 axes"),
        ("(Shard(-1), R, R)", "from behind; pass ndim="),
        ("(Partial(sum), Partial(max), R)", "partial in two ways, max and sum"),
        ("(_StridedShard(dim=0, sf=3), R, Shard(0))", "amiss"),
        ("(_StridedShard(dim=0, sf=2), R, R)", "several pieces apart"),
        ("(_StridedShard(dim=0, sf=0), R, R)", "at least 1"),
        ("(Shard(), R, R)", "expected dim, a number"),
        ("(Shard(size=1), R, R)", "expected dim"),
        ("(Partial(mean), R, R)", "expected one of sum, avg"),
        ("(R, R, R) and more", "text after"),
        ("(R, R, Q)", "expected Shard"),
        ("(R, R, R", r"expected ','"),
        ("(R R R)", r"expected ','"),
    ],
)
def test_bad_placements(text: str, says: str) -> None:
    with pytest.raises(hs.ShardingError, match=says):
        hs.convert(text, to="hlo", mesh=MESH)
