"""MLIR's `shard` dialect: `shard.sharding @grid0 split_axes = [[0], [1]]`, and the `mesh` dialect it was before.

Floor: notations.  Halos and shards of unequal sizes have no words anywhere else: they are refused.
"""

from __future__ import annotations

import re
from itertools import pairwise
from math import prod
from typing import Any

from hlosharding.errors import ShardingError
from hlosharding.notations.axis_sharding import AxisSharding
from hlosharding.notations.mesh_lists import declared_mesh, interchange
from hlosharding.sharding import (
    Axes,
    AxisRef,
    Cluster,
    FormatContext,
    Interchange,
    MeshInfo,
    Scanner,
    ceil_div,
    read_mlir_symbol,
    write_mlir_symbol,
)

_TEXT = re.compile(r"\s*(%[\w#]+\s*=\s*)?(shard\.(grid|sharding)|mesh\.(mesh|sharding))\b")
_GRID = re.compile(r"\s*(?:shard\.grid|mesh\.mesh)\s*(?P<text>@(?P<name>\w+)\s*\(\s*shape\s*=\s*[\dx?]+\s*\))")
_RESULT = re.compile(r"\s*(?:%[\w#]+\s*=\s*)?")
_DEFAULT_SYMBOL = "grid0"


def is_shard(source: Any) -> bool:
    """A text of this dialect?"""
    return isinstance(source, str) and _TEXT.match(source) is not None


def read(source: str, context: FormatContext) -> Interchange:
    """From `shard.sharding ...`, behind declarations of grids if there are any."""
    grids: dict[str, Cluster] = {}
    end = 0
    while (grid := _GRID.match(source, end)) is not None:
        grids[grid["name"]], end = Cluster.of(grid["text"]), grid.end()
    scan = Scanner(source)
    result = _RESULT.match(source, end)
    scan.position = result.end() if result is not None else end
    if not (scan.accept("shard.sharding") or scan.accept("mesh.sharding")):
        scan.fail("expected shard.sharding @grid split_axes = [...]")
    at = scan.skip()
    symbol = read_mlir_symbol(scan)
    mesh = _mesh(symbol, grids, context, scan, at)
    lists = _lists(scan)
    found = interchange(lists, mesh, context)
    _check_sizes(scan, [prod(mesh.sizes[int(axis)] for axis in axes) for axes in lists.dims if axes])
    if scan.accept(":") and not (scan.accept("!shard.sharding") or scan.accept("!mesh.sharding")):
        scan.fail("expected !shard.sharding")
    if scan.peek():
        scan.fail("text after the end of the sharding")
    return found


def _mesh(symbol: str, grids: dict[str, Cluster], context: FormatContext, scan: Scanner, at: int) -> MeshInfo:
    if symbol in grids:
        return declared_mesh(grids[symbol], context.mesh)
    if grids or (context.mesh is not None and context.symbol not in (None, symbol)):
        scan.fail(f"grid @{symbol} is not known", at=at, remedy="declare it before: shard.grid @grid0(shape = 2x4)")
    return context.needed_mesh(f"grid @{symbol}")


def _lists(scan: Scanner) -> AxisSharding:
    scan.expect("split_axes")
    scan.expect("=", "split_axes")
    dims = _split_axes(scan)
    partial, kind = _partial(scan)
    return AxisSharding(dims, partial, kind)


def _check_sizes(scan: Scanner, ways: list[int]) -> None:
    """What may stand behind the axes, which `ways` tells of each dim that is split."""
    for word, check in (("halo_sizes", _check_halos), ("sharded_dims_offsets", _check_offsets)):
        if scan.accept(word):
            scan.expect("=", word)
            check(_sizes(scan, word), ways)


def _split_axes(scan: Scanner) -> tuple[Axes, ...]:
    scan.expect("[", "split_axes =")
    return tuple([_axes(scan) for _ in scan.until("]", "the axes of a dim")])


def _axes(scan: Scanner) -> Axes:
    # The scanner's lists have at least one number; a dim that is whole has none.
    if scan.looking_at("[") and scan.text[scan.position + 1 :].lstrip()[:1] == "]":
        scan.expect("[")
        scan.expect("]")
        return ()
    at = scan.skip()
    axes = scan.integers("[", "]")
    if min(axes) < 0:
        scan.fail(f"axis {min(axes)} is negative", at=at)
    return axes


def _partial(scan: Scanner) -> tuple[Axes, str]:
    """`partial = max[1]`, which the dialect had when it was called mesh."""
    if not scan.accept("partial"):
        return (), "sum"
    scan.expect("=", "partial")
    kind = scan.word()
    return _axes(scan), kind


def _sizes(scan: Scanner, word: str) -> tuple[int, ...]:
    scan.expect("[", word)
    if scan.peek() in ("%", "?"):
        scan.fail(f"{word} that are known only when the program runs", remedy="give numbers")
    if scan.accept("]"):
        return ()
    found = scan.open_integers()
    if not scan.accept("]"):
        scan.fail(f"expected numbers and ']' in {word}", remedy="sizes that the program computes cannot be said")
    return found


def _check_halos(sizes: tuple[int, ...], ways: list[int]) -> None:
    if any(sizes):
        raise ShardingError(
            f"halo_sizes = {list(sizes)}: only this dialect has tiles that overlap", remedy="leave halo_sizes out"
        )


def _check_offsets(offsets: tuple[int, ...], ways: list[int]) -> None:
    """Shards as large as HLO's tiles may be listed; any others cannot be said."""
    if offsets and len(offsets) != sum(ways) + len(ways):
        raise ShardingError(f"sharded_dims_offsets = {list(offsets)} are not {sum(ways) + len(ways)} for {ways} shards")
    rest = list(offsets)
    for count in ways if offsets else ():
        found, rest = rest[: count + 1], rest[count + 1 :]
        size = found[-1]
        if found != [min(n * ceil_div(size, count), size) for n in range(count + 1)]:
            sizes = [after - before for before, after in pairwise(found)]
            raise ShardingError(
                f"sharded_dims_offsets = {found}: shards of {sizes} elements; only this dialect has unequal ones",
                remedy="leave sharded_dims_offsets out",
            )


def write(found: Interchange, context: FormatContext) -> str:
    """`shard.sharding @grid0 split_axes = [[0], [1]] : !shard.sharding`."""
    names = found.form.mesh.names

    def text(axes: tuple[AxisRef, ...]) -> str:
        return f"[{', '.join(str(names.index(axis.name)) for axis in axes)}]"

    lists = ", ".join(text(dim.axes) for dim in found.form.dims) or "[]"
    grid = write_mlir_symbol(context.symbol or _DEFAULT_SYMBOL)
    return f"shard.sharding {grid} split_axes = [{lists}] : !shard.sharding"
