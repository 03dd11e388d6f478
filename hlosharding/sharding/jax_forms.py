"""Shardings from and to jax: Mesh, PartitionSpec, NamedSharding, without losing axis names.

Floor: sharding.  jax objects are read by their attributes; jax is imported only where one has to be made.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from hlosharding.errors import ShardingError
from hlosharding.sharding.mesh import MeshInfo
from hlosharding.sharding.named import AxisRef, DimAxes, NamedForm
from hlosharding.sharding.naming import find_named_form
from hlosharding.sharding.text_parser import parse_sharding
from hlosharding.sharding.value import S, ShardingValue

_HLO_TEXT = re.compile(r"\{.*\}", re.DOTALL)


def form_of_spec(mesh: Any, spec: Any, ndim: int | None = None) -> NamedForm:
    """The axes of a PartitionSpec (or axis names, tuples of them and None); missing trailing dims are not split.

    An UNCONSTRAINED dim becomes an open one (`{?}`); `P(..., unreduced={...})` and manual axes of the mesh are kept.

    >>> form_of_spec(MeshInfo(("a", "b"), (2, 4)), (None, ("b", "a"))).to_string()
    "mesh['a'=2,'b'=4], [{}, {'b', 'a'}]"
    """
    if is_partial_extreme(spec):
        raise ShardingError(f"{spec} is partial by {spec.unreduced_kind.name}", remedy="HLO knows partial sums alone")
    info = MeshInfo.from_jax(mesh)
    entries = _partitions(spec)
    if ndim is not None and len(entries) > ndim:
        raise ShardingError(f"{spec} has {len(entries)} entries for an array of {ndim} dims")
    dims = [_dim_axes(entry, info) for entry in entries] + [DimAxes()] * ((ndim or 0) - len(entries))
    named = {axis.name for dim in dims for axis in dim.axes}
    manual = [name for name in _manual_axes(mesh) if name not in named]
    form = NamedForm(
        info, tuple(dims), unreduced=_refs(getattr(spec, "unreduced", ()), info), manual=_refs(manual, info)
    )
    if not any(dim.axes or dim.is_open for dim in dims) and form.manual and len(form.manual) == len(info.names):
        return NamedForm(info, whole="manual")
    return form


def has_unconstrained_dims(sharding: Any) -> bool:
    """Does a jax Sharding leave dims of the array to the compiler, as `PartitionSpec.UNCONSTRAINED` does?

    >>> from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec as P
    >>> mesh = AbstractMesh((2,), ("x",))
    >>> [has_unconstrained_dims(NamedSharding(mesh, spec)) for spec in (P("x", None), P("x", P.UNCONSTRAINED))]
    [False, True]
    """
    return any(map(_is_unconstrained, _partitions(getattr(sharding, "spec", None))))


def is_partial_extreme(spec: Any) -> bool:
    """Does a PartitionSpec say that the pieces of an unreduced array are combined by max or min (jax 0.11)?"""
    kind = getattr(spec, "unreduced_kind", None)
    return kind is not None and kind.name != "sum"


def without_partial_extremes(sharding: Any) -> Any:
    """A jax Sharding; of an array that is partial by max or min the one that says it is whole: each is such a piece.

    >>> from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec as P
    >>> sharding = NamedSharding(AbstractMesh((2,), ("x",)), P("x"))
    >>> without_partial_extremes(sharding) is sharding
    True
    """
    spec: Any = getattr(sharding, "spec", None)
    if not is_partial_extreme(spec):
        return sharding
    return sharding.update(spec=spec.update(unreduced=frozenset(), unreduced_kind=None))


def _partitions(spec: Any) -> list[Any]:
    # A PartitionSpec with unreduced axes refuses to be iterated over.
    return list(getattr(spec, "partitions", spec)) if spec is not None else []


def _is_unconstrained(entry: Any) -> bool:
    return type(entry).__name__.startswith("Unconstrained")


def _refs(names: Iterable[str], mesh: MeshInfo) -> tuple[AxisRef, ...]:
    """Axes in mesh order."""
    return tuple(AxisRef(str(name)) for name in sorted(map(str, names), key=mesh.index_of))


def _manual_axes(mesh: Any) -> list[str]:
    types = getattr(mesh, "axis_types", None) or ()
    names = getattr(mesh, "axis_names", ())
    return [str(n) for n, t in zip(names, types, strict=False) if getattr(t, "name", "") == "Manual"]


def _dim_axes(entry: Any, mesh: MeshInfo) -> DimAxes:
    if _is_unconstrained(entry):
        return DimAxes((), True)
    names = () if entry is None else (entry,) if isinstance(entry, str) else entry
    if not isinstance(names, tuple | list):
        what = f"{entry!r} is no entry of a PartitionSpec"
        raise ShardingError(what, remedy="use None, an axis name or a tuple of them")
    return DimAxes(tuple(AxisRef.of(str(name), mesh) for name in names))


def from_jax(cls: type[S], sharding: Any, ndim: int) -> S:
    """From a jax Sharding of an array of `ndim` dims; None and UNSPECIFIED give unknown.  The memory kind is not kept.

    >>> from hlosharding.sharding import HloSharding
    >>> from_jax(HloSharding, None, 2).is_unknown()
    True
    """
    if sharding is None or type(sharding).__name__ == "UnspecifiedValue":
        return cls.unknown()
    if isinstance(sharding, cls):
        return sharding
    if hasattr(sharding, "mesh") and hasattr(sharding, "spec"):
        return cls.from_named_form(form_of_spec(sharding.mesh, sharding.spec, ndim))
    # JAX lowers it to this, too, whichever device it names.
    if type(sharding).__name__ == "SingleDeviceSharding":
        return cls.replicate()
    text = _HLO_TEXT.search(str(sharding)) if type(sharding).__name__ == "GSPMDSharding" else None
    if text is not None:
        return parse_sharding(cls, text.group())
    raise ShardingError(f"a {type(sharding).__name__} cannot be read", remedy="pass a NamedSharding or an HloSharding")


def to_partition_spec(sharding: ShardingValue, mesh: Any = None) -> Any:
    """A PartitionSpec with one entry a dim; raises ShardingError where whole axes of `mesh` cannot say it.

    Without `mesh` the one that the sharding came with is taken.

    >>> from hlosharding.sharding import HloSharding
    >>> tuple(to_partition_spec(HloSharding.iota_tile((2, 4)), MeshInfo(("a", "b"), (2, 4))))
    ('a', 'b')
    """
    form = _form_over(sharding, mesh)
    if form.whole in ("manual", "maximal") or form.manual:
        raise ShardingError(f"a PartitionSpec cannot say {sharding}", remedy="manual axes belong to the mesh")
    from jax.sharding import PartitionSpec

    if form.whole == "unreduced" or form.unreduced:
        axes = form.unreduced or tuple(map(AxisRef, form.mesh.names))
        return PartitionSpec(*_entries(form), unreduced=frozenset(_whole_name(a, form.mesh) for a in axes))
    return PartitionSpec(*_entries(form))


def _entries(form: NamedForm) -> list[Any]:
    from jax.sharding import PartitionSpec

    entries: list[Any] = []
    for dim in form.dims:
        names = tuple(_whole_name(axis, form.mesh) for axis in dim.axes)
        if not names:
            entries.append(PartitionSpec.UNCONSTRAINED if dim.is_open else None)
        else:
            entries.append(names[0] if len(names) == 1 else names)
    return entries


def _whole_name(axis: AxisRef, mesh: MeshInfo) -> str:
    if axis.size is None:
        return axis.name
    raise ShardingError(
        f"only part {axis} of axis {axis.name!r} is used (it has size {mesh.size_of(axis.name)})",
        remedy="no PartitionSpec can say that: use a mesh with that axis split in two",
    )


def _form_over(sharding: ShardingValue, mesh: Any) -> NamedForm:
    if sharding.kind == "tuple":
        raise ShardingError(f"{sharding} is of a tuple", remedy="convert each of its .leaves")
    if mesh is None:
        if sharding.named_form is None:
            raise ShardingError(f"{sharding} carries no axis names", remedy="pass the mesh to find them on")
        return sharding.named_form
    form = find_named_form(sharding, MeshInfo.from_jax(mesh))
    if form is None:
        raise ShardingError(f"no axes of {MeshInfo.from_jax(mesh)!r} say {sharding.without_names()}")
    return form


def to_jax(sharding: ShardingValue, mesh: Any = None) -> Any:
    """A NamedSharding over `mesh`; without one over an AbstractMesh of the axes that the sharding came with."""
    from jax.sharding import NamedSharding

    spec = to_partition_spec(sharding, mesh)
    jax_mesh = mesh
    if mesh is None or isinstance(mesh, MeshInfo):
        jax_mesh = _abstract_mesh(_form_over(sharding, mesh).mesh, getattr(spec, "unreduced", ()))
    try:
        return NamedSharding(jax_mesh, spec)
    except ValueError as error:
        raise ShardingError(f"jax refuses {spec} over {jax_mesh}: {error}") from error


def shortest(sharding: Any) -> Any:
    """As JAX writes what it found out: without dims at the end of the spec that are not split.

    >>> from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec as P
    >>> shortest(NamedSharding(AbstractMesh((2,), ("x",)), P("x", None))).spec == P("x")
    True
    """
    import jax

    if sharding.spec.unreduced:
        return sharding
    entries = list(sharding.spec.partitions)
    while entries and entries[-1] is None:
        entries.pop()
    return jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec(*entries))


def _abstract_mesh(info: MeshInfo, unreduced: Iterable[str]) -> Any:
    """With axes of the type that jax asks for: only explicit ones may be unreduced."""
    from jax.sharding import AbstractMesh, AxisType

    if not info.is_plain:
        raise ShardingError(f"{info!r} numbers its devices out of order", remedy="pass a jax Mesh of the devices")
    types = tuple(AxisType.Explicit if name in unreduced else AxisType.Auto for name in info.names)
    return AbstractMesh(info.sizes, info.names, axis_types=types)
