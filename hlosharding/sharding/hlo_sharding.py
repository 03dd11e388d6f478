"""The value: how one array (or a tuple of arrays) is laid out over devices.

Floor: sharding.  Knows devices and tile counts; nothing of instructions, costs or jax objects.

Values are immutable and interned by spelling (so `is` means "prints the same"); `==` and `hash` go by meaning: list,
iota and named spellings of one layout are equal, metadata is ignored, the shard group counts.  Anything memoised on a
sharding must therefore be keyed by `.uid`, not by the value, if the answer's spelling matters (`memo.memoised` does).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn
from weakref import WeakValueDictionary

import numpy.typing as npt

from hlosharding.errors import ShardingError
from hlosharding.notebook import InNotebooks
from hlosharding.sharding import geometry
from hlosharding.sharding.metadata import OpMetadata, ShardGroup
from hlosharding.sharding.subgroups import SUBGROUP_TYPES, Kind, SubgroupType, partial_tile, subgroup
from hlosharding.sharding.tile_assignment import INTERNING, Dims, TileAssignment, distinct

if TYPE_CHECKING:
    from hlosharding.sharding.named import NamedForm

_uids = count()
_KIND_CODES: dict[str, int] = {
    kind: i for i, kind in enumerate(("replicated", "maximal", "tiled", "manual", "unknown", "unreduced", "tuple"))
}
Tiles = TileAssignment | npt.ArrayLike
Parts = tuple[Any, ...]


class HloSharding(InNotebooks):
    """One layout; build it with the named constructors, compare it with `==`, print it with `str`.

    >>> HloSharding.parse("{devices=[2,2]<=[4]}") == HloSharding.tile([[0, 1], [2, 3]])
    True
    >>> str(HloSharding.iota_tile((4, 2), (2, 4), (1, 0)))
    '{devices=[4,2]<=[2,4]T(1,0)}'
    """

    __slots__ = (
        "__weakref__",
        "_hash",
        "_manual",
        "_manual_subgroup",
        "_meaning",
        "_replicated",
        "_text",
        "_tile_maximal",
        "_tiled",
        "_unknown",
        "_unreduced",
        "data_dims",
        "kind",
        "memo",
        "metadata",
        "named_form",
        "num_tiles",
        "shard_group",
        "subgroup_types",
        "tile_assignment",
        "tiled_data_rank",
        "total_num_tiles",
        "tuple_elements",
        "uid",
    )

    kind: Kind
    """replicated, maximal (one device), tiled, manual, unknown, unreduced or tuple."""
    tile_assignment: TileAssignment | None
    """Tiled: data dims, then subgroup dims.  Maximal: one cell.  Else None."""
    subgroup_types: tuple[SubgroupType, ...]
    """The meaning of the tile dims behind the data dims, in normal order: manual, unreduced, replicated."""
    tuple_elements: tuple[HloSharding, ...]
    metadata: tuple[OpMetadata, ...]
    shard_group: ShardGroup | None
    named_form: NamedForm | None
    """Mesh and axes, where the sharding came with them; not part of the meaning."""
    data_dims: Dims
    """Tile counts of the data dims; empty unless tiled."""
    tiled_data_rank: int
    num_tiles: int
    """Product of the data dims' tile counts; 1 unless tiled.  Subgroups do not count."""
    total_num_tiles: int
    """Product of all tile counts, subgroups included; 1 unless tiled."""
    uid: int
    """A number of its own for each spelling: the key for memo tables."""
    memo: dict[Any, Any]
    """Results of the algebra on this value (see `memo.memoised`); dies with it."""
    _replicated: bool
    _manual: bool
    _unknown: bool
    _unreduced: bool
    _tile_maximal: bool
    _tiled: bool
    _manual_subgroup: bool
    _meaning: HloSharding | None
    _hash: int | None
    _text: str | None
    _interned: ClassVar[WeakValueDictionary[tuple[Any, ...], HloSharding]] = WeakValueDictionary()

    # ---- construction

    @classmethod
    def from_parts(
        cls,
        kind: Kind,
        tiles: TileAssignment | None = None,
        types: tuple[SubgroupType, ...] = (),
        elements: tuple[HloSharding, ...] = (),
        metadata: tuple[OpMetadata, ...] = (),
        shard_group: ShardGroup | None = None,
        named_form: NamedForm | None = None,
    ) -> HloSharding:
        """The interned value of these parts, which the caller has brought into normal form."""
        mesh_uid = named_form and named_form.mesh.assignment.uid
        leaf_uids = tuple([e.uid for e in elements])
        key = (kind, tiles and tiles.uid, types, leaf_uids, metadata, shard_group, named_form, mesh_uid)
        found = cls._interned.get(key)
        if found is not None:
            return found
        with INTERNING:
            return cls._interned.get(key) or cls._new(
                key, (kind, tiles, types, elements, metadata, shard_group, named_form)
            )

    @classmethod
    def _new(cls, key: Parts, parts: Parts) -> HloSharding:
        self = object.__new__(cls)
        names = "kind", "tile_assignment", "subgroup_types", "tuple_elements", "metadata", "shard_group", "named_form"
        for name, value in zip(names, parts, strict=True):
            object.__setattr__(self, name, value)
        _fill_derived(self)
        cls._interned[key] = self
        return self

    def _with(self, **changes: Any) -> HloSharding:
        parts: dict[str, Any] = {
            "kind": self.kind,
            "tiles": self.tile_assignment,
            "types": self.subgroup_types,
            "elements": self.tuple_elements,
            "metadata": self.metadata,
            "shard_group": self.shard_group,
            "named_form": self.named_form,
        }
        return HloSharding.from_parts(**(parts | changes))

    @classmethod
    def replicate(cls, metadata: Iterable[OpMetadata] = ()) -> HloSharding:
        """Every device holds everything."""
        return cls.from_parts("replicated", metadata=tuple(metadata))

    @classmethod
    def maximal(cls, device: int, metadata: Iterable[OpMetadata] = ()) -> HloSharding:
        """One device holds everything, no other takes part."""
        return cls.from_parts("maximal", TileAssignment.from_flat((1,), (device,)), metadata=tuple(metadata))

    @classmethod
    def manual(cls, metadata: Iterable[OpMetadata] = ()) -> HloSharding:
        """Already local: inside a region that the user partitioned by hand."""
        return cls.from_parts("manual", metadata=tuple(metadata))

    @classmethod
    def unknown(cls, metadata: Iterable[OpMetadata] = ()) -> HloSharding:
        """A place holder that propagation may fill."""
        return cls.from_parts("unknown", metadata=tuple(metadata))

    @classmethod
    def unreduced(cls, metadata: Iterable[OpMetadata] = ()) -> HloSharding:
        """Every device holds an addend of everything."""
        return cls.from_parts("unreduced", metadata=tuple(metadata))

    @classmethod
    def tile(cls, tiles: Tiles, metadata: Iterable[OpMetadata] = ()) -> HloSharding:
        """Each data dim split; `tiles[i, j, ...]` is the device of tile (i, j, ...).

        >>> str(HloSharding.tile([[0, 2], [1, 3]]))
        '{devices=[2,2]0,2,1,3}'
        """
        return cls.from_parts("tiled", distinct(TileAssignment.of(tiles)), metadata=tuple(metadata))

    @classmethod
    def iota_tile(
        cls,
        dims: Sequence[int],
        reshape: Sequence[int] | None = None,
        transpose: Sequence[int] | None = None,
        metadata: Iterable[OpMetadata] = (),
    ) -> HloSharding:
        """`tile` of `arange(n).reshape(reshape).transpose(transpose).reshape(dims)`, kept in that short form."""
        return cls.from_parts("tiled", TileAssignment.from_iota(dims, reshape, transpose), metadata=tuple(metadata))

    @classmethod
    def partial_tile(cls, tiles: Tiles, metadata: Iterable[OpMetadata] = ()) -> HloSharding:
        """As `tile`, with one more, last dim: devices along it hold copies of the same tile.

        >>> str(HloSharding.partial_tile([[3, 1], [2, 0]]))
        '{devices=[2,2]1,3,0,2 last_tile_dim_replicate}'
        """
        kind, assignment, types = partial_tile(distinct(TileAssignment.of(tiles)))
        return cls.from_parts(kind, assignment, types, metadata=tuple(metadata))

    @classmethod
    def subgroup(cls, tiles: Tiles, types: Sequence[SubgroupType], metadata: Iterable[OpMetadata] = ()) -> HloSharding:
        """As `tile`, with one more last dim for each of `types`; brought into normal form.

        >>> str(HloSharding.subgroup([[[0, 1], [2, 3]]], ("replicated", "manual")))
        '{devices=[1,2,2]0,2,1,3 last_tile_dims={manual, replicated}}'
        """
        for word in types:
            if word not in SUBGROUP_TYPES:
                raise ShardingError(f"{word!r} is no subgroup type", remedy=f"use one of {', '.join(SUBGROUP_TYPES)}")
        kind, assignment, kept = subgroup(distinct(TileAssignment.of(tiles)), tuple(types))
        return cls.from_parts(kind, assignment, kept, metadata=tuple(metadata))

    @classmethod
    def tuple(cls, leaves: Iterable[HloSharding]) -> HloSharding:
        """The sharding of a tuple: one leaf per leaf of its shape, flat (an empty tuple has one leaf, or none)."""
        elements = tuple(leaves)
        if "tuple" in {e.kind for e in elements}:
            raise ShardingError("a tuple sharding inside a tuple sharding", remedy="list the leaves flat")
        return cls.from_parts("tuple", elements=elements)

    @classmethod
    def single_tuple(cls, leaf: HloSharding, leaf_count: int) -> HloSharding:
        """A tuple of `leaf_count` equal leaves (one for an empty tuple)."""
        return cls.tuple([leaf] * max(leaf_count, 1))

    @classmethod
    def parse(cls, text: str) -> HloSharding:
        """From XLA's text; raises ShardingParseError with the position of what cannot stand.

        >>> HloSharding.parse("{devices=[2,2]<=[4] last_tile_dim_replicate}").data_dims
        (2,)
        """
        from hlosharding.sharding.text_parser import parse_sharding

        return parse_sharding(text)

    @classmethod
    def from_proto(cls, proto: bytes | Any) -> HloSharding:
        """From a serialised or parsed `xla.OpSharding`."""
        from hlosharding.sharding.proto import from_proto

        return from_proto(proto)

    def to_proto(self) -> bytes:
        """The serialised `xla.OpSharding`."""
        from hlosharding.sharding.proto import to_proto

        return bytes(to_proto(self).SerializeToString(deterministic=True))

    def with_tiles(self, tiles: TileAssignment, metadata: Iterable[OpMetadata] | None = None) -> HloSharding:
        """Other tiles under the same subgroup types, in normal form; metadata kept unless given; no group, no names."""
        kind, assignment, types = _normal(tiles, self.subgroup_types)
        kept = self.metadata if metadata is None else tuple(metadata)
        return HloSharding.from_parts(kind, assignment, types, metadata=kept)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"HloSharding is immutable: cannot set {name!r}")

    def __reduce__(self) -> tuple[object, ...]:
        parts = (self.kind, self.tile_assignment, self.subgroup_types, self.tuple_elements, self.metadata)
        return HloSharding.from_parts, (*parts, self.shard_group, self.named_form)

    # ---- identity

    @property
    def meaning(self) -> HloSharding:
        """The one representative of all spellings: no metadata, no names, iota where one exists."""
        if self._meaning is None:
            tiles = self.tile_assignment and self.tile_assignment.meaning
            elements = tuple(e.meaning for e in self.tuple_elements)
            same = HloSharding.from_parts(self.kind, tiles, self.subgroup_types, elements, (), self.shard_group)
            object.__setattr__(self, "_meaning", same)
        assert self._meaning is not None
        return self._meaning

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, HloSharding):
            return NotImplemented
        return self.kind == other.kind and self.meaning is other.meaning

    def __hash__(self) -> int:
        if self._hash is None:
            group = self.shard_group and (self.shard_group.kind == "as", self.shard_group.number)
            types = tuple(map(SUBGROUP_TYPES.index, self.subgroup_types))
            parts = (_KIND_CODES[self.kind], self.tile_assignment, types, self.tuple_elements, group)
            object.__setattr__(self, "_hash", hash(parts))
        assert self._hash is not None
        return self._hash

    def __str__(self) -> str:
        return self.to_string()

    def __repr__(self) -> str:
        return f"HloSharding({self.to_string(metadata=True)!r})"

    def to_string(self, *, metadata: bool = False) -> str:
        """XLA's text, with or without metadata."""
        from hlosharding.sharding.text import print_sharding

        if metadata:
            return print_sharding(self, metadata=True)
        if self._text is None:
            object.__setattr__(self, "_text", print_sharding(self, metadata=False))
        assert self._text is not None
        return self._text

    # ---- questions (over a tuple: true of all leaves, unless they say otherwise)

    def is_replicated(self) -> bool:
        """Every device holds everything."""
        return self._replicated

    def is_manual(self) -> bool:
        """Wholly manual (a manual subgroup does not count)."""
        return self._manual

    def is_unknown(self) -> bool:
        """A place holder."""
        return self._unknown

    def is_unreduced(self) -> bool:
        """Wholly unreduced (an unreduced subgroup does not count)."""
        return self._unreduced

    def is_tile_maximal(self) -> bool:
        """Replicated, or on a single device."""
        return self._tile_maximal

    def is_maximal(self) -> bool:
        """On a single device; false of tuples."""
        return self.kind == "maximal"

    def is_tiled(self) -> bool:
        """None of replicated, maximal, manual, unknown, unreduced; a tuple when it is none of them as a whole."""
        return self._tiled

    def is_tuple(self) -> bool:
        """The sharding of a tuple."""
        return self.kind == "tuple"

    def is_manual_subgroup(self) -> bool:
        """Tiled, with a manual subgroup; of a tuple: every leaf."""
        return self._manual_subgroup

    def is_unreduced_subgroup(self) -> bool:
        """Tiled, with an unreduced subgroup."""
        return "unreduced" in self.subgroup_types

    def has_partial_replication(self) -> bool:
        """Tiled, with a replicated subgroup."""
        return "replicated" in self.subgroup_types

    @property
    def replicate_on_last_tile_dim(self) -> bool:
        """Replicated is the only subgroup (prints `last_tile_dim_replicate`)."""
        return self.subgroup_types == ("replicated",)

    def is_spatially_partitioned(self) -> bool:
        """Anything but a bare single device; a tuple when any leaf is.  Replicated counts."""
        if self.kind == "tuple":
            return any(e.is_spatially_partitioned() for e in self.tuple_elements)
        return self.kind != "maximal"

    @property
    def device(self) -> int | None:
        """The single device of a maximal sharding, or of a tuple all of whose leaves are on it; else None."""
        if self.kind == "tuple":
            devices = {e.device for e in self.tuple_elements}
            return devices.pop() if len(devices) == 1 else None
        return self.tile_assignment.first if self.kind == "maximal" and self.tile_assignment is not None else None

    def has_unique_device(self) -> bool:
        """`device` is not None."""
        return self.device is not None

    def uses_device(self, device: int) -> bool:
        """Does `device` take part?  Replicated and manual use all; of a tuple: any leaf."""
        if self.kind == "tuple":
            return any(e.uses_device(device) for e in self.tuple_elements)
        if self.tile_assignment is None:
            return self.kind in ("replicated", "manual", "unreduced")
        return device in self.tile_assignment.flat

    def subgroup_dim(self, kind: SubgroupType) -> int | None:
        """The tile dim of the subgroup of that type, or None.

        >>> HloSharding.parse("{devices=[2,2]<=[4] last_tile_dim_replicate}").subgroup_dim("replicated")
        1
        """
        return self.tiled_data_rank + self.subgroup_types.index(kind) if kind in self.subgroup_types else None

    def subgroup_size(self, kind: SubgroupType) -> int:
        """How many devices share a tile in the subgroup of that type; 1 where there is none."""
        dim = self.subgroup_dim(kind)
        return 1 if dim is None or self.tile_assignment is None else self.tile_assignment.dims[dim]

    def num_tiles_along(self, dim: int) -> int:
        """How often data dim `dim` is split; 1 unless tiled."""
        return self.data_dims[dim] if self.data_dims else 1

    @property
    def num_devices(self) -> int | None:
        """Devices in the tile assignment; None where the sharding does not say (replicated, manual ...)."""
        if self.kind == "tuple":
            return next((n for e in self.tuple_elements if (n := e.num_devices) is not None), None)
        return self.tile_assignment.num_elements if self.kind == "tiled" and self.tile_assignment is not None else None

    @property
    def tiles(self) -> TileAssignment:
        """The tile assignment of a tiled or maximal sharding; raises for others."""
        if self.tile_assignment is None:
            raise ShardingError(f"{self} has no tile assignment")
        return self.tile_assignment

    # ---- leaves, metadata, shard groups

    @property
    def leaves(self) -> tuple[HloSharding, ...]:
        """The leaves of a tuple; of a leaf: itself."""
        return self.tuple_elements if self.kind == "tuple" else (self,)

    def leaf(self, index: int) -> HloSharding:
        """Leaf `index` of a tuple; a leaf gives itself."""
        if self.kind != "tuple":
            return self
        if not 0 <= index < len(self.tuple_elements):
            raise ShardingError(f"{self} has {len(self.tuple_elements)} leaves, asked for number {index}")
        return self.tuple_elements[index]

    def with_leaf(self, index: int, leaf: HloSharding) -> HloSharding:
        """A tuple with leaf `index` replaced."""
        return HloSharding.tuple([leaf if i == index else e for i, e in enumerate(self.tuple_elements)])

    def normalize_tuple(self, leaf_count: int) -> HloSharding:
        """Itself if a tuple, else a tuple of `leaf_count` copies."""
        return self if self.kind == "tuple" else HloSharding.single_tuple(self, leaf_count)

    def extract_single(self) -> HloSharding | None:
        """The one leaf that all leaves equal, or None."""
        if self.kind != "tuple":
            return self
        alike = self.tuple_elements and all(e == self.tuple_elements[0] for e in self.tuple_elements)
        return self.tuple_elements[0] if alike else None

    def with_metadata(self, metadata: Iterable[OpMetadata], *, overwrite: bool = True) -> HloSharding:
        """With other metadata on every leaf; without `overwrite` only where there is none yet."""
        new = tuple(metadata)
        if self.kind == "tuple":
            elements = tuple(e.with_metadata(new, overwrite=overwrite) for e in self.tuple_elements)
            return self._with(elements=elements)
        return self._with(metadata=new) if overwrite or not self.metadata else self

    def without_metadata(self) -> HloSharding:
        """With no metadata on any leaf."""
        if self.kind == "tuple":
            return self._with(elements=tuple(e.without_metadata() for e in self.tuple_elements))
        return self._with(metadata=()) if self.metadata else self

    def with_shard_group(self, group: ShardGroup | None) -> HloSharding:
        """A member of that shard group; None clears it."""
        return self._with(shard_group=group)

    def with_named_form(self, named_form: NamedForm | None) -> HloSharding:
        """The same layout spelled with mesh axes (whoever calls has checked that they say the same)."""
        return self._with(named_form=named_form)

    def without_names(self) -> HloSharding:
        """The same layout in device form (V1 or V2)."""
        if self.kind == "tuple":
            return self._with(elements=tuple(e.without_names() for e in self.tuple_elements))
        return self._with(named_form=None) if self.named_form is not None else self

    # ---- geometry (dims: a shape's sizes)

    def tile_shape(self, dims: Sequence[int], device: int | None = None) -> Dims:
        """Sizes of a tile: rounded up, or of `device`'s own tile without padding.

        >>> s = HloSharding.parse("{devices=[4]<=[4]}")
        >>> s.tile_shape((10,)), s.tile_shape((10,), 3)
        ((3,), (1,))
        """
        return geometry.tile_shape(self, dims, device)

    def tile_offset(self, dims: Sequence[int], device: int) -> Dims:
        """Where `device`'s tile starts."""
        return geometry.tile_offset(self, dims, device)

    def tile_limit(self, dims: Sequence[int], device: int) -> Dims:
        """Where `device`'s tile ends (exclusive, never beyond the dim)."""
        return geometry.tile_limit(self, dims, device)

    def tile_index(self, device: int) -> Dims:
        """The position of `device`'s tile among the data dims' tiles."""
        return geometry.tile_index(self, device)

    def device_for_tile(self, index: Sequence[int]) -> int:
        """The device of a tile; with only the data dims given, the first of its subgroup."""
        return geometry.device_for_tile(self, index)

    def validate(self, shape: Any, num_devices: int | None = None) -> None:
        """Raise ShardingError unless this sharding can be that of `shape`: sizes, or a nested tuple of them for tuples.

        >>> HloSharding.parse("{devices=[2]<=[2]}").validate((4, 4), 2)
        Traceback (most recent call last):
            ...
        hlosharding.errors.ShardingError: {devices=[2]<=[2]} splits 1 dims, the shape [4, 4] has 2
        """
        from hlosharding.sharding.validate import validate

        validate(self, shape, num_devices)

    # ---- jax

    @classmethod
    def from_jax(cls, sharding: Any, ndim: int) -> HloSharding:
        """From a jax Sharding (NamedSharding keeps its axis names), or None / UNSPECIFIED as unknown."""
        from hlosharding.sharding.jax_forms import from_jax

        return from_jax(sharding, ndim)

    @classmethod
    def named(cls, mesh: Any, spec: Any, ndim: int | None = None) -> HloSharding:
        """From a mesh (jax Mesh or MeshInfo) and a PartitionSpec, or a sequence of axis names, axis tuples and None."""
        from hlosharding.sharding.jax_forms import from_spec

        return from_spec(mesh, spec, ndim)

    def to_jax(self, mesh: Any = None) -> Any:
        """A jax NamedSharding over `mesh` (default: the mesh it came with)."""
        from hlosharding.sharding.jax_forms import to_jax

        return to_jax(self, mesh)

    def to_partition_spec(self, mesh: Any = None) -> Any:
        """A jax PartitionSpec over the axes of `mesh`; raises ShardingError where axes cannot say it."""
        from hlosharding.sharding.jax_forms import to_partition_spec

        return to_partition_spec(self, mesh)


def _fill_derived(self: HloSharding) -> None:
    # Thousands of leaves are often the same few.
    leaves = list({e.uid: e for e in self.tuple_elements}.values())
    is_tuple = self.kind == "tuple"

    def every(flag: str, kinds: tuple[str, ...]) -> bool:
        return all(getattr(e, flag) for e in leaves) if is_tuple else self.kind in kinds

    rank = len(self.tile_assignment.dims) - len(self.subgroup_types) if self.tile_assignment is not None else 0
    data_dims = self.tile_assignment.dims[:rank] if self.kind == "tiled" and self.tile_assignment is not None else ()
    total = self.tile_assignment.num_elements if self.kind == "tiled" and self.tile_assignment is not None else 1
    values: dict[str, Any] = {
        "_replicated": every("_replicated", ("replicated",)),
        "_manual": every("_manual", ("manual",)),
        "_unknown": every("_unknown", ("unknown",)),
        "_unreduced": every("_unreduced", ("unreduced",)),
        "_tile_maximal": every("_tile_maximal", ("replicated", "maximal")),
        "_manual_subgroup": all(e._manual_subgroup for e in leaves) if is_tuple else "manual" in self.subgroup_types,
        "data_dims": data_dims,
        "tiled_data_rank": len(data_dims),
        "num_tiles": math.prod(data_dims),
        "total_num_tiles": total,
        "uid": next(_uids),
        "memo": {},
        "_meaning": None,
        "_hash": None,
        "_text": None,
    }
    values["_tiled"] = not any(values[f] for f in ("_manual", "_unknown", "_unreduced", "_tile_maximal"))
    for name, value in values.items():
        object.__setattr__(self, name, value)
    plain = not self.metadata and self.named_form is None and all(e._meaning is e for e in leaves)
    if plain and (self.tile_assignment is None or self.tile_assignment.iota is not None):
        object.__setattr__(self, "_meaning", self)


def _normal(tiles: TileAssignment, types: tuple[SubgroupType, ...]) -> Any:
    return partial_tile(tiles) if types == ("replicated",) else subgroup(tiles, types)
