"""Named shardings from text: `{mesh['a'=2,'b'=4], [{'a'}, {'b':(1)2, ?}], replicated={...}, metadata={...}}`.

Floor: sharding.  XLA's own parser ends the process on most of what is refused here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hlosharding.sharding.mesh import MeshInfo
from hlosharding.sharding.metadata import OpMetadata, read_metadata
from hlosharding.sharding.named import AxisRef, AxisUse, DimAxes, NamedForm
from hlosharding.sharding.scanner import Scanner
from hlosharding.sharding.tile_assignment import TileAssignment, count_devices
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
    # The comma may also be the one behind the mesh.
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
        # For its error: the iota of a stranger's text may be of more devices than can be listed.
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


# ---- lists of axes from text: `[{'a', ?}, {'b':(1)2}]` and `{'a', 'b'}`, whichever way a format quotes its names
#
# Refuses unknown axes, parts of axes that do not fit, and any part twice, where they stand.


class AxisReader:
    """Reads one sharding's axes over `mesh`; `name` reads the name of an axis.

    >>> scan = Scanner("[{'a', ?}, {'b':(1)2}]")
    >>> reader = AxisReader(scan, MeshInfo(("a", "b"), (2, 4)), lambda: scan.string("an axis name"))
    >>> [str(dim) for dim in reader.dims()]
    ["{'a', ?}", "{'b':(1)2}"]
    """

    def __init__(self, scan: Scanner, mesh: MeshInfo, name: Callable[[], str]) -> None:
        self._scan, self._mesh, self._name = scan, mesh, name
        self._use = AxisUse(mesh)

    def dims(self, after_dim: Callable[[DimAxes], None] = lambda dim: None) -> tuple[DimAxes, ...]:
        """The axes of each dim, in brackets; `after_dim` reads what a format has behind each."""
        self._scan.expect("[")
        dims: list[DimAxes] = []
        for _ in self._scan.until("]", "the axes of a dim"):
            dims.append(self.dim())
            after_dim(dims[-1])
        return tuple(dims)

    def dim(self) -> DimAxes:
        """The axes of one dim, in braces."""
        self._scan.expect("{")
        axes: list[AxisRef] = []
        while not self._scan.accept("}"):
            if axes:
                self._scan.expect(",", str(axes[-1]))
            if self._scan.accept("?"):
                self._scan.expect("}", "'?'")
                return DimAxes(tuple(axes), True)
            axes.append(self._axis(axes))
        return DimAxes(tuple(axes))

    def group(self, word: str, at: int) -> tuple[AxisRef, ...]:
        """Axes that split no dim, in braces: the `word` ones, named at `at`."""
        found = self.dim()
        if found.is_open:
            self._scan.fail(f"'?' among the {word} axes", at=at)
        return found.axes

    def _axis(self, before: list[AxisRef]) -> AxisRef:
        at = self._scan.skip()
        axis = self._reference()
        with self._scan.failing(at):
            self._use.add(axis)
        if before and before[-1].name == axis.name and before[-1].span(self._mesh)[1] == axis.pre_size:
            self._scan.fail(f"sub-axes {before[-1]} and {axis} are one", at=at, remedy="write them as one sub-axis")
        return axis

    def _reference(self) -> AxisRef:
        name = self._name()
        if not self._scan.accept(":"):
            return AxisRef(name)
        self._scan.expect("(", "':'")
        pre_size = self._scan.integer("a pre-size")
        self._scan.expect(")", "the pre-size")
        return AxisRef(name, pre_size, self._scan.integer("a sub-axis size"))


def read_axis_sizes(scan: Scanner, read_name: Callable[[], str]) -> dict[str, int]:
    """The axes of a mesh, `name=size, ...` and a closing bracket; the opening one is read."""
    sizes: dict[str, int] = {}
    for _ in scan.until("]", "an axis"):
        at = scan.skip()
        name = read_name()
        if name in sizes:
            scan.fail(f"two axes are named {name!r}", at=at)
        scan.expect("=", f"axis {name!r}")
        sizes[name] = scan.integer("an axis size")
    return sizes
