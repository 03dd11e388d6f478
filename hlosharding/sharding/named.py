"""A layout spelled with mesh axes: which axes split which dim (the compiler's "V3" form).

Floor: sharding.  Knows meshes and tiles; jax's own classes are met in `jax_forms`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from hlosharding.errors import ShardingError
from hlosharding.sharding.mesh import MeshInfo, part_of_axis, quote
from hlosharding.sharding.subgroups import LeafParts, SubgroupType, subgroup
from hlosharding.sharding.tile_assignment import Dims, TileAssignment, distinct

WholeKind = Literal["replicated", "manual", "unreduced", "maximal"]


@dataclass(frozen=True, slots=True)
class AxisRef:
    """A mesh axis, or the part of it that has `pre_size` before it and `size` itself (a sub-axis).

    >>> str(AxisRef("b", 2, 2)), str(AxisRef("b"))
    ("'b':(2)2", "'b'")
    """

    name: str
    pre_size: int | None = None
    size: int | None = None

    def ways(self, mesh: MeshInfo) -> int:
        """How often it splits."""
        return mesh.size_of(self.name) if self.size is None else self.size

    def span(self, mesh: MeshInfo) -> tuple[int, int]:
        """Where it starts and ends within its axis, in sizes before: (1, 4) for all of an axis of size 4."""
        before = self.pre_size or 1
        return before, before * self.ways(mesh)

    @classmethod
    def of(cls, text: str, mesh: MeshInfo) -> AxisRef:
        """An axis of the mesh by its name, or a part of one as `text` writes it."""
        part = None if text in mesh.names else part_of_axis(text)
        return cls(*part) if part else cls(text)

    @property
    def text(self) -> str:
        """The name, and which part.

        >>> AxisRef("b", 2, 2).text
        'b:(2)2'
        """
        return self.written(str)

    def __str__(self) -> str:
        return self.written(quote)

    def written(self, spell: Callable[[str], str]) -> str:
        """As text, `spell` quotes the name."""
        return spell(self.name) if self.size is None else f"{spell(self.name)}:({self.pre_size}){self.size}"


@dataclass(frozen=True, slots=True)
class DimAxes:
    """The axes that split one dim, major to minor; `is_open`: propagation may add more."""

    axes: tuple[AxisRef, ...] = ()
    is_open: bool = False

    def __str__(self) -> str:
        return self.written(quote)

    def written(self, spell: Callable[[str], str]) -> str:
        """As text, `spell` quotes names."""
        axes = [axis.written(spell) for axis in self.axes]
        return "{" + ", ".join([*axes, *(["?"] if self.is_open else [])]) + "}"


@dataclass(frozen=True, slots=True)
class NamedForm:
    """Mesh, axes of each dim, and the axes of each subgroup; axes that are not named are replicated."""

    mesh: MeshInfo
    dims: tuple[DimAxes, ...] = ()
    replicated: tuple[AxisRef, ...] = ()
    unreduced: tuple[AxisRef, ...] = ()
    manual: tuple[AxisRef, ...] = ()
    whole: WholeKind | None = None
    """Set when the form says nothing of dims: `{mesh[...], manual}`."""
    device: int | None = None
    """The device of a maximal one."""

    @property
    def axes(self) -> tuple[AxisRef, ...]:
        """Every axis that is named, in the order of the text."""
        return (*(a for d in self.dims for a in d.axes), *self.replicated, *self.unreduced, *self.manual)

    def to_string(self) -> str:
        """What stands between the braces, less metadata."""
        if self.whole == "maximal":
            return f"maximal_mesh[device_id={self.device}]"
        if self.whole is not None:
            return f"{self.mesh}, {self.whole}"
        text = f"{self.mesh}, [{', '.join(map(str, self.dims))}]"
        for word in ("replicated", "unreduced", "manual"):
            axes: tuple[AxisRef, ...] = getattr(self, word)
            if axes:
                text += f", {word}={{{', '.join(map(str, axes))}}}"
        return text


def parts_of_form(form: NamedForm) -> tuple[LeafParts, NamedForm]:
    """The leaf that `form` spells, in normal form, and how to print it; raises ShardingError for contradictions.

    >>> mesh = MeshInfo(("a", "b"), (2, 4))
    >>> (kind, tiles, types), _ = parts_of_form(NamedForm(mesh, (DimAxes((AxisRef("b"),)), DimAxes())))
    >>> kind, str(tiles), types
    ('tiled', '[4,1,2]<=[2,4]T(1,0)', ('replicated',))
    """
    if form.whole == "maximal":
        return ("maximal", TileAssignment.from_flat((1,), (form.device or 0,)), ()), form
    if form.whole is None:
        use = AxisUse(form.mesh)
        for axis in form.axes:
            use.add(axis)
        _check_sorted(form)
    whole = form.whole or _whole_kind(form)
    if whole is None:
        return _in_device_form(form), form
    short = form.whole is None and not form.dims
    return (whole, None, ()), NamedForm(form.mesh, whole=whole) if short else form


def _whole_kind(form: NamedForm) -> Literal["manual", "unreduced", "replicated"] | None:
    """Manual or unreduced over all devices, or nothing named at all."""
    kinds: tuple[tuple[Literal["manual", "unreduced"], tuple[AxisRef, ...]], ...]
    kinds = (("unreduced", form.unreduced), ("manual", form.manual))
    for kind, axes in kinds:
        if axes and math.prod(axis.ways(form.mesh) for axis in axes) == form.mesh.num_devices:
            return kind
    return None if form.axes else "replicated"


def _check_sorted(form: NamedForm) -> None:
    for word, axes in (("replicated", form.replicated), ("unreduced", form.unreduced), ("manual", form.manual)):
        places = [(form.mesh.index_of(axis.name), axis.pre_size or 1) for axis in axes]
        if places != sorted(places):
            raise ShardingError(f"the {word} axes {', '.join(map(str, axes))} are not in mesh order")


class AxisUse:
    """The parts of a mesh's axes that are taken; refuses unknown axes, sub-axes that do not fit, and any part twice."""

    def __init__(self, mesh: MeshInfo) -> None:
        self.mesh = mesh
        self._spans: dict[str, list[tuple[int, int]]] = {}

    def add(self, axis: AxisRef) -> None:
        """Take `axis`; raises ShardingError if that cannot be."""
        size = self.mesh.size_of(axis.name)
        start, end = axis.span(self.mesh)
        if axis.size is not None and ((axis.pre_size or 0) < 1 or axis.size < 2 or size % end or axis.size == size):
            raise ShardingError(f"sub-axis {axis} does not divide axis {axis.name!r} of size {size}")
        spans = self._spans.setdefault(axis.name, [])
        for before, after in spans:
            if (start, end) == (before, after) or (start < after and before < end):
                raise ShardingError(f"axis {axis} is used twice")
            # The later part must begin at a multiple of where the earlier one ends, or the axis cannot be cut at both.
            if max(start, before) % min(end, after):
                other = AxisRef(axis.name, before, after // before)
                raise ShardingError(f"sub-axes {axis} and {other} do not fit together")
        spans.append((start, end))


def _in_device_form(form: NamedForm) -> LeafParts:
    pieces = _axis_parts(form)
    place = {piece: i for i, piece in enumerate(pieces)}
    order: list[int] = []

    def take(axes: Iterable[AxisRef]) -> int:
        found = [p for axis in axes for p in pieces if p[0] == axis.name and _inside(p, axis.span(form.mesh))]
        order.extend(place[p] for p in found)
        return math.prod(end // start for _, start, end in found)

    data = [take(dim.axes) for dim in form.dims]
    counts: list[tuple[SubgroupType, int]] = [("manual", take(form.manual)), ("unreduced", take(form.unreduced))]
    rest = [i for i in range(len(pieces)) if i not in order]
    copies = math.prod(pieces[i][2] // pieces[i][1] for i in rest)
    counts.append(("replicated", copies))
    groups: list[tuple[SubgroupType, int]] = [(kind, n) for kind, n in counts if n > 1]
    if math.prod(data) == 1 and len(groups) <= 1:
        # XLA has no other name for it: one tile, whatever the mesh.
        kind: SubgroupType = groups[0][0] if groups else "replicated"
        return kind, None, ()
    tiles = form.mesh.assignment.reshape([end // start for _, start, end in pieces]).transpose([*order, *rest])
    types: list[SubgroupType] = [kind for kind, _ in groups]
    return subgroup(distinct(tiles.reshape([*data, *(n for _, n in groups)])), types)


AxisPart = tuple[str, int, int]
"""Part of an axis: its name, and the sizes before its start and its end."""


def _inside(piece: AxisPart, span: Dims) -> bool:
    return span[0] <= piece[1] and piece[2] <= span[1]


def _axis_parts(form: NamedForm) -> list[AxisPart]:
    """All mesh axes, major to minor, cut where a sub-axis starts or ends."""
    cuts: dict[str, set[int]] = {n: {1, size} for n, size in zip(form.mesh.names, form.mesh.sizes, strict=True)}
    for axis in form.axes:
        cuts[axis.name].update(axis.span(form.mesh))
    found: list[AxisPart] = []
    for name in form.mesh.names:
        ends = sorted(cuts[name])
        # An axis of size 1 has nothing to cut, and is a part all the same: dims may name it.
        found += [(name, a, b) for a, b in pairwise(ends)] or [(name, 1, 1)]
    # Without any axis there is still one device, and an array of tiles needs a dim.
    return found or [("", 1, 1)]
