"""Annotations with open dims: which tiles may they take, alone or together with the manual conversion behind them?

Floor: propagation.  Follows XLA's InferUnspecifiedDims..., RefineManualAutoShardingFromAuto and ...FromManual.
"""

from __future__ import annotations

from hlosharding.errors import PropagationError
from hlosharding.ir import unspecified_dims
from hlosharding.sharding import HloSharding, merge_if_compatible, replicate_on_all_dims_except


def open_dims_of(opaque: str) -> tuple[int, ...] | None:
    """The open dims in an opaque string; None where it says something else."""
    try:
        return unspecified_dims(opaque)
    except PropagationError:
        return None


def refine(own: HloSharding, source: HloSharding, open_dims: tuple[int, ...]) -> HloSharding | None:
    """`own` with the tiles that `source` has on the open dims, or None.

    >>> own = HloSharding.parse("{devices=[2,1,2]<=[4] last_tile_dim_replicate}")
    >>> str(refine(own, HloSharding.parse("{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}"), (1,)))
    '{devices=[2,2]<=[4]}'
    """
    if not source.is_tiled() or own.is_manual():
        return None
    return merge_if_compatible(replicate_on_all_dims_except(source, open_dims), own)


def refine_pair(
    annotation: HloSharding,
    conversion: HloSharding,
    source: HloSharding,
    open_dims: tuple[int, ...],
    *,
    manual_first: bool,
    from_users: bool,
) -> tuple[HloSharding, HloSharding] | None:
    """New shardings of an annotation and of the manual conversion behind it.

    `manual_first`: the annotation is on the manual side.  `source` is on the side of the annotation, or, seen
    `from_users`, on the other one.
    """
    auto, manual = (conversion, annotation) if manual_first else (annotation, conversion)
    from_manual = manual_first != from_users
    found = (_from_manual if from_manual else _from_auto)(source, open_dims, auto, manual)
    if found is None:
        return None
    new_auto, new_manual = found
    return (new_manual, new_auto) if manual_first else (new_auto, new_manual)


def _can_refine(auto: HloSharding, manual: HloSharding) -> bool:
    """The manual side must have a manual and a replicated subgroup, the auto side no manual one."""
    return (
        manual.is_manual_subgroup()
        and not auto.is_manual_subgroup()
        and manual.has_partial_replication()
        and len(manual.subgroup_types) == 2
    )


def _from_auto(
    source: HloSharding, open_dims: tuple[int, ...], auto: HloSharding, manual: HloSharding
) -> tuple[HloSharding, HloSharding] | None:
    if not _can_refine(auto, manual):
        return None
    kept = replicate_on_all_dims_except(source, open_dims)
    if not kept.is_tiled():
        return None
    new_auto = merge_if_compatible(kept, auto)
    if new_auto is None:
        return None
    # To merge into the manual side, its manual dim is treated as one more data dim, just before the replicated one.
    rank = kept.tiled_data_rank
    dims = kept.tiles.dims
    widened = HloSharding.partial_tile(kept.tiles.reshape((*dims[:rank], 1, *dims[rank:])), kept.metadata)
    merged = merge_if_compatible(widened, HloSharding.partial_tile(manual.tiles, manual.metadata))
    if merged is None:
        return None
    types = ("manual", "replicated") if merged.has_partial_replication() else ("manual",)
    return new_auto, HloSharding.subgroup(merged.tiles, types, merged.metadata)


def _from_manual(
    source: HloSharding, open_dims: tuple[int, ...], auto: HloSharding, manual: HloSharding
) -> tuple[HloSharding, HloSharding] | None:
    if not source.is_manual_subgroup() or not _can_refine(auto, manual):
        return None
    kept = replicate_on_all_dims_except(source, open_dims)
    if not kept.is_tiled():
        return None
    new_manual = merge_if_compatible(kept, manual)
    if new_manual is None:
        return None
    all_copies = HloSharding.subgroup(kept.tiles, ("replicated",) * len(kept.subgroup_types), kept.metadata)
    new_auto = merge_if_compatible(all_copies, auto)
    return None if new_auto is None else (new_auto, new_manual)
