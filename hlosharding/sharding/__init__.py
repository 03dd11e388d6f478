"""How one array is laid out over devices: the value, its text and proto forms, and the algebra on its tiles.

Floor: sharding.  Knows devices, tiles and mesh axes; nothing of instructions, costs or running programs.
"""

from hlosharding.sharding.geometry import ceil_div, untile_shape
from hlosharding.sharding.grouping import (
    GroupedSharding,
    device_groups_along,
    device_groups_match,
    group_sharding_on_all_dims_except,
    group_sharding_on_dims,
    group_sharding_on_replicated_dim,
    grouped_replicated_sharding,
    manual_subgroup_sharding,
    ungroup_sharding,
)
from hlosharding.sharding.hlo_sharding import HloSharding
from hlosharding.sharding.local_reshape import is_local_reshape, reshape_runs
from hlosharding.sharding.memo import memoised
from hlosharding.sharding.mesh import MeshInfo
from hlosharding.sharding.metadata import OpMetadata, ShardGroup
from hlosharding.sharding.named import AxisRef, DimAxes, NamedForm
from hlosharding.sharding.naming import find_named_form, with_mesh
from hlosharding.sharding.ordering import (
    find_common_sharding,
    is_more_specific,
    is_strictly_better,
    is_subtiling_or_equal,
    merge_if_compatible,
    merge_sharding,
)
from hlosharding.sharding.reshaping import propagate_through_reshape, reshape_sharding
from hlosharding.sharding.spelling import spell, spell_short
from hlosharding.sharding.subgroups import SubgroupType
from hlosharding.sharding.tile_assignment import IotaTile, TileAssignment, find_iota, prime_factors
from hlosharding.sharding.tiles import (
    REPLICATED,
    copies_as_partials,
    member_numbers,
    offsets,
    partial_sum_groups,
    stacked_partials,
    tile_indices,
    tile_table,
    uneven_dims,
    without_partials,
)
from hlosharding.sharding.transforms import (
    add_shape_dims,
    along_dims,
    first_target_dim,
    merge_dimension,
    move_and_merge_tiles,
    remove_shape_dims,
    replicate_all_data_dims,
    replicate_on_all_dims_except,
    replicate_on_dims,
    reshape_to_tile_dimension,
    reverse_sharding,
    split_dimension,
    transpose_sharding,
    transpose_with_collapsed_dims,
)
from hlosharding.sharding.tuples import leaf_sizes, required_leaves, sub_sharding

__all__ = [
    "REPLICATED",
    "AxisRef",
    "DimAxes",
    "GroupedSharding",
    "HloSharding",
    "IotaTile",
    "MeshInfo",
    "NamedForm",
    "OpMetadata",
    "ShardGroup",
    "SubgroupType",
    "TileAssignment",
    "add_shape_dims",
    "along_dims",
    "ceil_div",
    "copies_as_partials",
    "device_groups_along",
    "device_groups_match",
    "find_common_sharding",
    "find_iota",
    "find_named_form",
    "first_target_dim",
    "group_sharding_on_all_dims_except",
    "group_sharding_on_dims",
    "group_sharding_on_replicated_dim",
    "grouped_replicated_sharding",
    "is_local_reshape",
    "is_more_specific",
    "is_strictly_better",
    "is_subtiling_or_equal",
    "leaf_sizes",
    "manual_subgroup_sharding",
    "member_numbers",
    "memoised",
    "merge_dimension",
    "merge_if_compatible",
    "merge_sharding",
    "move_and_merge_tiles",
    "offsets",
    "partial_sum_groups",
    "prime_factors",
    "propagate_through_reshape",
    "remove_shape_dims",
    "replicate_all_data_dims",
    "replicate_on_all_dims_except",
    "replicate_on_dims",
    "required_leaves",
    "reshape_runs",
    "reshape_sharding",
    "reshape_to_tile_dimension",
    "reverse_sharding",
    "spell",
    "spell_short",
    "split_dimension",
    "stacked_partials",
    "sub_sharding",
    "tile_indices",
    "tile_table",
    "transpose_sharding",
    "transpose_with_collapsed_dims",
    "uneven_dims",
    "ungroup_sharding",
    "untile_shape",
    "with_mesh",
    "without_partials",
]
