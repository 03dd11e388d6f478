"""The pipeline as users hold it: partitioned programs, stages, `hs.jit`."""

from hlosharding.compiler.alternatives import best_program
from hlosharding.compiler.arrays import device_put
from hlosharding.compiler.collective_explanation import CollectiveExplanation
from hlosharding.compiler.explaining import Explanations, explain, explain_line, is_line, made_at
from hlosharding.compiler.jit import Jitted, jit
from hlosharding.compiler.optimized import MEMORY_PARTS, MemoryUse, OptimizedProgram, compile_by_xla, compile_for
from hlosharding.compiler.partitioned import Partitioned, default_machine, partition, prices_of
from hlosharding.compiler.program_cache import versions
from hlosharding.compiler.split_explanation import SplitExplanation
from hlosharding.compiler.stages import Compiled, PartitionedStage, PropagatedStage, Traced
from hlosharding.executor import ShardedArray

__all__ = [
    "MEMORY_PARTS",
    "CollectiveExplanation",
    "Compiled",
    "Explanations",
    "Jitted",
    "MemoryUse",
    "OptimizedProgram",
    "Partitioned",
    "PartitionedStage",
    "PropagatedStage",
    "ShardedArray",
    "SplitExplanation",
    "Traced",
    "best_program",
    "compile_by_xla",
    "compile_for",
    "default_machine",
    "device_put",
    "explain",
    "explain_line",
    "is_line",
    "jit",
    "made_at",
    "partition",
    "prices_of",
    "versions",
]
