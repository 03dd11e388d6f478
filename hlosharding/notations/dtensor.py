"""PyTorch DTensor's placements, `(Shard(dim=0), Replicate())`: what each axis of a device mesh does.

Floor: notations.  Knows the text; torch is not needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hlosharding.errors import ShardingError
from hlosharding.sharding import AxisRef, DimAxes, FormatContext, Interchange, MeshInfo, NamedForm, Scanner

REDUCTIONS = ("sum", "avg", "product", "max", "min")

_TEXT = re.compile(r"\s*[\[(]\s*(_?S(hard|tridedShard)?\s*\(|R(eplicate)?\b|_?P(artial)?\b)")
_PLACEMENTS = ("Shard", "_StridedShard", "Replicate", "Partial")


@dataclass(frozen=True, slots=True)
class _Placement:
    """What one mesh axis does: split a dim, hold copies (no dim), or hold what is yet to be reduced."""

    dim: int | None = None
    factor: int = 1
    """How many pieces of the dim lie outside of this split, though their axes come later."""
    reduction: str | None = None

    def __str__(self) -> str:
        if self.dim is not None:
            strided = f"_StridedShard(dim={self.dim}, sf={self.factor})"
            return f"Shard(dim={self.dim})" if self.factor == 1 else strided
        return f"Partial({self.reduction})" if self.reduction is not None else "Replicate()"


def is_placements(source: Any) -> bool:
    """Placements of torch's, or their text?"""
    if isinstance(source, str):
        return _TEXT.match(source) is not None
    return isinstance(source, tuple | list) and bool(source) and all(type(p).__name__ in _PLACEMENTS for p in source)


def read(source: Any, context: FormatContext) -> Interchange:
    """From placements, one for each axis of the caller's mesh."""
    text = source if isinstance(source, str) else repr(tuple(source))
    mesh = context.needed_mesh(text)
    placements = _parsed(text)
    if len(placements) != len(mesh.names):
        raise ShardingError(f"{len(placements)} placements for the {len(mesh.names)} axes of {mesh!r}")
    reductions = sorted({p.reduction for p in placements if p.reduction is not None})
    if len(reductions) > 1:
        raise ShardingError(f"{text} is partial in two ways, {' and '.join(reductions)}", remedy="reduce one before")
    form = _form([_with_dim(p, context, text) for p in placements], mesh, context)
    return Interchange.of_form(
        form, reduction=reductions[0] if reductions else "sum", knows_rank=context.ndim is not None
    )


def _with_dim(placement: _Placement, context: FormatContext, text: str) -> _Placement:
    if placement.dim is None:
        return placement
    return _Placement(context.dim(placement.dim, text), placement.factor)


def _form(placements: list[_Placement], mesh: MeshInfo, context: FormatContext) -> NamedForm:
    split = {p.dim for p in placements if p.dim is not None}
    rank = context.rank(max(split, default=-1) + 1, ", ".join(map(str, placements)))
    dims = tuple(DimAxes(_axes_of(dim, placements, mesh)) for dim in range(rank))
    partial = tuple(AxisRef(n) for n, p in zip(mesh.names, placements, strict=True) if p.reduction is not None)
    return NamedForm(mesh, dims, unreduced=partial)


def _axes_of(dim: int, placements: list[_Placement], mesh: MeshInfo) -> tuple[AxisRef, ...]:
    """The axes of a dim, major to minor.

    Placements apply from left to right, each to what those before it left.  A strided one goes inside the first
    `factor` pieces that axes to its right make: so they are put in from the right.
    """
    order = _Order(mesh)
    for number in reversed(range(len(placements))):
        placement = placements[number]
        if placement.dim == dim:
            order.insert(number, placement)
    return order.axes()


@dataclass(slots=True)
class _Order:
    """Parts of axes, major to minor: (axis, size before it, size)."""

    mesh: MeshInfo
    parts: list[tuple[int, int, int]] = field(default_factory=list)

    def insert(self, number: int, placement: _Placement) -> None:
        left, at = placement.factor, 0
        while left > 1:
            if at == len(self.parts):
                raise ShardingError(
                    f"{placement} on axis {self.mesh.names[number]!r} leaves each device several pieces apart",
                    remedy="its factor must be a product of the sizes of axes behind it that split the same dim",
                )
            axis, before, size = self.parts[at]
            if left % size and size % left:
                raise ShardingError(f"{placement}: factor {placement.factor} cuts axis {self.mesh.names[axis]!r} amiss")
            # The factor ends inside this axis: it is cut, and the new one goes between its parts.
            if size > left:
                self.parts[at : at + 1] = [(axis, before, left), (axis, before * left, size // left)]
                size = left
            left, at = left // size, at + 1
        self.parts.insert(at, (number, 1, self.mesh.sizes[number]))

    def axes(self) -> tuple[AxisRef, ...]:
        whole = self.mesh.sizes
        return tuple(
            AxisRef(self.mesh.names[n]) if size == whole[n] else AxisRef(self.mesh.names[n], before, size)
            for n, before, size in self.parts
        )


def _parsed(text: str) -> list[_Placement]:
    scan = Scanner(text)
    closing = ")" if scan.looking_at("(") else "]"
    if not (scan.accept("(") or scan.accept("[")):
        scan.fail("expected placements in (...), as (Shard(dim=0), Replicate())")
    found: list[_Placement] = []
    while not scan.accept(closing):
        if found:
            scan.expect(",", str(found[-1]))
            if scan.accept(closing):  # as Python writes a tuple of one
                break
        found.append(_placement(scan))
    if scan.peek():
        scan.fail("text after the end of the placements")
    return found


def _placement(scan: Scanner) -> _Placement:
    at = scan.skip()
    word = scan.word()
    reader = _READERS.get(word)
    if reader is None:
        scan.fail("expected Shard(dim), Replicate(), Partial(op) or _StridedShard(dim, sf)", at=at)
    return reader(scan)


def _shard(scan: Scanner) -> _Placement:
    scan.expect("(", "Shard")
    dim = _argument(scan, "dim")
    scan.expect(")", "the dim")
    return _Placement(dim)


def _strided(scan: Scanner) -> _Placement:
    scan.expect("(", "_StridedShard")
    dim = _argument(scan, "dim")
    scan.expect(",", "the dim")
    at = scan.skip()
    factor = _argument(scan, "sf", "split_factor")
    if factor < 1:
        scan.fail("a split factor is at least 1", at=at)
    scan.expect(")", "the factor")
    return _Placement(dim, factor)


def _argument(scan: Scanner, *names: str) -> int:
    at = scan.skip()
    word = scan.word()
    if word and word not in names:
        scan.fail(f"expected {names[0]}", at=at)
    if word:
        scan.expect("=", word)
    return scan.integer(f"{names[0]}, a number")


def _replicate(scan: Scanner) -> _Placement:
    if scan.accept("("):
        scan.expect(")", "Replicate(")
    return _Placement()


def _partial(scan: Scanner) -> _Placement:
    if not scan.accept("(") or scan.accept(")"):
        return _Placement(reduction="sum")
    at = scan.skip()
    word = scan.string("a reduction") if scan.is_string() else scan.word()
    if word == "reduce_op" and scan.accept("="):
        word = scan.string("a reduction") if scan.is_string() else scan.word()
    if word not in REDUCTIONS:
        scan.fail(f"expected one of {', '.join(REDUCTIONS)}", at=at)
    scan.expect(")", word)
    return _Placement(reduction=word)


_READERS: dict[str, Callable[[Scanner], _Placement]] = {
    **dict.fromkeys(("Shard", "S"), _shard),
    **dict.fromkeys(("_StridedShard", "_S"), _strided),
    **dict.fromkeys(("Replicate", "R"), _replicate),
    **dict.fromkeys(("Partial", "_Partial", "P"), _partial),
}


def write(found: Interchange, context: FormatContext) -> str:
    """`(Shard(dim=0), Replicate())`; axes that split a dim in another order than the mesh's make strided shards."""
    form = found.form
    unreduced = {axis.name for axis in _whole(found.unreduced)}
    placements = [
        _Placement(reduction=found.reduction) if name in unreduced else _splitting(name, form)
        for name in form.mesh.names
    ]
    for dim, axes in enumerate(form.dims):
        # Placements have no words for parts of axes, nor for some orders: what they say is read again and compared.
        if _splitters(_axes_of(dim, placements, form.mesh), form.mesh) != _splitters(axes.axes, form.mesh):
            raise ShardingError(
                f"no placements say how parts of axes split dim {dim}: {axes}",
                remedy="use a mesh with these axes split in two",
            )
    inner = ", ".join(map(str, placements))
    return f"({inner},)" if len(placements) == 1 else f"({inner})"


def _splitters(axes: tuple[AxisRef, ...], mesh: MeshInfo) -> list[AxisRef]:
    """Without axes of size 1, whose order says nothing."""
    return [axis for axis in axes if axis.ways(mesh) > 1]


def _whole(axes: tuple[AxisRef, ...]) -> tuple[AxisRef, ...]:
    part = next((axis for axis in axes if axis.size is not None), None)
    if part is not None:
        raise ShardingError(f"no placement says that part {part} of an axis is partial", remedy="split the axis in two")
    return axes


def _splitting(name: str, form: NamedForm) -> _Placement:
    """Of an axis that splits one dim, or none: the factor is what later axes make of the dim outside of it."""
    number = form.mesh.index_of(name)
    for dim, axes in enumerate(form.dims):
        factor = 1
        for axis in axes.axes:
            if axis.name == name:
                return _Placement(dim, factor)
            factor *= axis.ways(form.mesh) if form.mesh.index_of(axis.name) > number else 1
    return _Placement()
