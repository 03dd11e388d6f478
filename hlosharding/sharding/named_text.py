"""Named shardings from text: `{mesh['a'=2,'b'=4], [{'a'}, {'b':(1)2, ?}], replicated={...}, metadata={...}}`.

Floor: sharding.  XLA's own parser ends the process on most of what is refused here.
"""

from __future__ import annotations

from typing import Any

from hlosharding.errors import ShardingError
from hlosharding.sharding.hlo_sharding import HloSharding
from hlosharding.sharding.mesh import MeshInfo
from hlosharding.sharding.metadata import OpMetadata
from hlosharding.sharding.named import AxisRef, DimAxes, NamedForm, check_axes, named_sharding
from hlosharding.sharding.scanner import Scanner
from hlosharding.sharding.tile_assignment import TileAssignment

_GROUPS = ("replicated", "unreduced", "manual")


def parse_named(scan: Scanner) -> HloSharding:
    """From the mesh up to and with the closing brace of the leaf."""
    from hlosharding.sharding.text_parser import read_metadata

    start = scan.skip()
    form = _maximal(scan) if scan.accept("maximal_mesh") else _form(scan)
    metadata: tuple[OpMetadata, ...] = ()
    if scan.accept(","):
        at = scan.skip()
        if scan.word() != "metadata":
            scan.fail("expected metadata here, or the end of the sharding", at=at)
        metadata = read_metadata(scan)
    scan.expect("}", "a named sharding")
    try:
        return named_sharding(form).with_metadata(metadata)
    except ShardingError as error:
        scan.fail(error.what, at=start, remedy=error.remedy)


def _maximal(scan: Scanner) -> NamedForm:
    scan.expect("[", "maximal_mesh")
    at = scan.skip()
    if scan.word() != "device_id":
        scan.fail("expected device_id", at=at)
    scan.expect("=", "device_id")
    device = scan.integer("a device")
    scan.expect("]", "the device")
    return NamedForm(MeshInfo((), ()), whole="maximal", device=device)


def _form(scan: Scanner) -> NamedForm:
    mesh = _mesh(scan)
    scan.expect(",", "the mesh")
    at = scan.skip()
    if not scan.looking_at("["):
        word = scan.word()
        if word not in _GROUPS:
            scan.fail("expected the axes of each dim in [...], or replicated, manual, unreduced", at=at)
        return NamedForm(mesh, whole=word)
    if not mesh.names:
        scan.fail("a mesh without axes can only be replicated", at=at)
    dims = _dims(scan, mesh)
    groups = _groups(scan, mesh)
    replicated, unreduced, manual = (groups.get(word, ()) for word in _GROUPS)
    return NamedForm(mesh, dims, replicated, unreduced, manual)


def _mesh(scan: Scanner) -> MeshInfo:
    start = scan.skip()
    if scan.word() != "mesh":
        scan.fail("expected mesh[...]", at=start)
    scan.expect("[", "mesh")
    names: list[str] = []
    sizes: list[int] = []
    while not scan.accept("]"):
        if names:
            scan.expect(",", f"axis {names[-1]!r}")
        names.append(scan.string("an axis name"))
        scan.expect("=", f"axis {names[-1]!r}")
        sizes.append(scan.integer("an axis size"))
    devices = _device_ids(scan, sizes)
    try:
        return MeshInfo(names, sizes, devices)
    except ShardingError as error:
        scan.fail(error.what, at=start, remedy=error.remedy)


def _device_ids(scan: Scanner, sizes: list[int]) -> Any:
    before = scan.position
    if not (scan.accept(",") and scan.looking_at("device_ids")):
        scan.position = before
        return None
    scan.word()
    scan.expect("=", "device_ids")
    at = scan.skip()
    scan.expect("(", "device_ids=")
    if not scan.looking_at("["):
        ids = scan.open_integers()
        scan.expect(")", "the devices")
        if ids == tuple(range(len(ids))):
            scan.fail("device ids in plain order", at=at, remedy="leave device_ids out")
        return ids
    reshape = scan.integers("[", "]")
    perm = scan.integers("(", ")", "T") if scan.accept("T") else None
    scan.expect(")", "the devices")
    try:
        return TileAssignment.from_iota(sizes or [1], reshape, perm)
    except ShardingError as error:
        scan.fail(error.what, at=at)


def _dims(scan: Scanner, mesh: MeshInfo) -> tuple[DimAxes, ...]:
    scan.expect("[")
    dims: list[DimAxes] = []
    while not scan.accept("]"):
        if dims:
            scan.expect(",", "the axes of a dim")
        dims.append(_dim(scan, mesh))
    return tuple(dims)


def _dim(scan: Scanner, mesh: MeshInfo) -> DimAxes:
    scan.expect("{")
    axes: list[AxisRef] = []
    while not scan.accept("}"):
        if axes:
            scan.expect(",", str(axes[-1]))
        if scan.accept("?"):
            scan.expect("}", "'?'")
            return DimAxes(tuple(axes), True)
        axes.append(_axis(scan, mesh, axes))
    return DimAxes(tuple(axes))


def _axis(scan: Scanner, mesh: MeshInfo, before: list[AxisRef]) -> AxisRef:
    at = scan.skip()
    name = scan.string("an axis name")
    if name not in mesh.names:
        scan.fail(f"the mesh has no axis {name!r}", at=at, remedy=f"its axes are {', '.join(map(repr, mesh.names))}")
    if not scan.accept(":"):
        return AxisRef(name)
    (pre_size,) = _one(scan.integers("(", ")", "':'"), scan)
    axis = AxisRef(name, pre_size, scan.integer("a sub-axis size"))
    try:
        check_axes((axis,), mesh)
    except ShardingError as error:
        scan.fail(error.what, at=at)
    if before and before[-1].name == name and before[-1].span(mesh)[1] == pre_size:
        scan.fail(f"sub-axes {before[-1]} and {axis} are one", at=at, remedy="write them as one sub-axis")
    return axis


def _one(values: tuple[int, ...], scan: Scanner) -> tuple[int, ...]:
    return values if len(values) == 1 else scan.fail(f"expected one pre-size, got {len(values)}")


def _groups(scan: Scanner, mesh: MeshInfo) -> dict[str, tuple[AxisRef, ...]]:
    """`replicated={...}`, `unreduced={...}`, `manual={...}`, each at most once; stops before `metadata`."""
    groups: dict[str, tuple[AxisRef, ...]] = {}
    while True:
        before = scan.position
        if not scan.accept(",") or scan.looking_at("metadata"):
            scan.position = before
            return groups
        at = scan.skip()
        word = scan.word()
        if word not in _GROUPS:
            scan.fail(f"expected one of {', '.join(_GROUPS)}, metadata", at=at)
        if word in groups:
            scan.fail(f"a second {word!r}", at=at)
        scan.expect("=", word)
        found = _dim(scan, mesh)
        if found.is_open:
            scan.fail(f"'?' among the {word} axes", at=at)
        groups[word] = found.axes
