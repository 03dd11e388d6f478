"""Any sharding in any format, through one hub; what a format cannot say is refused, by name.

Floor: sharding.
"""

from __future__ import annotations

from typing import Any

from hlosharding.errors import ShardingError
from hlosharding.sharding.formats.formats_table import FEATURES, FORMATS, Format
from hlosharding.sharding.formats.interchange import FormatContext, Interchange


def convert(sharding: Any, to: str, *, mesh: Any = None, ndim: int | None = None, source: str | None = None) -> Any:
    """The same sharding in another format: hlo, v1, v2, v3, sdy, shard, mesh, dtensor, onnx, jax or spec.

    `sharding`: an object or a text of any of them; `source` names its format where that cannot be told.  `mesh`: whose
    axes the sharding names, and those of the result (a jax mesh, {axis: size}, "x=2,y=4", a declaration of a program).
    `ndim`: the rank of the array, where the source leaves it open (`P('x')`, `[[0]]`); else the dims that it shows.

    Returns an HloSharding for `hlo`, a NamedSharding and a PartitionSpec for `jax` and `spec`, a ShardingSpecProto for
    `onnx`, and else text.  Raises ShardingError for what is no sharding, and for what the format cannot say: never an
    approximation.

    >>> convert("{devices=[4,2]<=[2,4]T(1,0)}", to="sdy", mesh="x=2,y=4")
    '#sdy.sharding<mesh<["x"=2, "y"=4]>, [{"y"}, {"x"}]>'
    >>> convert('#sdy.sharding<mesh<["x"=2, "y"=4]>, [{"y"}, {"x"}]>', to="dtensor")
    '(Shard(dim=1), Shard(dim=0))'
    >>> convert("[[x]] partial=max[y]", to="hlo", mesh={"x": 2, "y": 4})
    Traceback (most recent call last):
        ...
    hlosharding.errors.ShardingError: hlo cannot say that partial values are combined by max; it knows sum
    """
    target = _format(to)
    context = FormatContext.of(mesh, ndim)
    found = _read(sharding, context, source)
    if target.names_axes and found.sharding.kind not in ("tuple", "unknown"):
        found = found.over(context.mesh, context.ndim)
    _check(found, target)
    return target.write(found, context)


def same_sharding(a: Any, b: Any, *, mesh: Any = None, ndim: int | None = None) -> bool:
    """Whether two shardings, in whatever formats, lay an array out alike: each device holds the same piece of it.

    What a later propagation may do with them (open dims, priorities) and how they are spelled does not count; partial
    values and how they are combined do.  Where one leaves the rank open, the other's holds.  Raises ShardingError.

    >>> same_sharding("P('x')", "{devices=[2,1,4]<=[8] last_tile_dim_replicate}", mesh="x=2,y=4")
    True
    """
    context = FormatContext.of(mesh, ndim)
    first, second = _read(a, context, None), _read(b, context, None)
    ranks = [found.rank for found in (first, second) if found.rank is not None]
    if ndim is None and len(set(ranks)) > 1:
        wider = FormatContext.of(mesh, max(ranks))
        first, second = _widened(a, first, wider), _widened(b, second, wider)
    return first.sharding == second.sharding and first.reduction == second.reduction


def _widened(source: Any, found: Interchange, context: FormatContext) -> Interchange:
    """Read again as of an array of higher rank, which only an open format allows."""
    try:
        return _read(source, context, None)
    except ShardingError:
        return found


def _format(name: str) -> Format:
    if name not in FORMATS:
        raise ShardingError(f"no format {name!r}", remedy=f"there are {', '.join(FORMATS)}")
    return FORMATS[name]


def _read(sharding: Any, context: FormatContext, source: str | None) -> Interchange:
    form = _format(source) if source is not None else _recognised(sharding)
    return form.read(sharding, context)


def _recognised(sharding: Any) -> Format:
    # Plug-ins came last and are asked first: theirs are lists of their own, and `spec` takes any list.
    for form in reversed([*FORMATS.values()]):
        if form.is_one(sharding):
            return form
    shown = repr(sharding)
    shown = shown if len(shown) <= 200 else f"{shown[:200]} ..."
    known = ", ".join(f"{form.name} ({form.looks_like})" for form in FORMATS.values())
    raise ShardingError(f"{shown} is in no format of shardings", remedy=f"known are {known}")


def _check(found: Interchange, target: Format) -> None:
    """Raise ShardingError for what would be lost, of a tuple in each of its leaves, too."""
    for one in (found, *map(Interchange, found.sharding.tuple_elements)):
        _check_one(one, target)


def _check_one(found: Interchange, target: Format) -> None:
    for name, (find, remedy) in FEATURES.items():
        said = find(found) if name not in target.says else None
        if said is not None:
            raise ShardingError(f"{target.name} cannot say {said}", remedy=remedy)
    is_partial = FEATURES["partial values"][0](found) is not None
    if is_partial and found.reduction not in target.reductions:
        what = f"{target.name} cannot say that partial values are combined by {found.reduction}"
        raise ShardingError(what, remedy=f"it knows {', '.join(target.reductions)}")
