"""Random questions to XLA's sharding utilities, and how ours are asked the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import hlosharding.sharding as ours
from hlosharding.sharding import HloSharding, TileAssignment

parse = HloSharding.parse
DEVICES = (2, 4, 6, 8, 8, 8, 12, 16)
_TYPES = ((), (), ("replicated",), ("replicated",), ("replicated",), ("manual",), ("manual", "replicated"))


def _answer(sharding: HloSharding | None) -> str | None:
    return None if sharding is None else str(sharding)


def _sharding(question: dict[str, str]) -> HloSharding:
    return parse(question["sharding"])


def _sizes(question: dict[str, str]) -> tuple[int, ...]:
    inner = question["shape"].split("[")[1].rstrip("]")
    return tuple(map(int, inner.split(","))) if inner else ()


def _merge_if_compatible(source: Any, target: Any) -> tuple[bool, str | None]:
    merged = ours.merge_if_compatible(_sharding(source), _sharding(target))
    return merged is not None, _answer(merged)


def _merge(old: Any, new: Any, combine: bool) -> tuple[bool, str | None]:
    changed, merged = ours.merge_sharding(_sharding(old), _sharding(new), combine)
    return changed, str(merged) if changed else None


def _reshape(function: Callable[..., HloSharding | None]) -> Callable[..., str | None]:
    return lambda source, target, s: _answer(function(_sizes(source), _sizes(target), _sharding(s)))


def _on_one(function: Callable[..., HloSharding | None]) -> Callable[..., str | None]:
    return lambda s, *rest: _answer(function(_sharding(s), *rest))


OURS: dict[str, Callable[..., Any]] = {
    "ReshapeSharding": _reshape(ours.reshape_sharding),
    "PropagateShardingThroughReshape": _reshape(ours.propagate_through_reshape),
    "TransposeSharding": _on_one(ours.transpose_sharding),
    "TransposeShardingWithCollapsedDims": _on_one(ours.transpose_with_collapsed_dims),
    "ReverseSharding": _on_one(ours.reverse_sharding),
    "RemoveShapeDimensions": _on_one(ours.remove_shape_dims),
    "AddShapeDimensions": _on_one(ours.add_shape_dims),
    "MergeShardingIfCompatible": _merge_if_compatible,
    "MergeSharding": _merge,
    "MergeShardingDimension": _on_one(ours.merge_dimension),
    "SplitShardingDimension": _on_one(ours.split_dimension),
    "MoveAndMergeShardingTiles": _on_one(ours.move_and_merge_tiles),
    "PartiallyReplicateTiledShardingOnDims": _on_one(ours.replicate_on_dims),
    "PartiallyReplicateTiledShardingOnAllDimsExcept": _on_one(ours.replicate_on_all_dims_except),
    "PropagateShardingAlongDimsAndReplicateOthers": _on_one(ours.along_dims),
    "ReplicateAllDataDims": _on_one(ours.replicate_all_data_dims),
    "IsSubTilingOrEqualSharding": lambda d, a, b: ours.is_subtiling_or_equal(_sizes(d), _sharding(a), _sharding(b)),
    "IsShardingMoreSpecific": lambda a, b: ours.is_more_specific(_sharding(a), _sharding(b)),
    "IsShardingStrictlyBetter": lambda a, b: ours.is_strictly_better(_sharding(a), _sharding(b)),
}
"""XLA's utility: ours, asked with the same arguments; an answer is text, a truth value, or (changed, text)."""


def live_answer(result: dict[str, Any]) -> Any:
    """What the oracle program's reply says, in the form in which `OURS` answer."""
    if "updated" not in result:
        return result["value"]
    return (True, result["updated"][0]) if result["value"] else (False, None)


class Questions:
    """Random arguments for every utility; the same seed asks the same."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def factors(self, number: int, parts: int) -> list[int]:
        """`number` as a product of `parts` random factors."""
        dims, prime = [1] * parts, 2
        while number > 1:
            while number % prime == 0:
                dims[self.rng.randrange(parts)] *= prime
                number //= prime
            prime += 1
        return dims

    def text(self, rank: int, devices: int) -> str:
        """A random leaf as text, in any spelling."""
        whole = self.rng.random()
        if whole < 0.06:
            return "{replicated}" if whole < 0.03 else "{maximal device=1}" if whole < 0.045 else "{manual}"
        types = self.rng.choice(_TYPES)
        dims = ",".join(map(str, self.factors(devices, rank + len(types))))
        tail = " last_tile_dim_replicate" if types == ("replicated",) else f" last_tile_dims={{{', '.join(types)}}}"
        return f"{{devices=[{dims}]{self._devices(devices)}{tail if types else ''}}}"

    def _devices(self, devices: int) -> str:
        kind = self.rng.random()
        if kind < 0.4:
            return f"<=[{devices}]"
        reshape = self.factors(devices, self.rng.randint(2, 4))
        perm = self.rng.sample(range(len(reshape)), len(reshape))
        if kind < 0.8:
            return f"<=[{','.join(map(str, reshape))}]T({','.join(map(str, perm))})"
        listed = list(TileAssignment.from_iota((devices,), reshape, perm).flat)
        if kind < 0.93:
            self.rng.shuffle(listed)
        return ",".join(map(str, listed))

    def leaf(self, rank: int, devices: int) -> HloSharding:
        return parse(self.text(rank, devices))

    def tiled(self, rank: int, devices: int) -> HloSharding:
        while True:
            leaf = self.leaf(rank, devices)
            if leaf.kind == "tiled":
                return leaf

    def subset(self, rank: int) -> list[int]:
        found = self.rng.sample(range(rank), self.rng.randint(0, rank))
        return sorted(found) if self.rng.random() < 0.7 else found

    def ask(self, name: str) -> list[Any]:
        """Arguments for one utility, as the oracle program takes them."""
        rank, devices = self.rng.randint(1, 4), self.rng.choice(DEVICES)
        return [_written(a) for a in getattr(self, f"_{name}")(rank, devices)]

    def _TransposeSharding(self, rank: int, n: int) -> list[Any]:
        return [self.leaf(rank, n), self.rng.sample(range(rank), rank)]

    def _TransposeShardingWithCollapsedDims(self, rank: int, n: int) -> list[Any]:
        target_rank = self.rng.randint(1, 4)
        to, back = [-1] * rank, [-1] * target_rank
        kept = self.rng.randint(0, min(rank, target_rank))
        pairs = zip(self.rng.sample(range(rank), kept), self.rng.sample(range(target_rank), kept), strict=True)
        for source, target in pairs:
            to[source], back[target] = target, source
        return [self.leaf(rank, n), to, back]

    def _ReverseSharding(self, rank: int, n: int) -> list[Any]:
        return [self.tiled(rank, n), self.subset(rank)]

    def _RemoveShapeDimensions(self, rank: int, n: int) -> list[Any]:
        leaf = self.tiled(rank, n)
        return [leaf, [d for d, ways in enumerate(leaf.data_dims) if ways == 1 and d]]

    def _AddShapeDimensions(self, rank: int, n: int) -> list[Any]:
        return [self.tiled(rank, n), self.rng.randint(0, rank), self.rng.randint(0, 2)]

    def _pair(self, rank: int, n: int) -> tuple[HloSharding, HloSharding]:
        """Two leaves, often coarser forms of one, so that they can be merged."""
        if self.rng.random() < 0.4:
            return self.tiled(rank, n), self.tiled(rank, n)
        common = self.tiled(rank, n)
        return tuple(ours.replicate_on_dims(common, self.subset(rank)) for _ in range(2))  # type: ignore[return-value]

    def _MergeShardingIfCompatible(self, rank: int, n: int) -> list[Any]:
        return [*self._pair(rank, n)]

    def _MergeSharding(self, rank: int, n: int) -> list[Any]:
        return [*self._pair(rank, n), self.rng.random() < 0.8]

    def _MergeShardingDimension(self, rank: int, n: int) -> list[Any]:
        return [self.tiled(max(rank, 2), n), self.rng.randrange(max(rank, 2) - 1)]

    def _SplitShardingDimension(self, rank: int, n: int) -> list[Any]:
        leaf, dim = self.tiled(rank, n), self.rng.randrange(rank)
        return [leaf, dim, self.rng.choice([p for p in range(1, n + 1) if leaf.data_dims[dim] % p == 0])]

    def _MoveAndMergeShardingTiles(self, rank: int, n: int) -> list[Any]:
        return [self.tiled(max(rank, 2), n), *self.rng.sample(range(max(rank, 2)), 2)]

    def _PartiallyReplicateTiledShardingOnDims(self, rank: int, n: int) -> list[Any]:
        return [self.leaf(rank, n), self.subset(rank)]

    _PartiallyReplicateTiledShardingOnAllDimsExcept = _PartiallyReplicateTiledShardingOnDims

    def _PropagateShardingAlongDimsAndReplicateOthers(self, rank: int, n: int) -> list[Any]:
        target_rank = self.rng.randint(1, 4)
        kept = self.rng.randint(0, min(rank, target_rank))
        return [
            self.leaf(rank, n),
            self.rng.sample(range(rank), kept),
            self.rng.sample(range(target_rank), kept),
            target_rank,
        ]

    def _ReplicateAllDataDims(self, rank: int, n: int) -> list[Any]:
        return [self.leaf(rank, n), self.rng.choice([-1, rank, 3])]

    def _ReshapeSharding(self, rank: int, n: int) -> list[Any]:
        total = self.rng.choice([8, 12, 16, 24, 32, 36, 48, 60, 64, 96, 112, 128])
        target_rank = self.rng.randint(1, 4)
        return [tuple(self.factors(total, rank)), tuple(self.factors(total, target_rank)), self.leaf(rank, n)]

    _PropagateShardingThroughReshape = _ReshapeSharding

    def _IsSubTilingOrEqualSharding(self, rank: int, n: int) -> list[Any]:
        dims = tuple(self.rng.choice([1, 2, 3, 4, 5, 6, 8, 12, 16, 24]) for _ in range(rank))
        return [dims, *self._pair(rank, n)]

    def _IsShardingMoreSpecific(self, rank: int, n: int) -> list[Any]:
        return [self.leaf(rank, n), self.leaf(rank, n)]

    _IsShardingStrictlyBetter = _IsShardingMoreSpecific

    def all(self, each: int) -> Iterator[tuple[str, list[Any]]]:
        """`each` questions to every utility."""
        for name in OURS:
            for _ in range(each):
                yield name, self.ask(name)


def _written(argument: Any) -> Any:
    """As the oracle program takes it: shardings and shapes as text."""
    if isinstance(argument, HloSharding):
        return {"sharding": str(argument)}
    return {"shape": f"f32[{','.join(map(str, argument))}]"} if isinstance(argument, tuple) else argument
