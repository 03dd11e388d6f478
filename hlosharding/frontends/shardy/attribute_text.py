"""Shardy's attribute texts (`#sdy.mesh`, `#sdy.sharding`, `#sdy.sharding_per_value`) to meshes and shardings.

Floor: frontends.  Shardy and XLA's named shardings say the same with other punctuation, so this file rewrites one into
the other and lets `HloSharding.parse` check the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from hlosharding.errors import LoadError
from hlosharding.sharding import HloSharding, MeshInfo

_MESH = re.compile(r'(?P<name>[\w.$-]+|"(?:[^"\\]|\\.)*")\s*=\s*#sdy\.mesh<(?P<body>[^>]*)>')
_AXIS = re.compile(r'"((?:[^"\\]|\\.)*)"\s*=\s*(\d+)')
_DEVICES = re.compile(r"device_ids\s*=\s*\[([\d,\s]*)\]")
_SHARDING = re.compile(
    r'<\s*(?:@(?P<mesh>[\w.$-]+|"(?:[^"\\]|\\.)*")|mesh<(?P<inline>[^>]*)>)\s*,\s*\[(?P<dims>[^\]]*)\](?P<rest>[^>]*)>'
)
_DIM = re.compile(r"\{([^{}]*)\}(?:p\d+)?")
_GROUP = re.compile(r"(replicated|unreduced)\s*=\s*\{([^{}]*)\}")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Meshes:
    """The meshes of a module by symbol name."""

    by_name: Mapping[str, MeshInfo]

    @property
    def main(self) -> MeshInfo | None:
        """The largest mesh: the one that a user means."""
        return max(self.by_name.values(), key=lambda m: m.num_devices, default=None)


@dataclass(frozen=True, slots=True)
class SdySharding:
    """One value's sharding: its mesh, the axes of each dim as XLA spells them, and which dims are open."""

    mesh: MeshInfo
    dims: tuple[str, ...]
    open_dims: tuple[int, ...]
    groups: str

    def to_hlo(self, manual: Iterable[str] = ()) -> HloSharding:
        """As HloSharding, inside a region in which the axes `manual` are manual."""
        inside = [axis for axis in self.mesh.names if axis in set(manual)]
        if self.mesh.num_devices == 1 or not self.mesh.names:
            return HloSharding.replicate()
        groups = self.groups + (f", manual={{{', '.join(map(_quoted, inside))}}}" if inside else "")
        dims = ", ".join(f"{{{axes}}}" for axes in self.dims)
        return _tiled(f"{{{self.mesh}, [{dims}]{groups}}}")


@lru_cache(maxsize=4096)
def _tiled(named: str) -> HloSharding:
    """A program says one sharding of many values."""
    return HloSharding.parse(named).without_names()


def parse_meshes(text: str) -> Meshes:
    """The module's `xla.sdy.meshes`.

    >>> parse_meshes('{mesh = #sdy.mesh<["a"=2, "b"=4]>}').main
    MeshInfo('a'=2, 'b'=4)
    """
    return Meshes({_unquoted(m["name"]): _mesh(m["body"]) for m in _MESH.finditer(text)})


def _mesh(body: str) -> MeshInfo:
    axes = [(_unescaped(name), int(size)) for name, size in _AXIS.findall(body)]
    devices = _DEVICES.search(body)
    if devices is None or not axes:
        return MeshInfo([n for n, _ in axes], [s for _, s in axes])
    return MeshInfo([n for n, _ in axes], [s for _, s in axes], [int(d) for d in devices[1].split(",")])


def parse_shardings(text: str, meshes: Meshes) -> list[SdySharding]:
    """All shardings of a `#sdy.sharding` or `#sdy.sharding_per_value` text.

    >>> meshes = parse_meshes('{mesh = #sdy.mesh<["a"=2, "b"=4]>}')
    >>> found = parse_shardings('#sdy.sharding_per_value<[<@mesh, [{"b", ?}, {}]>]>', meshes)[0]
    >>> str(found.to_hlo()), found.open_dims
    ('{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}', (0,))
    """
    return [_sharding(match, meshes, text) for match in _SHARDING.finditer(text)]


def _sharding(match: re.Match[str], meshes: Meshes, text: str) -> SdySharding:
    name = None if match["mesh"] is None else _unquoted(match["mesh"])
    if name is not None and name not in meshes.by_name:
        raise LoadError(f"sharding {text} names mesh @{name}, which the module does not define")
    mesh = _mesh(match["inline"]) if name is None else meshes.by_name[name]
    entries = [_axes(inner) for inner in _DIM.findall(match["dims"])]
    groups = "".join(f", {kind}={{{_axes(inner)}}}" for kind, inner in _GROUP.findall(match["rest"]))
    open_dims = tuple(n for n, entry in enumerate(entries) if "?" in entry)
    closed = tuple(", ".join(part for part in entry.split(", ") if part and part != "?") for entry in entries)
    return SdySharding(mesh, closed, open_dims, groups)


def _axes(inner: str) -> str:
    """`"a", "b":(1)2, ?` with XLA's quotes."""
    return _STRING.sub(lambda m: _quoted(_unescaped(m[1])), inner)


def parse_manual_axes(text: str) -> tuple[str, ...]:
    """The axes of `#sdy<manual_axes{"a", "b"}>`.

    >>> parse_manual_axes('#sdy<manual_axes{"a", "b"}>')
    ('a', 'b')
    """
    return tuple(_unescaped(name) for name in _STRING.findall(text))


def _unescaped(text: str) -> str:
    return text.replace('\\"', '"').replace("\\\\", "\\")


def _unquoted(name: str) -> str:
    return _unescaped(name[1:-1]) if name.startswith('"') else name


def _quoted(name: str) -> str:
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"
