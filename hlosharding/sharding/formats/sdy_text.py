"""Shardy's texts: meshes, and shardings over them, in programs' attributes and alone.

Floor: sharding.  Knows the texts; what they mean is a `NamedForm`, which Shardy and XLA share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hlosharding.sharding.formats.mlir_text import read_name, read_string, read_symbol, write_string, write_symbol
from hlosharding.sharding.mesh import MeshInfo
from hlosharding.sharding.named import AxisRef, DimAxes, NamedForm
from hlosharding.sharding.named_text import AxisReader, read_axis_sizes
from hlosharding.sharding.scanner import Scanner
from hlosharding.sharding.tile_assignment import check_devices

REDUCTIONS = ("sum", "max", "min")
"""What pieces of an unreduced value may be combined by; `sum` goes without saying."""


@dataclass(frozen=True, slots=True)
class SdySharding:
    """A sharding as Shardy says it: axes, and what XLA has no word for."""

    form: NamedForm
    priorities: tuple[int | None, ...] = ()
    """Of each dim, where one is given: 0 first."""
    reduction: str = "sum"

    @property
    def open_dims(self) -> tuple[int, ...]:
        """The dims that propagation may split further."""
        return tuple(n for n, dim in enumerate(self.form.dims) if dim.is_open)

    def __str__(self) -> str:
        return write_sharding(self)


def is_mesh_text(text: str) -> bool:
    """Does the text declare a mesh of Shardy's?"""
    return text.lstrip().startswith(("sdy.mesh", "#sdy.mesh"))


def read_mesh_text(text: str) -> tuple[MeshInfo, str | None]:
    """`sdy.mesh @mesh = <["x"=2]>` or `#sdy.mesh<["x"=2]>`, and its symbol.

    >>> read_mesh_text('sdy.mesh @mesh = <["x"=2, "y"=4]>')
    (MeshInfo('x'=2, 'y'=4), 'mesh')
    """
    scan = Scanner(text)
    if scan.accept("#sdy.mesh"):
        symbol, form = None, read_mesh(scan)
    else:
        scan.expect("sdy.mesh")
        symbol, form = _declaration(scan)
    if scan.peek():
        scan.fail("text after the end of the mesh")
    if form.whole == "maximal":
        scan.fail("a mesh of one device and no axes", at=0, remedy="give a mesh with axes")
    return form.mesh, symbol


def read_declarations(scan: Scanner) -> dict[str, NamedForm]:
    """`sdy.mesh @mesh = <["x"=2]>`, any number of them, by symbol."""
    found: dict[str, NamedForm] = {}
    while scan.accept("sdy.mesh"):
        at = scan.skip()
        symbol, form = _declaration(scan)
        if symbol in found:
            scan.fail(f"a second mesh @{symbol}", at=at)
        found[symbol] = form
    return found


def _declaration(scan: Scanner) -> tuple[str, NamedForm]:
    symbol = read_symbol(scan)
    scan.expect("=", f"@{symbol}")
    return symbol, read_mesh(scan)


def read_mesh(scan: Scanner) -> NamedForm:
    """`<["x"=2, "y"=4], device_ids=[...]>`: what is replicated over that mesh, or lies on its only device."""
    start = scan.skip()
    scan.expect("<", "mesh")
    scan.expect("[", "'<'")
    sizes = read_axis_sizes(scan, lambda: read_string(scan, "an axis name"))
    devices = _device_ids(scan)
    scan.expect(">", "the mesh")
    if not sizes and devices is not None and len(devices) == 1:
        return NamedForm(MeshInfo((), ()), whole="maximal", device=devices[0])
    with scan.failing(start):
        return NamedForm(MeshInfo(tuple(sizes), tuple(sizes.values()), devices), whole="replicated")


def _device_ids(scan: Scanner) -> tuple[int, ...] | None:
    if not scan.accept(","):
        return None
    at = scan.skip()
    if scan.word() != "device_ids":
        scan.fail("expected device_ids", at=at)
    scan.expect("=", "device_ids")
    at = scan.skip()
    found = scan.integers("[", "]", "device_ids=")
    if min(found) < 0:
        scan.fail(f"device {min(found)} is negative", at=at)
    with scan.failing(at):
        check_devices(max(found) + 1)
    return found


MeshFinder = Callable[[str], NamedForm | None]
"""From a symbol to its mesh, as `read_mesh` gives it."""


def read_sharding(scan: Scanner, find: MeshFinder) -> SdySharding:
    """`<@mesh, [{"x", ?}, {"y":(1)2}p1], replicated={...}, unreduced={...}>`, or the same over `mesh<...>`."""
    scan.expect("<")
    start = scan.skip()
    over = _mesh_of_sharding(scan, find)
    scan.expect(",", "the mesh")
    reader = AxisReader(scan, over.mesh, lambda: read_string(scan, "an axis name"))
    priorities: list[int | None] = []
    dims = reader.dims(lambda dim: priorities.append(_priority(scan, dim)))
    groups, reduction = _groups(scan, reader)
    scan.expect(">", "the sharding")
    if over.whole == "maximal":
        if dims or groups:
            scan.fail("a sharding over one device names no dims", at=start, remedy="write []")
        return SdySharding(over)
    form = NamedForm(over.mesh, dims, groups.get("replicated", ()), groups.get("unreduced", ()))
    return SdySharding(form, tuple(priorities) if any(p is not None for p in priorities) else (), reduction)


def _mesh_of_sharding(scan: Scanner, find: MeshFinder) -> NamedForm:
    at = scan.skip()
    if scan.looking_at("@"):
        symbol = read_symbol(scan)
        found = find(symbol)
        if found is None:
            scan.fail(f"mesh {write_symbol(symbol)} is not known", at=at, remedy="define it before, or give the mesh")
        return found
    if not scan.accept("mesh"):
        scan.fail("expected a mesh: @name or mesh<...>", at=at)
    return read_mesh(scan)


def _priority(scan: Scanner, dim: DimAxes) -> int | None:
    at = scan.skip()
    if not scan.accept("p"):
        return None
    priority = scan.integer("a priority")
    if priority < 0:
        scan.fail("a priority is at least 0", at=at)
    if not (dim.axes or dim.is_open):
        scan.fail("an empty closed dim has a priority", at=at, remedy="leave it out")
    return priority


def _groups(scan: Scanner, reader: AxisReader) -> tuple[dict[str, tuple[AxisRef, ...]], str]:
    groups: dict[str, tuple[AxisRef, ...]] = {}
    reduction = "sum"
    while scan.accept(","):
        at = scan.skip()
        word = scan.word()
        if word not in ("replicated", "unreduced") or word in groups:
            scan.fail("expected replicated={...} or unreduced={...}, each once", at=at)
        scan.expect("=", word)
        if word == "unreduced" and not scan.looking_at("{"):
            at = scan.skip()
            reduction = scan.word()
            if reduction not in REDUCTIONS:
                scan.fail(f"expected {{...}}, or one of {', '.join(REDUCTIONS)} before it", at=at)
        groups[word] = reader.group(word, at)
    return groups, reduction if groups.get("unreduced") else "sum"


def read_named_meshes(scan: Scanner) -> dict[str, NamedForm]:
    """`{mesh = #sdy.mesh<["x"=2]>, ...}`, as modules that JAX lowered carry it."""
    found: dict[str, NamedForm] = {}
    scan.expect("{")
    for _ in scan.until("}", "a mesh"):
        name = read_name(scan)
        scan.expect("=", name)
        scan.expect("#sdy.mesh", "'='")
        found[name] = read_mesh(scan)
    return found


def write_mesh(mesh: MeshInfo) -> str:
    """What stands behind `#sdy.mesh`, or `mesh`."""
    axes = ", ".join(f"{write_string(name)}={size}" for name, size in zip(mesh.names, mesh.sizes, strict=True))
    ids = "" if mesh.is_plain else f", device_ids=[{', '.join(map(str, mesh.device_ids))}]"
    return f"<[{axes}]{ids}>"


def write_sharding(sharding: SdySharding, symbol: str | None = None) -> str:
    """`<mesh<...>, [...]>`, or `<@symbol, [...]>`.

    >>> form = NamedForm(MeshInfo(("x", "y"), (2, 4)), (DimAxes((AxisRef("x"),), True), DimAxes((AxisRef("y", 1, 2),))))
    >>> write_sharding(SdySharding(form, (None, 1)), "mesh")
    '<@mesh, [{"x", ?}, {"y":(1)2}p1]>'
    """
    form = sharding.form
    if form.whole == "maximal":
        return f"<mesh<[], device_ids=[{form.device}]>, []>"
    mesh = write_symbol(symbol) if symbol is not None else f"mesh{write_mesh(form.mesh)}"
    priorities = sharding.priorities or (None,) * len(form.dims)
    pairs = zip(form.dims, priorities, strict=True)
    dims = [dim.written(write_string) + ("" if p is None else f"p{p}") for dim, p in pairs]
    parts = [mesh, f"[{', '.join(dims)}]"]
    kind = "" if sharding.reduction == "sum" else sharding.reduction
    parts += [f"replicated={{{_written(form.replicated)}}}"] if form.replicated else []
    parts += [f"unreduced={kind}{{{_written(form.unreduced)}}}"] if form.unreduced else []
    return f"<{', '.join(parts)}>"


def _written(axes: tuple[AxisRef, ...]) -> str:
    return ", ".join(axis.written(write_string) for axis in axes)
