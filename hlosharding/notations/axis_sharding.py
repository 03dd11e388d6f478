"""A sharding as axes: a list per dim, and the axes along which the value is partial.

Floor: notations.  Knows axes by number or name; their sizes belong to the cluster.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from hlosharding.errors import ShardingError, ShardingParseError
from hlosharding.notations.hlo_forms import axes_of, tiles_of
from hlosharding.sharding import Axes, Axis, Cluster, HloSharding, ceil_div

PARTIAL_KINDS = ("sum", "max", "min", "product", "and", "or", "xor", "generic")

_TEXT = re.compile(
    r"\s*(?:#[\w.]+<\s*)?(?P<lists>\[[^=]*?\])(?=\s*+(?:,?\s*+partial|>|$))"
    r"(?:\s*+,?\s*+partial\s*+=\s*+(?P<kind>\w++)\s*+\[(?P<partial>[^\[\]]*+)\])?\s*+>?\s*+"
)
_LISTS = re.compile(r"\[\s*(?:\[[^\[\]]*\]\s*(?:,\s*\[[^\[\]]*\]\s*)*)?\]")
_LIST = re.compile(r"\[([^\[\]]*)\]")
_AXIS = re.compile(r"(?P<number>\d{1,9})|(?P<quote>['\"]?)(?P<name>[^\W\d]\w*)(?P=quote)")


@dataclass(frozen=True, slots=True)
class AxisSharding:
    """The axes that split each dim, major to minor; dims not listed are whole.  Each axis is used at most once.

    `str` gives `[[0], [1]] partial=sum[2]`; the mesh dialect's one list, whose entry behind the last dim holds the
    partial axes, is `as_list(rank)`, and is read where the rank is known.

    >>> sharding = AxisSharding.parse("[[0], [], [1]]", rank=2)
    >>> str(sharding), sharding.as_list(2)
    ('[[0]] partial=sum[1]', '[[0], [], [1]]')
    """

    dims: tuple[Axes, ...] = ()
    partial: Axes = ()
    kind: str = "sum"
    """How the pieces of a partial value are combined: one of PARTIAL_KINDS."""

    def __post_init__(self) -> None:
        dims = [tuple(axes) for axes in self.dims]
        # Of equal shardings there is one form, so that fields can be compared: no empty lists at the end, and no kind
        # where nothing is partial.
        while dims and not dims[-1]:
            dims.pop()
        object.__setattr__(self, "dims", tuple(dims))
        object.__setattr__(self, "partial", tuple(self.partial))
        if not self.partial:
            object.__setattr__(self, "kind", "sum")
        if self.kind not in PARTIAL_KINDS:
            raise ShardingError(f"no kind of partial value: {self.kind!r}", remedy=f"one of {', '.join(PARTIAL_KINDS)}")
        used = self.axes
        if len(set(used)) < len(used):
            double = next(axis for axis in used if used.count(axis) > 1)
            raise ShardingError(f"axis {double} is used twice in {self}", remedy="an axis has one place")

    @classmethod
    def parse(cls, text: str, rank: int | None = None) -> AxisSharding:
        """Read either text; with `rank`, entry `rank` of the list holds partial axes.  Raises ShardingError."""
        match = _TEXT.fullmatch(text)
        if match is None or not _LISTS.fullmatch(match["lists"].strip()):
            remedy = "write a list of axes per dim, as in [[0], [], [1]]"
            raise ShardingParseError("no list of lists of axes", text=text, position=0, remedy=remedy)
        inner = match["lists"].strip()[1:-1]
        start = match.start("lists") + 1
        dims = [_axes(text, m[1], start + m.start(1)) for m in _LIST.finditer(inner)]
        if match["kind"] is None:
            return cls.of(dims, rank)
        partial = _axes(text, match["partial"], match.start("partial"))
        return cls.of(cls(tuple(dims), partial, match["kind"]), rank)

    @classmethod
    def of(cls, value: AxisSharding | str | Iterable[Iterable[Axis]], rank: int | None = None) -> AxisSharding:
        """From a text, lists, or an AxisSharding, checked against `rank` if that is given."""
        if isinstance(value, str):
            return cls.parse(value, rank)
        if not isinstance(value, AxisSharding):
            dims = _as_lists(value)
            if rank is not None and len(dims) == rank + 1:
                return cls(dims[:rank], dims[rank])
            value = cls(dims)
        if rank is not None and len(value.dims) > rank:
            raise ShardingError(f"{value} has {len(value.dims)} entries for rank {rank}", remedy="one per dim")
        return value

    @property
    def axes(self) -> Axes:
        """Every axis that is used."""
        return (*(axis for dim in self.dims for axis in dim), *self.partial)

    def along(self, dim: int) -> Axes:
        """The axes that split a dim."""
        return self.dims[dim] if dim < len(self.dims) else ()

    def rename(self, name: Callable[[Axis], Axis]) -> AxisSharding:
        """The same with every axis passed through `name`."""
        dims = tuple(tuple(map(name, axes)) for axes in self.dims)
        return AxisSharding(dims, tuple(map(name, self.partial)), self.kind)

    def local_shape(self, dims: Sequence[int], cluster: Cluster) -> tuple[int, ...]:
        """The largest piece of a shape; raises ShardingError where the cluster does not know a size.

        >>> AxisSharding.parse("[[], [], [0]]").local_shape((2, 4, 8), Cluster.of("8"))
        (2, 4, 1)
        """
        AxisSharding.of(self, len(dims))
        return tuple(
            ceil_div(size, cluster.ways(self.along(dim), f"a piece of {self}")) for dim, size in enumerate(dims)
        )

    def to_hlo(self, cluster: Cluster, rank: int) -> HloSharding:
        """The tiles of a value of that rank; axes stay named if the cluster names them.

        HLO knows partial sums alone.  Raises ShardingError for other kinds, and for unknown sizes.

        >>> str(AxisSharding.parse("[[1], [0]]").to_hlo(Cluster.of("2x4"), 2))
        '{devices=[4,2]<=[2,4]T(1,0)}'
        """
        return tiles_of(self.dims, self.partial, self.kind, cluster, rank, str(self))

    @classmethod
    def from_hlo(cls, sharding: HloSharding, cluster: Cluster) -> AxisSharding:
        """The axes behind the tiles of an array.

        Raises ShardingError for unknown sizes, and for tiles that whole axes of this cluster cannot say.

        >>> tiles = HloSharding.parse("{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}")
        >>> str(AxisSharding.from_hlo(tiles, Cluster.of("2x4")))
        '[[1]]'
        """
        return cls(*axes_of(sharding, cluster))

    def as_list(self, rank: int) -> str:
        """The mesh dialect's text for a value of that rank.  It cannot say the kind of a partial value."""
        AxisSharding.of(self, rank)
        if not self.partial:
            return _text(self.dims)
        return _text((*self.dims, *((),) * (rank - len(self.dims)), self.partial))

    def __str__(self) -> str:
        tail = f" partial={self.kind}[{', '.join(map(str, self.partial))}]" if self.partial else ""
        return _text(self.dims) + tail


def _text(dims: Iterable[Axes]) -> str:
    inner = ("[" + ", ".join(map(str, axes)) + "]" for axes in dims)
    return "[" + ", ".join(inner) + "]"


def _as_lists(value: Iterable[Iterable[Axis]]) -> tuple[Axes, ...]:
    try:
        dims = tuple(tuple(axes) for axes in value)
    except TypeError as error:
        raise ShardingError(f"{value!r} is no list of lists of axes", remedy="as in [[0], [], [1]]") from error
    for axis in (axis for axes in dims for axis in axes):
        # For Python a truth value is a number, too.
        if not isinstance(axis, int | str) or isinstance(axis, bool) or (isinstance(axis, int) and axis < 0):
            raise ShardingError(f"{axis!r} is no axis", remedy="give its number, from 0, or its name")
    return dims


def _axes(text: str, items: str, start: int) -> Axes:
    found: list[Axis] = []
    for part in items.split(",") if items.strip() else ():
        match = _AXIS.fullmatch(part.strip())
        if match is None:
            raise ShardingParseError(f"{part.strip()!r} is no axis", text=text, position=start)
        found.append(int(match["number"]) if match["number"] else cast("str", match["name"]))
        start += len(part) + 1
    return tuple(found)
