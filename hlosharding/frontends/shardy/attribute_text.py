"""Shardy's attribute texts (`#sdy.mesh`, `#sdy.sharding`, `#sdy.sharding_per_value`), as a program has them.

Floor: frontends.  The texts are read in `sharding`; here stand the meshes of a module, and regions with manual axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

from hlosharding.errors import LoadError
from hlosharding.sharding import (
    AxisRef,
    DimAxes,
    HloSharding,
    MeshInfo,
    NamedForm,
    Scanner,
    SdySharding,
    read_mlir_string,
    read_sdy_meshes,
    read_sdy_sharding,
)

Meshes: TypeAlias = Mapping[str, NamedForm]
"""By symbol what is replicated over each mesh of a module, or lies on its only device."""


def parse_meshes(text: str) -> Meshes:
    """The module's `xla.sdy.meshes`.

    >>> parse_meshes('{mesh = #sdy.mesh<["a"=2, "b"=4]>}')["mesh"].mesh
    MeshInfo('a'=2, 'b'=4)
    """
    return read_sdy_meshes(Scanner(text)) if text.strip() else {}


def largest_mesh(meshes: Meshes) -> MeshInfo | None:
    """The one that a user means."""
    return max((form.mesh for form in meshes.values()), key=lambda mesh: mesh.num_devices, default=None)


def parse_shardings(text: str, meshes: Meshes) -> list[SdySharding]:
    """All shardings of a `#sdy.sharding` or `#sdy.sharding_per_value` text.

    >>> meshes = parse_meshes('{mesh = #sdy.mesh<["a"=2, "b"=4]>}')
    >>> found = parse_shardings('#sdy.sharding_per_value<[<@mesh, [{"b", ?}, {}]>]>', meshes)[0]
    >>> str(to_hlo(found)), found.open_dims
    ('{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}', (0,))
    """
    scan = Scanner(text)
    if not text.strip():
        return []
    if scan.accept("#sdy.sharding_per_value"):
        scan.expect("<", "sharding_per_value")
        scan.expect("[", "'<'")
        found = [_one(scan, meshes) for _ in scan.until("]", "a sharding")]
        scan.expect(">", "the shardings")
        return found
    scan.expect("#sdy.sharding")
    return [_one(scan, meshes)]


def _one(scan: Scanner, meshes: Meshes) -> SdySharding:
    def find(symbol: str) -> NamedForm:
        if symbol not in meshes:
            raise LoadError(f"sharding {scan.text} names mesh @{symbol}, which the module does not define")
        return meshes[symbol]

    return read_sdy_sharding(scan, find)


def parse_manual_axes(text: str) -> tuple[str, ...]:
    """The axes of `#sdy<manual_axes{"a", "b"}>`.

    >>> parse_manual_axes('#sdy<manual_axes{"a", "b"}>')
    ('a', 'b')
    """
    scan = Scanner(text)
    scan.expect("#sdy<manual_axes{")
    return tuple([read_mlir_string(scan, "an axis name") for _ in scan.until("}", "an axis")])


def to_hlo(sharding: SdySharding, manual: Iterable[str] = ()) -> HloSharding:
    """As HloSharding, inside a region in which the axes `manual` are manual.

    HLO has no word for pieces of a maximum; each of them may be all of it.
    """
    form = sharding.form if sharding.reduction == "sum" else replace(sharding.form, unreduced=())
    if form.whole == "maximal":
        return HloSharding.from_named_form(form).without_names()
    if form.mesh.num_devices == 1:
        return HloSharding.replicate()
    inside = set(manual)
    return _tiled(replace(form, manual=tuple(AxisRef(axis) for axis in form.mesh.names if axis in inside)))


@lru_cache(maxsize=4096)
def _tiled(form: NamedForm) -> HloSharding:
    """A program says one sharding of many values."""
    return HloSharding.from_named_form(form).without_names()


def without_axes(sharding: SdySharding) -> SdySharding:
    """Of the same rank over the same mesh, with nothing split."""
    return SdySharding(NamedForm(sharding.form.mesh, (DimAxes(),) * len(sharding.form.dims)))
