"""How one array lies on devices: questions to it, and all its forms: text, message, mesh axes, jax objects, tile sizes.

Floor: sharding.  Stands above its readers and writers; what a sharding is made of, and its identity, stand in `value`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from hlosharding.errors import ShardingError
from hlosharding.sharding import jax_forms
from hlosharding.sharding.proto import from_proto, to_proto
from hlosharding.sharding.text import print_sharding
from hlosharding.sharding.text_parser import parse_sharding
from hlosharding.sharding.tile_assignment import Dims, ceil_div
from hlosharding.sharding.tuples import check_rank, validate
from hlosharding.sharding.value import ShardingValue


class HloSharding(ShardingValue):
    """One layout; build it with the named constructors, compare it with `==`, print it with `str`.

    >>> HloSharding.parse("{devices=[2,2]<=[4]}") == HloSharding.tile([[0, 1], [2, 3]])
    True
    >>> str(HloSharding.iota_tile((4, 2), (2, 4), (1, 0)))
    '{devices=[4,2]<=[2,4]T(1,0)}'
    """

    # ---- text and message

    @classmethod
    def parse(cls, text: str) -> HloSharding:
        """From XLA's text; raises ShardingParseError with the position of what cannot stand.

        >>> HloSharding.parse("{devices=[2,2]<=[4] last_tile_dim_replicate}").data_dims
        (2,)
        """
        return parse_sharding(cls, text)

    @classmethod
    def from_proto(cls, proto: bytes | Any) -> HloSharding:
        """From a serialised or parsed `xla.OpSharding`."""
        return from_proto(cls, proto)

    def to_proto(self) -> bytes:
        """The serialised `xla.OpSharding`."""
        return bytes(to_proto(self).SerializeToString(deterministic=True))

    def __str__(self) -> str:
        return self.to_string()

    def __repr__(self) -> str:
        return f"HloSharding({self.to_string(metadata=True)!r})"

    def to_string(self, *, metadata: bool = False) -> str:
        """XLA's text, with or without metadata."""
        return print_sharding(self, metadata=True) if metadata else self._text

    @cached_property
    def _text(self) -> str:
        return print_sharding(self)

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

    def is_spatially_partitioned(self) -> bool:
        """Anything but a bare single device; a tuple when any leaf is.  Replicated counts."""
        if self.kind == "tuple":
            return any(e.is_spatially_partitioned() for e in self.tuple_elements)
        return self.kind != "maximal"

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

    def num_tiles_along(self, dim: int) -> int:
        """How often data dim `dim` is split; 1 unless tiled."""
        return self.data_dims[dim] if self.data_dims else 1

    @property
    def num_devices(self) -> int | None:
        """Devices in the tile assignment; None where the sharding does not say (replicated, manual ...)."""
        if self.kind == "tuple":
            return next((n for e in self.tuple_elements if (n := e.num_devices) is not None), None)
        return self.tile_assignment.num_elements if self.kind == "tiled" and self.tile_assignment is not None else None

    # ---- leaves of a tuple

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

    # ---- where tiles lie (dims: a shape's sizes): they round up, so the last may be short or empty

    def tile_shape(self, dims: Sequence[int], device: int | None = None) -> Dims:
        """Sizes of a tile: rounded up, or of `device`'s own tile without padding.

        >>> s = HloSharding.parse("{devices=[4]<=[4]}")
        >>> s.tile_shape((10,)), s.tile_shape((10,), 3)
        ((3,), (1,))
        """
        if self.kind != "tiled":
            _refuse_tuple(self)
            return tuple(dims)
        check_rank(self, dims)
        if device is None:
            return tuple([-(-size // parts) for size, parts in zip(dims, self.data_dims, strict=True)])
        offset, limit = self.tile_offset(dims, device), self.tile_limit(dims, device)
        return tuple(end - start for start, end in zip(offset, limit, strict=True))

    def tile_offset(self, dims: Sequence[int], device: int) -> Dims:
        """Where `device`'s tile starts."""
        return self._tile_edge(dims, device, 0)

    def tile_limit(self, dims: Sequence[int], device: int) -> Dims:
        """Where `device`'s tile ends (exclusive, never beyond the dim)."""
        return self._tile_edge(dims, device, 1)

    def _tile_edge(self, dims: Sequence[int], device: int, step: int) -> Dims:
        if self.kind != "tiled":
            if self.kind not in ("replicated", "maximal"):
                raise ShardingError(f"{self} has no tile offsets")
            return tuple(size * step for size in dims)
        check_rank(self, dims)
        parts = zip(self.tile_index(device), dims, self.data_dims, strict=True)
        return tuple(min((i + step) * ceil_div(size, ways), size) for i, size, ways in parts)

    def tile_index(self, device: int) -> Dims:
        """The position of `device`'s tile among the data dims' tiles."""
        if self.kind != "tiled":
            raise ShardingError(f"{self} has no tiles to index")
        where: dict[int, int] | None = self.memo.get("tile_index")
        if where is None:
            where = self.memo["tile_index"] = {d: i for i, d in enumerate(self.tiles.flat)}
        if device not in where:
            raise ShardingError(f"device {device} holds no tile of {self}")
        # Subgroup dims are the minor ones: devices that hold the same tile follow one another.
        place = where[device] * self.num_tiles // self.total_num_tiles
        return tuple(map(int, np.unravel_index(place, self.data_dims)))

    def device_for_tile(self, index: Sequence[int]) -> int:
        """The device of a tile; with only the data dims given, the first of its subgroup."""
        if self.kind == "maximal":
            return self.tiles.first
        if self.kind != "tiled":
            raise ShardingError(f"{self} has no tiles to index")
        dims = self.tiles.dims
        if len(index) not in (len(dims), len(self.data_dims)):
            raise ShardingError(f"index {tuple(index)} into the tiles of {self}")
        full = (*index, *(0 for _ in dims[len(index) :]))
        if not all(0 <= i < ways for i, ways in zip(full, dims, strict=True)):
            raise ShardingError(f"tile {tuple(index)} is outside of {self}")
        return self.tiles.flat[int(np.ravel_multi_index(full, dims))]

    def validate(self, shape: Any, num_devices: int | None = None) -> None:
        """Raise ShardingError unless this sharding can be that of `shape`: sizes, or a nested tuple of them for tuples.

        >>> HloSharding.parse("{devices=[2]<=[2]}").validate((4, 4), 2)
        Traceback (most recent call last):
            ...
        hlosharding.errors.ShardingError: {devices=[2]<=[2]} splits 1 dims, the shape [4, 4] has 2
        """
        validate(self, shape, num_devices)

    # ---- jax

    @classmethod
    def from_jax(cls, sharding: Any, ndim: int) -> HloSharding:
        """From a jax Sharding (NamedSharding keeps its axis names), or None / UNSPECIFIED as unknown."""
        return jax_forms.from_jax(cls, sharding, ndim)

    @classmethod
    def named(cls, mesh: Any, spec: Any, ndim: int | None = None) -> HloSharding:
        """From a mesh (jax Mesh or MeshInfo) and a PartitionSpec, or a sequence of axis names, axis tuples and None."""
        return cls.from_named_form(jax_forms.form_of_spec(mesh, spec, ndim))

    @classmethod
    def unnamed(cls, mesh: Any, spec: Any, ndim: int | None = None) -> HloSharding:
        """The same by device numbers alone, as annotations write it: it prints as `{devices=...}`."""
        return cls.named(mesh, spec, ndim).without_names()

    def to_jax(self, mesh: Any = None) -> Any:
        """A jax NamedSharding over `mesh` (default: the mesh it came with)."""
        return jax_forms.to_jax(self, mesh)

    def to_partition_spec(self, mesh: Any = None) -> Any:
        """A jax PartitionSpec over the axes of `mesh`; raises ShardingError where axes cannot say it."""
        return jax_forms.to_partition_spec(self, mesh)


def untile_shape(sharding: HloSharding, dims: Sequence[int]) -> Dims:
    """Sizes of the whole if every tile has sizes `dims`.

    >>> untile_shape(HloSharding.iota_tile((2, 4)), (3, 5))
    (6, 20)
    """
    _refuse_tuple(sharding)
    if sharding.kind != "tiled":
        return tuple(dims)
    check_rank(sharding, dims)
    return tuple(size * ways for size, ways in zip(dims, sharding.data_dims, strict=True))


def _refuse_tuple(sharding: HloSharding) -> None:
    if sharding.kind == "tuple":
        raise ShardingError(f"{sharding} is of a tuple", remedy="ask each of its .leaves")
