"""A cluster of devices as axes, whose sizes may be unknown: what the mesh dialect shards over.

Floor: sharding.  A plain value with a text; nobody needs a size to propagate, and who does gets it or an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

from hlosharding.errors import ShardingError
from hlosharding.sharding.mesh import MeshInfo

Axis: TypeAlias = int | str
"""The number of an axis, or its name."""
Axes: TypeAlias = tuple[Axis, ...]
"""Major to minor."""

_CLUSTER = re.compile(r"(?:[\w.]++\s++)?@(?P<symbol>\w++)\s*+\((?P<body>.*)\)", re.DOTALL)
_RANK = re.compile(r"rank\s*=\s*(\d{1,4})")
_LIST = r"\s*=\s*\[(?P<items>[^\[\]]*)\]"
_SHAPE = re.compile(r"shape\s*=\s*(?P<sizes>[\dx?]+)")
_SIZES = re.compile(r"(?:\d{1,9}|\?)(?:x(?:\d{1,9}|\?))*")
_NAMED = re.compile(r"\s*(?P<name>[^\W\d]\w*)\s*=\s*(?P<size>-?\d{1,9}|\?)\s*")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Sizes of the axes, major to minor (None: unknown), their names if they have any, and the cluster's own.

    >>> print(Cluster.of("data=2, model=?"))
    mesh.cluster @mesh0(rank = 2, dim_sizes = [2], axis_names = [data, model])
    >>> Cluster.of("mesh.cluster @mesh1(rank = 3, dim_sizes = [0, 4])").sizes
    (None, 4, None)
    """

    sizes: tuple[int | None, ...]
    names: tuple[str, ...] = ()
    symbol: str = "mesh0"

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(_size(size) for size in self.sizes))
        object.__setattr__(self, "names", tuple(map(str, self.names)))
        if self.names and len(self.names) != len(self.sizes):
            raise ShardingError(f"{len(self.names)} axis names for {len(self.sizes)} axis sizes")
        if len(set(self.names)) < len(self.names):
            raise ShardingError(f"two axes of @{self.symbol} have one name: {', '.join(self.names)}")

    @classmethod
    def of(cls, source: Any) -> Cluster:
        """From text, sizes, {name: size}, a jax mesh or a MeshInfo; None, `?` and sizes below 1 are unknown.

        Text: `2x?x4`, `data=2,model=?`, the dialect's `mesh.cluster @mesh0(rank = 2, dim_sizes = [4])`, or the later
        `shard.grid @grid0(shape = 2x4)`.  Raises ShardingError.
        """
        if isinstance(source, Cluster):
            return source
        if isinstance(source, str):
            return _parse(source)
        if isinstance(source, Mapping):
            return cls(tuple(source.values()), tuple(source))
        if isinstance(source, Sequence):
            return cls(tuple(source))
        mesh = MeshInfo.from_jax(source)
        if not mesh.is_plain:
            raise ShardingError("a cluster numbers its devices in axis order, and this mesh does not")
        return cls(mesh.sizes, mesh.names)

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.sizes)

    def index(self, axis: Axis) -> int:
        """The number of an axis, given by number or name; raises ShardingError if there is none."""
        if isinstance(axis, int) and 0 <= axis < self.rank:
            return axis
        if isinstance(axis, str) and axis in self.names:
            return self.names.index(axis)
        axes = ", ".join(self.names) or ", ".join(map(str, range(self.rank))) or "none"
        raise ShardingError(f"@{self.symbol} has no axis {axis!r}", remedy=f"its axes: {axes}")

    def axis(self, axis: Axis) -> Axis:
        """The axis as this cluster calls it: by name if it has names."""
        number = self.index(axis)
        return self.names[number] if self.names else number

    def known_ways(self, axes: Sequence[Axis]) -> int | None:
        """Into how many pieces these axes split; None where a size is unknown."""
        sizes = [self.sizes[self.index(axis)] for axis in axes]
        known = [size for size in sizes if size is not None]
        return prod(known) if len(known) == len(sizes) else None

    def ways(self, axes: Sequence[Axis], purpose: str) -> int:
        """Into how many pieces these axes split; raises ShardingError, with the purpose, where a size is unknown."""
        for axis in axes:
            if self.sizes[self.index(axis)] is None:
                what = f"{purpose} needs the size of axis {self.axis(axis)} of @{self.symbol}, which is unknown"
                raise ShardingError(what, remedy="give it, as in Cluster.of('2x4')")
        return prod(self.sizes[self.index(axis)] or 1 for axis in axes)

    def mesh(self, purpose: str) -> MeshInfo:
        """The mesh of that many devices; an axis without a name is called by its number."""
        self.ways(range(self.rank), purpose)
        names = self.names or tuple(map(str, range(self.rank)))
        return MeshInfo(names, tuple(size or 1 for size in self.sizes))

    def __str__(self) -> str:
        sizes = [size or 0 for size in self.sizes]
        while sizes and not sizes[-1]:
            sizes.pop()
        parts = [f"rank = {self.rank}"]
        parts += [f"dim_sizes = [{', '.join(map(str, sizes))}]"] if sizes else []
        parts += [f"axis_names = [{', '.join(self.names)}]"] if self.names else []
        return f"mesh.cluster @{self.symbol}({', '.join(parts)})"


def _size(size: Any) -> int | None:
    if size is None or size == "?":
        return None
    try:
        number = int(size)
    except (TypeError, ValueError) as error:
        raise ShardingError(f"{size!r} is no size of an axis", remedy="give a number, or ? if unknown") from error
    return number if number > 0 else None


def _parse(text: str) -> Cluster:
    if _SIZES.fullmatch(text.strip()):
        return Cluster(_shape(text.strip()))
    named = [_NAMED.fullmatch(part) for part in text.split(",")]
    if all(named):
        found = [(m["name"], _size(m["size"])) for m in named if m]
        return Cluster(tuple(size for _, size in found), tuple(name for name, _ in found))
    match = _CLUSTER.fullmatch(text.strip())
    if match is None:
        raise ShardingError(f"no cluster: {text!r}", remedy="write 2x?, data=2,model=?, or mesh.cluster @m(rank = 2)")
    return _parse_body(text, match["symbol"], match["body"])


def _parse_body(text: str, symbol: str, body: str) -> Cluster:
    names = tuple(_items("axis_names", body))
    shape, rank = _SHAPE.search(body), _RANK.search(body)
    if shape is not None and _SIZES.fullmatch(shape["sizes"]):
        return Cluster(_shape(shape["sizes"]), names, symbol)
    sizes = tuple(_size(item) for item in _items("dim_sizes", body))
    if rank is None or len(sizes) > int(rank[1]):
        problem = "says no rank" if rank is None else f"has {len(sizes)} sizes for rank {rank[1]}"
        raise ShardingError(f"cluster {text!r} {problem}", remedy="write rank = N, dim_sizes = [...]")
    return Cluster(sizes + (None,) * (int(rank[1]) - len(sizes)), names, symbol)


def _shape(sizes: str) -> tuple[int | None, ...]:
    return tuple(_size(size) for size in sizes.split("x"))


def _items(word: str, body: str) -> list[str]:
    match = re.search(rf"\b{word}{_LIST}", body)
    return [item.strip() for item in match["items"].split(",")] if match and match["items"].strip() else []
