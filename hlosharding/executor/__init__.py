"""Local programs as Python source of one `jax.shard_map`, and their execution; a reference executor without a mesh."""

from hlosharding.executor.axes import Axes
from hlosharding.executor.boundary import Boundary, BoundaryArray, assemble, split, with_dtype
from hlosharding.executor.device_program import refuse_described
from hlosharding.executor.elided import refuse_elided
from hlosharding.executor.executable import Executable
from hlosharding.executor.laying_out import (
    array_of_tiles,
    lay_out,
    lay_out_checked,
    put,
    sharded_array,
    tiles_by_device,
)
from hlosharding.executor.processes import check_same, is_own, is_shared
from hlosharding.executor.program import NO_OPTIONS, ShardMapProgram, find_devices
from hlosharding.executor.random_inputs import is_integer, random_array
from hlosharding.executor.reference import run_local, run_reference
from hlosharding.executor.sharded_array import ShardedArray, restack_tiles

__all__ = [
    "NO_OPTIONS",
    "Axes",
    "Boundary",
    "BoundaryArray",
    "Executable",
    "ShardMapProgram",
    "ShardedArray",
    "array_of_tiles",
    "assemble",
    "check_same",
    "find_devices",
    "is_integer",
    "is_own",
    "is_shared",
    "lay_out",
    "lay_out_checked",
    "put",
    "random_array",
    "refuse_described",
    "refuse_elided",
    "restack_tiles",
    "run_local",
    "run_reference",
    "sharded_array",
    "split",
    "tiles_by_device",
    "with_dtype",
]
