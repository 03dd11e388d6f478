"""Local programs as Python source of one `jax.shard_map`, and their execution; a reference executor without a mesh."""

from hlosharding.executor.boundary import BoundaryArray, assemble, split
from hlosharding.executor.device_program import refuse_described
from hlosharding.executor.executable import Executable
from hlosharding.executor.laying_out import lay_out, put, sharded_array
from hlosharding.executor.program import NO_OPTIONS, ShardMapProgram, find_devices
from hlosharding.executor.reference import run_local, run_reference
from hlosharding.executor.sharded_array import ShardedArray
from hlosharding.executor.source import as_python
from hlosharding.executor.structure import Structure

__all__ = [
    "NO_OPTIONS",
    "BoundaryArray",
    "Executable",
    "ShardMapProgram",
    "ShardedArray",
    "Structure",
    "as_python",
    "assemble",
    "find_devices",
    "lay_out",
    "put",
    "refuse_described",
    "run_local",
    "run_reference",
    "sharded_array",
    "split",
]
