"""Lists of axes from text: `[{'a', ?}, {'b':(1)2}]` and `{'a', 'b'}`, whichever way a format quotes its names.

Floor: sharding.  Refuses unknown axes, parts of axes that do not fit, and any part twice, where they stand.
"""

from __future__ import annotations

from collections.abc import Callable

from hlosharding.sharding.mesh import MeshInfo
from hlosharding.sharding.named import AxisRef, AxisUse, DimAxes
from hlosharding.sharding.scanner import Scanner


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
        while not self._scan.accept("]"):
            if dims:
                self._scan.expect(",", "the axes of a dim")
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
    while not scan.accept("]"):
        if sizes:
            scan.expect(",", "an axis")
        at = scan.skip()
        name = read_name()
        if name in sizes:
            scan.fail(f"two axes are named {name!r}", at=at)
        scan.expect("=", f"axis {name!r}")
        sizes[name] = scan.integer("an axis size")
    return sizes
