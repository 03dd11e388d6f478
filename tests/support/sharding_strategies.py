"""Random shardings for hypothesis: any spelling, any subgroups, even and uneven sizes."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from hlosharding.sharding import HloSharding, MeshInfo, TileAssignment

COUNTS = st.sampled_from([2, 3, 4, 6, 8, 12, 16])
REPLICATED_ONLY = st.sampled_from([(), ("replicated",)])
TYPES = st.sampled_from(
    [(), (), ("replicated",), ("replicated",), ("manual",), ("manual", "replicated"), ("unreduced",)]
)


@st.composite
def factors(draw: st.DrawFn, number: int, parts: int) -> tuple[int, ...]:
    """`number` as an ordered product."""
    dims = [1] * parts
    prime = 2
    while number > 1:
        while number % prime == 0:
            dims[draw(st.integers(0, parts - 1))] *= prime
            number //= prime
        prime += 1
    return tuple(dims)


@st.composite
def tilings(draw: st.DrawFn, rank: int | None = None, count: int | None = None) -> TileAssignment:
    """Iotas, listed iotas, and any other order."""
    count = count or draw(COUNTS)
    dims = draw(factors(count, rank or draw(st.integers(1, 4))))
    kind = draw(st.sampled_from(["iota", "iota", "listed", "any"]))
    if kind == "any":
        return TileAssignment.from_flat(dims, draw(st.permutations(range(count))))
    reshape = draw(factors(count, draw(st.integers(1, 3))))
    tiles = TileAssignment.from_iota(dims, reshape, draw(st.permutations(range(len(reshape)))))
    return tiles if kind == "iota" else TileAssignment.from_flat(dims, tiles.flat)


@st.composite
def tiled(
    draw: st.DrawFn,
    rank: int | None = None,
    count: int | None = None,
    subgroups: st.SearchStrategy[tuple[str, ...]] = TYPES,
) -> HloSharding:
    """Tiled leaves with any subgroups."""
    rank, types = rank or draw(st.integers(1, 3)), draw(subgroups)
    leaf = HloSharding.subgroup(draw(tilings(rank + len(types), count)), types)
    if leaf.kind != "tiled" or HloSharding.parse(str(leaf)).kind != "tiled":
        return HloSharding.iota_tile((2,) + (1,) * (rank - 1) if count is None else (count,) + (1,) * (rank - 1))
    return leaf


def sizes_for(sharding: HloSharding) -> st.SearchStrategy[tuple[int, ...]]:
    """Sizes of an array that `sharding` can split, evenly or not."""
    return st.tuples(*(st.integers(1, 9) for _ in sharding.data_dims))


@st.composite
def even_sizes_for(draw: st.DrawFn, sharding: HloSharding) -> tuple[int, ...]:
    """Sizes that the tile counts divide."""
    return tuple(ways * draw(st.sampled_from([1, 2, 3, 4])) for ways in sharding.data_dims)


@st.composite
def meshes_and_specs(draw: st.DrawFn) -> tuple[MeshInfo, tuple[tuple[str, ...], ...]]:
    """A mesh, devices in any order, and axes for up to three dims."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4))
    names = tuple("abcd"[: len(sizes)])
    order = draw(st.one_of(st.none(), st.permutations(range(math.prod(sizes))))) if math.prod(sizes) <= 64 else None
    rank = draw(st.integers(0, 3))
    dims: list[list[str]] = [[] for _ in range(rank)]
    for name in draw(st.permutations(names)):
        at = draw(st.integers(-1, rank - 1))
        if at >= 0:
            dims[at].append(name)
    return MeshInfo(names, sizes, order), tuple(map(tuple, dims))
