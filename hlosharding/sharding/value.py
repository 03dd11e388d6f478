"""What a sharding is: its parts in normal form, interned, and what follows from them.

Floor: sharding.  Knows devices, tile counts and mesh axes; nothing of texts, messages, shapes or jax objects, which
`HloSharding` adds above.

Values are immutable and interned by spelling (so `is` means "prints the same"); `==` and `hash` go by meaning: list,
iota and named spellings of one layout are equal, metadata is ignored, the shard group counts.  Anything memoised on a
sharding must therefore be keyed by `.uid`, not by the value, if the answer's spelling matters (`memo.memoised` does).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import count
from typing import Any, ClassVar, NoReturn, Self, TypeVar, get_args
from weakref import WeakValueDictionary

import numpy.typing as npt

from hlosharding.errors import ShardingError
from hlosharding.notebook import InNotebooks
from hlosharding.sharding.metadata import OpMetadata, ShardGroup
from hlosharding.sharding.named import NamedForm, parts_of_form
from hlosharding.sharding.subgroups import SUBGROUP_TYPES, Kind, SubgroupType, partial_tile, subgroup
from hlosharding.sharding.tile_assignment import INTERNING, Dims, TileAssignment, distinct

_uids = count()
_KIND_CODES: dict[str, int] = {kind: i for i, kind in enumerate(get_args(Kind))}
TilesLike = TileAssignment | npt.ArrayLike
_Parts = tuple[Any, ...]


_ATTRIBUTES = {
    "kind": "kind", "tiles": "tile_assignment", "types": "subgroup_types", "elements": "tuple_elements",
    "metadata": "metadata", "shard_group": "shard_group", "named_form": "named_form",
}  # fmt: skip
"""The parts of a sharding, as `from_parts` takes them, and under which name each is kept."""


class ShardingValue(InNotebooks):
    """The parts of one layout and its identity; made as an `HloSharding`, which adds questions and other forms.

    >>> from hlosharding.sharding import HloSharding, MeshInfo
    >>> named = HloSharding.named(MeshInfo(("a",), (2,)), ("a",))
    >>> named == HloSharding.tile([0, 1]), named is HloSharding.tile([0, 1]), named.meaning.named_form
    (True, False, None)
    """

    kind: Kind
    """replicated, maximal (one device), tiled, manual, unknown, unreduced or tuple."""
    tile_assignment: TileAssignment | None
    """Tiled: data dims, then subgroup dims.  Maximal: one cell.  Else None."""
    subgroup_types: tuple[SubgroupType, ...]
    """The meaning of the tile dims behind the data dims, in normal order: manual, unreduced, replicated."""
    tuple_elements: tuple[Self, ...]
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
    _interned: ClassVar[WeakValueDictionary[tuple[Any, ...], Any]] = WeakValueDictionary()

    # ---- construction

    @classmethod
    def from_parts(
        cls,
        kind: Kind,
        tiles: TileAssignment | None = None,
        types: tuple[SubgroupType, ...] = (),
        elements: tuple[Self, ...] = (),
        metadata: tuple[OpMetadata, ...] = (),
        shard_group: ShardGroup | None = None,
        named_form: NamedForm | None = None,
    ) -> Self:
        """The interned value of these parts, which the caller has brought into normal form."""
        mesh_uid = named_form and named_form.mesh.assignment.uid
        leaf_uids = tuple([e.uid for e in elements])
        # By uid, since tiles and leaves are equal by meaning and this table goes by spelling.  So are meshes: the uid
        # beside the form tells apart two whose devices are spelled differently.
        key = (kind, tiles and tiles.uid, types, leaf_uids, metadata, shard_group, named_form, mesh_uid)
        found = cls._interned.get(key)
        if found is not None:
            return found
        with INTERNING:
            # Looked for once more: another thread may have entered it since.
            return cls._interned.get(key) or cls._new(
                key, (kind, tiles, types, elements, metadata, shard_group, named_form)
            )

    @classmethod
    def _new(cls, key: _Parts, parts: _Parts) -> Self:
        self = object.__new__(cls)
        vars(self).update(zip(_ATTRIBUTES.values(), parts, strict=True))
        vars(self).update(_derived(self))
        cls._interned[key] = self
        return self

    def _with(self, **changes: Any) -> Self:
        parts = {part: getattr(self, name) for part, name in _ATTRIBUTES.items()}
        return type(self).from_parts(**(parts | changes))

    @classmethod
    def replicate(cls, metadata: Iterable[OpMetadata] = ()) -> Self:
        """Every device holds everything."""
        return cls.from_parts("replicated", metadata=tuple(metadata))

    @classmethod
    def maximal(cls, device: int, metadata: Iterable[OpMetadata] = ()) -> Self:
        """One device holds everything, no other takes part."""
        return cls.from_parts("maximal", TileAssignment.from_flat((1,), (device,)), metadata=tuple(metadata))

    @classmethod
    def manual(cls, metadata: Iterable[OpMetadata] = ()) -> Self:
        """Already local: inside a region that the user partitioned by hand."""
        return cls.from_parts("manual", metadata=tuple(metadata))

    @classmethod
    def unknown(cls, metadata: Iterable[OpMetadata] = ()) -> Self:
        """A place holder that propagation may fill."""
        return cls.from_parts("unknown", metadata=tuple(metadata))

    @classmethod
    def unreduced(cls, metadata: Iterable[OpMetadata] = ()) -> Self:
        """Every device holds a partial sum of everything."""
        return cls.from_parts("unreduced", metadata=tuple(metadata))

    @classmethod
    def tile(cls, tiles: TilesLike, metadata: Iterable[OpMetadata] = ()) -> Self:
        """Each data dim split; `tiles[i, j, ...]` is the device of tile (i, j, ...).

        >>> from hlosharding.sharding import HloSharding
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
    ) -> Self:
        """`tile` of `arange(n).reshape(reshape).transpose(transpose).reshape(dims)`, kept in that short form."""
        return cls.from_parts("tiled", TileAssignment.from_iota(dims, reshape, transpose), metadata=tuple(metadata))

    @classmethod
    def partial_tile(cls, tiles: TilesLike, metadata: Iterable[OpMetadata] = ()) -> Self:
        """As `tile`, with one more, last dim: devices along it hold copies of the same tile.

        >>> from hlosharding.sharding import HloSharding
        >>> str(HloSharding.partial_tile([[3, 1], [2, 0]]))
        '{devices=[2,2]1,3,0,2 last_tile_dim_replicate}'
        """
        return cls.from_parts(*partial_tile(distinct(TileAssignment.of(tiles))), metadata=tuple(metadata))

    @classmethod
    def subgroup(cls, tiles: TilesLike, types: Sequence[SubgroupType], metadata: Iterable[OpMetadata] = ()) -> Self:
        """As `tile`, with one more last dim for each of `types`; brought into normal form.

        >>> from hlosharding.sharding import HloSharding
        >>> str(HloSharding.subgroup([[[0, 1], [2, 3]]], ("replicated", "manual")))
        '{devices=[1,2,2]0,2,1,3 last_tile_dims={manual, replicated}}'
        """
        for word in types:
            if word not in SUBGROUP_TYPES:
                raise ShardingError(f"{word!r} is no subgroup type", remedy=f"use one of {', '.join(SUBGROUP_TYPES)}")
        return cls.from_parts(*subgroup(distinct(TileAssignment.of(tiles)), tuple(types)), metadata=tuple(metadata))

    @classmethod
    def tuple(cls, leaves: Iterable[Self]) -> Self:
        """The sharding of a tuple: one leaf per leaf of its shape, flat (an empty tuple has one leaf, or none)."""
        elements = tuple(leaves)
        if "tuple" in {e.kind for e in elements}:
            raise ShardingError("a tuple sharding inside a tuple sharding", remedy="list the leaves flat")
        return cls.from_parts("tuple", elements=elements)

    @classmethod
    def single_tuple(cls, leaf: Self, leaf_count: int) -> Self:
        """A tuple of `leaf_count` equal leaves (one for an empty tuple)."""
        return cls.tuple([leaf] * max(leaf_count, 1))

    @classmethod
    def from_named_form(cls, form: NamedForm) -> Self:
        """The sharding that mesh and axes spell; raises ShardingError where they contradict themselves.

        >>> from hlosharding.sharding import AxisRef, DimAxes, HloSharding, MeshInfo
        >>> form = NamedForm(MeshInfo(("a", "b"), (2, 4)), (DimAxes((AxisRef("b"),)), DimAxes()))
        >>> sharding = HloSharding.from_named_form(form)
        >>> str(sharding), str(sharding.without_names())
        ("{mesh['a'=2,'b'=4], [{'b'}, {}]}", '{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}')
        """
        parts, spelled = parts_of_form(form)
        return cls.from_parts(*parts, named_form=spelled)

    def with_tiles(self, tiles: TileAssignment, metadata: Iterable[OpMetadata] | None = None) -> Self:
        """Other tiles under the same subgroup types, in normal form; metadata kept unless given; no group, no names."""
        parts = partial_tile(tiles) if self.replicate_on_last_tile_dim else subgroup(tiles, self.subgroup_types)
        kept = self.metadata if metadata is None else tuple(metadata)
        return type(self).from_parts(*parts, metadata=kept)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"HloSharding is immutable: cannot set {name!r}")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self).from_parts, tuple(getattr(self, name) for name in _ATTRIBUTES.values())

    # ---- identity

    @cached_property
    def meaning(self) -> Self:
        """The one representative of all spellings: no metadata, no names, iota where one exists."""
        tiles = self.tile_assignment and self.tile_assignment.meaning
        elements = tuple(e.meaning for e in self.tuple_elements)
        return type(self).from_parts(self.kind, tiles, self.subgroup_types, elements, (), self.shard_group)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, ShardingValue):
            return NotImplemented
        return self.kind == other.kind and self.meaning is other.meaning

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        group = self.shard_group and (self.shard_group.kind == "as", self.shard_group.number)
        types = tuple(map(SUBGROUP_TYPES.index, self.subgroup_types))
        return hash((_KIND_CODES[self.kind], self.tile_assignment, types, self.tuple_elements, group))

    # ---- parts

    @property
    def tiles(self) -> TileAssignment:
        """The tile assignment of a tiled or maximal sharding; raises for others."""
        if self.tile_assignment is None:
            raise ShardingError(f"{self} has no tile assignment")
        return self.tile_assignment

    @property
    def replicate_on_last_tile_dim(self) -> bool:
        """Replicated is the only subgroup (prints `last_tile_dim_replicate`)."""
        return self.subgroup_types == ("replicated",)

    @property
    def device(self) -> int | None:
        """The single device of a maximal sharding, or of a tuple all of whose leaves are on it; else None."""
        if self.kind == "tuple":
            devices = {e.device for e in self.tuple_elements}
            return devices.pop() if len(devices) == 1 else None
        return self.tile_assignment.first if self.kind == "maximal" and self.tile_assignment is not None else None

    def subgroup_dim(self, kind: SubgroupType) -> int | None:
        """The tile dim of the subgroup of that type, or None.

        >>> from hlosharding.sharding import HloSharding
        >>> HloSharding.parse("{devices=[2,2]<=[4] last_tile_dim_replicate}").subgroup_dim("replicated")
        1
        """
        return self.tiled_data_rank + self.subgroup_types.index(kind) if kind in self.subgroup_types else None

    def subgroup_size(self, kind: SubgroupType) -> int:
        """How many devices share a tile in the subgroup of that type; 1 where there is none."""
        dim = self.subgroup_dim(kind)
        return 1 if dim is None or self.tile_assignment is None else self.tile_assignment.dims[dim]

    @property
    def leaves(self) -> tuple[Self, ...]:
        """The leaves of a tuple; of a leaf: itself."""
        return self.tuple_elements if self.kind == "tuple" else (self,)

    def leaf(self, index: int) -> Self:
        """Leaf `index` of a tuple; a leaf gives itself."""
        if self.kind != "tuple":
            return self
        if not 0 <= index < len(self.tuple_elements):
            raise ShardingError(f"{self} has {len(self.tuple_elements)} leaves, asked for number {index}")
        return self.tuple_elements[index]

    # ---- the same with another part

    def with_metadata(self, metadata: Iterable[OpMetadata], *, overwrite: bool = True) -> Self:
        """With other metadata on every leaf; without `overwrite` only where there is none yet."""
        new = tuple(metadata)
        if self.kind == "tuple":
            elements = tuple(e.with_metadata(new, overwrite=overwrite) for e in self.tuple_elements)
            return self._with(elements=elements)
        return self._with(metadata=new) if overwrite or not self.metadata else self

    def without_metadata(self) -> Self:
        """With no metadata on any leaf."""
        if self.kind == "tuple":
            return self._with(elements=tuple(e.without_metadata() for e in self.tuple_elements))
        return self._with(metadata=()) if self.metadata else self

    def with_shard_group(self, group: ShardGroup | None) -> Self:
        """A member of that shard group; None clears it."""
        return self._with(shard_group=group)

    def with_named_form(self, named_form: NamedForm | None) -> Self:
        """The same layout spelled with mesh axes (whoever calls has checked that they say the same)."""
        return self._with(named_form=named_form)

    def without_names(self) -> Self:
        """The same layout in device form (V1 or V2)."""
        if self.kind == "tuple":
            return self._with(elements=tuple(e.without_names() for e in self.tuple_elements))
        return self._with(named_form=None) if self.named_form is not None else self


S = TypeVar("S", bound=ShardingValue)
"""The class that a reader builds, and that a transform gives back."""


_FLAGS: dict[str, set[Kind]] = {
    "_replicated": {"replicated"}, "_manual": {"manual"}, "_unknown": {"unknown"}, "_unreduced": {"unreduced"},
    "_tile_maximal": {"replicated", "maximal"},
}  # fmt: skip
"""Of which kinds all leaves are for it to be true."""


def _derived(self: ShardingValue) -> dict[str, Any]:
    """What follows from the parts, by attribute."""
    # Thousands of leaves are often the same few.
    leaves = {id(leaf): leaf for leaf in self.leaves}.values()
    kinds = {leaf.kind for leaf in leaves}
    flags = {flag: kinds <= wanted for flag, wanted in _FLAGS.items()}
    tiles = self.tile_assignment if self.kind == "tiled" else None
    data_dims = tiles.dims[: len(tiles.dims) - len(self.subgroup_types)] if tiles is not None else ()
    return flags | {
        "_tiled": not any(flags.values()),
        "_manual_subgroup": all("manual" in leaf.subgroup_types for leaf in leaves),
        "data_dims": data_dims,
        "tiled_data_rank": len(data_dims),
        "num_tiles": math.prod(data_dims),
        "total_num_tiles": tiles.num_elements if tiles is not None else 1,
        "uid": next(_uids),
        "memo": {},
    }
