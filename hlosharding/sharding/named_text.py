"""Named shardings from text: `{mesh['a'=2,'b'=4], [{'a'}, {'b':(1)2, ?}], replicated={...}, metadata={...}}`.

Floor: sharding.  XLA's own parser ends the process on most of what is refused here.
"""

from __future__ import annotations

from typing import Any

from hlosharding.sharding.axis_reader import AxisReader, read_axis_sizes
from hlosharding.sharding.device_count import count_devices
from hlosharding.sharding.mesh import MeshInfo
from hlosharding.sharding.metadata import OpMetadata, read_metadata
from hlosharding.sharding.named import AxisRef, NamedForm
from hlosharding.sharding.scanner import Scanner
from hlosharding.sharding.tile_assignment import TileAssignment
from hlosharding.sharding.value import S

_GROUPS = ("replicated", "unreduced", "manual")


def parse_named(cls: type[S], scan: Scanner) -> S:
    """From the mesh up to and with the closing brace of the leaf."""
    start = scan.skip()
    form = _maximal(scan) if scan.accept("maximal_mesh") else _form(scan)
    metadata: tuple[OpMetadata, ...] = ()
    if scan.accept(","):
        at = scan.skip()
        if scan.word() != "metadata":
            scan.fail("expected metadata here, or the end of the sharding", at=at)
        metadata = read_metadata(scan)
    scan.expect("}", "a named sharding")
    with scan.failing(start):
        return cls.from_named_form(form).with_metadata(metadata)


def _maximal(scan: Scanner) -> NamedForm:
    scan.expect("[", "maximal_mesh")
    at = scan.skip()
    if scan.word() != "device_id":
        scan.fail("expected device_id", at=at)
    scan.equals("device_id")
    device = scan.device()
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
    reader = AxisReader(scan, mesh, lambda: scan.string("an axis name"))
    dims = reader.dims()
    groups = _groups(scan, reader)
    replicated, unreduced, manual = (groups.get(word, ()) for word in _GROUPS)
    return NamedForm(mesh, dims, replicated, unreduced, manual)


def _mesh(scan: Scanner) -> MeshInfo:
    start = scan.skip()
    if scan.word() != "mesh":
        scan.fail("expected mesh[...]", at=start)
    scan.expect("[", "mesh")
    names = read_axis_sizes(scan, lambda: scan.string("an axis name"))
    sizes = list(names.values())
    devices = _device_ids(scan, sizes)
    with scan.failing(start):
        return MeshInfo(tuple(names), sizes, devices)


def _device_ids(scan: Scanner, sizes: list[int]) -> Any:
    before = scan.position
    if not (scan.accept(",") and scan.word() == "device_ids"):
        scan.position = before
        return None
    scan.equals("device_ids")
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
    with scan.failing(at):
        count_devices(reshape)
        return TileAssignment.from_iota(sizes or [1], reshape, perm)


def _groups(scan: Scanner, reader: AxisReader) -> dict[str, tuple[AxisRef, ...]]:
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
        scan.equals(word)
        groups[word] = reader.group(word, at)
