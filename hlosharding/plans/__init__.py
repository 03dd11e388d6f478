"""Plans that are kept: in files, compared, held to their figures, and handed to a stock `jax.jit`."""

from hlosharding.plans.difference import CollectiveChange, Difference, ShardingChange, diff
from hlosharding.plans.plan_file import PlanFile
from hlosharding.plans.plan_reader import PipelineSteps
from hlosharding.plans.side import is_per_device

__all__ = ["CollectiveChange", "Difference", "PipelineSteps", "PlanFile", "ShardingChange", "diff", "is_per_device"]
