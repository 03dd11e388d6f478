"""Tiles through a reshape: which target dims can take over the source dims' tiles.

Floor: sharding.  Follows XLA's ReshapeSharding (strict) and PropagateShardingThroughReshape (what can be carried).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hlosharding.errors import ShardingError
from hlosharding.sharding.grouping import group_sharding_on_dims, ungroup_sharding
from hlosharding.sharding.hlo_sharding import HloSharding
from hlosharding.sharding.memo import memoised
from hlosharding.sharding.ordering import merge_if_compatible
from hlosharding.sharding.subgroups import SubgroupType
from hlosharding.sharding.tile_assignment import Dims
from hlosharding.sharding.transforms import replicate_on_dims


@memoised
def reshape_sharding(
    source_dims: Sequence[int], target_dims: Sequence[int], sharding: HloSharding
) -> HloSharding | None:
    """The sharding of the reshaped array that moves no element (some tiles may turn into copies), or None.

    >>> str(reshape_sharding((8, 4), (2, 4, 4), HloSharding.iota_tile((4, 1))))
    '{devices=[2,2,1]<=[4]}'
    """
    if not sharding.is_tiled():
        return sharding
    if math.prod(source_dims) != math.prod(target_dims):
        raise ShardingError(f"{list(source_dims)} cannot be reshaped to {list(target_dims)}: other number of elements")
    walk = _DimMatching(list(source_dims), list(target_dims), list(sharding.tiles.dims[: len(source_dims)]))
    if not walk.run() or math.prod(walk.found) == 1:
        return None
    data = walk.found + [1] * (len(target_dims) - len(walk.found))
    return _with_data_tiles(replicate_on_dims(sharding, walk.dropped), data)


def _with_data_tiles(sharding: HloSharding, data: list[int]) -> HloSharding:
    """Those data tiles, the subgroups as they are, and all devices beyond as copies."""
    types: tuple[SubgroupType, ...] = tuple(t for t in sharding.subgroup_types if t != "replicated")
    dims = data + [sharding.subgroup_size(t) for t in types]
    copies = sharding.total_num_tiles // math.prod(dims)
    if copies > 1:
        return HloSharding.subgroup(sharding.tiles.reshape((*dims, copies)), (*types, "replicated"), sharding.metadata)
    return HloSharding.subgroup(sharding.tiles.reshape(dims), types, sharding.metadata)


@dataclass(slots=True)
class _DimMatching:
    """One pass over source and target dims in parallel, major to minor; stacks hold the dims still to be walked.

    A dim is put back with what is left of it, so that splits and fusions of the same dim compose.
    """

    source: list[int]
    target: list[int]
    tiles: list[int]
    found: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    """Source dims whose tiles no target dim can hold."""
    at: int = -1
    fuse: bool = False
    """The next count belongs to the last target dim found."""

    def run(self) -> bool:
        """Fill `found` and `dropped`; False if tiles do not divide a dim that is split or fused."""
        for stack in (self.source, self.target, self.tiles):
            stack.reverse()
        going: bool | None = True
        # When all tiles are given away the rest of the target is whole, which needs no walk: `reshape_sharding` fills
        # it up with ones.
        while going and self.source and self.target and math.prod(self.tiles) > 1:
            self._skip_untiled()
            if not self.source or not self.target:
                break
            going = self._step()
        return going is not None

    def _skip_untiled(self) -> None:
        """A run of untiled source dims absorbs the target dims that divide it."""
        product = 1
        while self.tiles and self.tiles[-1] == 1:
            product *= self._pop()[0]
        while self.target and self.target[-1] > 1 and product % self.target[-1] == 0:
            product //= self.target.pop()
            self._emit(1)
        if product != 1:
            self._push(product, 1)

    def _step(self) -> bool | None:
        """One source dim against one target dim; True: go on, False: stop with what is found, None: fail."""
        (size, ways), target = self._pop(), self.target.pop()
        if size == target and self.fuse and size % ways:
            return self._share(size, ways, target)
        if size == target:
            self._emit(ways)
        elif target == 1:
            self._emit(1)
            self._push(size, ways)
        elif size == 1:
            self.target.append(target)
            if ways > 1:
                self.dropped.append(self.at)
        elif ways == 1:
            # All untiled dims that follow are in it already.
            return False
        elif size % ways:
            return None
        else:
            return self._share(size, ways, target)
        return True

    def _share(self, size: int, ways: int, target: int) -> bool:
        """Give the target dim the tiles that divide it too; the rest of both dims is walked next."""
        common = math.gcd(ways, target)
        if common == 1:
            return False
        self._push(size // common, ways // common)
        self.target.append(target // common)
        self._emit(common)
        self.fuse = True
        return True

    def _pop(self) -> tuple[int, int]:
        self.at += 1
        return self.source.pop(), self.tiles.pop()

    def _push(self, size: int, ways: int) -> None:
        self.at -= 1
        self.source.append(size)
        self.tiles.append(ways)

    def _emit(self, ways: int) -> None:
        if self.fuse:
            self.found[-1] *= ways
        else:
            self.found.append(ways)
        self.fuse = False


@memoised
def propagate_through_reshape(
    source_dims: Sequence[int], target_dims: Sequence[int], sharding: HloSharding
) -> HloSharding:
    """As much of the tiling as the reshaped array can keep; replicated if nothing.

    >>> str(propagate_through_reshape((6, 4), (4, 6), HloSharding.iota_tile((6, 1))))
    '{devices=[2,1,3]<=[6] last_tile_dim_replicate}'
    """
    if not sharding.is_tiled():
        return sharding
    if sharding.is_manual_subgroup():
        return _around_manual(source_dims, target_dims, sharding)
    result = HloSharding.replicate()
    start = 0
    while start < len(source_dims):
        start, result = _extend(source_dims, target_dims, sharding, start, result)
    return result.with_metadata(sharding.metadata)


def _around_manual(source_dims: Sequence[int], target_dims: Sequence[int], sharding: HloSharding) -> HloSharding:
    """Split the manual subgroup off, carry the rest, put it back."""
    manual = sharding.subgroup_dim("manual")
    assert manual is not None
    group = group_sharding_on_dims(sharding, (manual,), subgroup_manual=True)
    inner = propagate_through_reshape(source_dims, target_dims, group.sharding)
    # It stands behind the data dims, of which there are more or fewer now.
    moved = manual + len(target_dims) - len(source_dims)
    return ungroup_sharding(replace(group, sharding=inner, data_rank=len(target_dims), group_dims=(moved,)))


def _extend(
    source_dims: Sequence[int], target_dims: Sequence[int], sharding: HloSharding, start: int, result: HloSharding
) -> tuple[int, HloSharding]:
    """The longest range of source dims from `start` that carries over and merges with `result`; then where to go on."""
    for end in range(len(source_dims), start, -1):
        piece = _carry_range(source_dims, target_dims, sharding, start, end)
        merged = merge_if_compatible(piece, result) if piece is not None else None
        if merged is not None:
            return end, merged
    return start + 1, result


def _carry_range(
    source_dims: Sequence[int], target_dims: Sequence[int], sharding: HloSharding, start: int, end: int
) -> HloSharding | None:
    """Only the tiles of source dims start..end carried over, all others as copies."""
    dims = sharding.tiles.dims
    alone: Dims = tuple(n if start <= i < end else 1 for i, n in enumerate(dims[: len(source_dims)]))
    reshaped = reshape_sharding(source_dims, target_dims, HloSharding.iota_tile(alone))
    if reshaped is None:
        return None
    perm = [*range(start, end), *range(start), *range(end, len(dims))]
    data = reshaped.tiles.dims[: len(target_dims)]
    copies = sharding.tiles.num_elements // math.prod(data)
    return HloSharding.partial_tile(sharding.tiles.transpose(perm).reshape((*data, copies)))
