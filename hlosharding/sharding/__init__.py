"""How one array is laid out over devices: the value, its text and proto forms, and the algebra on its tiles.

Floor: sharding.  Knows devices, tiles and mesh axes; nothing of instructions, costs or running programs.
"""

from hlosharding.sharding.device_count import MOST_DEVICES, check_devices, count_devices
from hlosharding.sharding.device_grid import DeviceGrid, Digit, ends_of
from hlosharding.sharding.formats import (
    FEATURES,
    FORMATS,
    Axes,
    Axis,
    Cluster,
    Format,
    FormatContext,
    Interchange,
    SdySharding,
    convert,
    is_spec,
    read_mlir_string,
    read_mlir_symbol,
    read_sdy_meshes,
    read_sdy_sharding,
    same_sharding,
    spec_from_text,
    write_mlir_symbol,
    write_sdy_sharding,
)
from hlosharding.sharding.geometry import ceil_div, untile_shape
from hlosharding.sharding.grouping import (
    GroupedSharding,
    device_groups_along,
    device_groups_match,
    group_sharding_on_all_dims_except,
    group_sharding_on_dims,
    grouped_replicated_sharding,
    manual_subgroup_sharding,
    ungroup_sharding,
)
from hlosharding.sharding.hlo_sharding import HloSharding
from hlosharding.sharding.jax_forms import has_unconstrained_dims, shortest, without_partial_extremes
from hlosharding.sharding.local_reshape import is_local_reshape, reshape_runs
from hlosharding.sharding.memo import memoised
from hlosharding.sharding.mesh import MeshInfo, axis_of
from hlosharding.sharding.metadata import OpMetadata, ShardGroup
from hlosharding.sharding.named import AxisRef, DimAxes, NamedForm
from hlosharding.sharding.naming import axes_by_dim, axis_refs, find_named_form, with_mesh
from hlosharding.sharding.ordering import (
    find_common_sharding,
    is_more_specific,
    is_strictly_better,
    is_subtiling_or_equal,
    merge_if_compatible,
    merge_sharding,
)
from hlosharding.sharding.reshaping import propagate_through_reshape, reshape_sharding
from hlosharding.sharding.scanner import Scanner
from hlosharding.sharding.spelling import spell, spell_short
from hlosharding.sharding.subgroups import SubgroupType
from hlosharding.sharding.tile_assignment import TileAssignment, prime_factors
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
from hlosharding.sharding.tuples import required_leaves, sub_sharding
