"""Plans that are kept: in files, compared, held to their figures, and handed to a stock `jax.jit`."""

from hlosharding.plans.check import check_plan, judge_growth
from hlosharding.plans.constraints import smallest
from hlosharding.plans.difference import Difference, ShardingChange, diff
from hlosharding.plans.export import ExportedPlan, export_plan
from hlosharding.plans.golden import Golden, golden_path
from hlosharding.plans.plan_file import PlanFile
from hlosharding.plans.plan_reader import PipelineSteps
from hlosharding.plans.replicated import (
    REPLICATED_OVER,
    ReplicatedValue,
    is_held,
    replicated_by_accident,
    replicated_values,
)
from hlosharding.plans.side import is_per_device
from hlosharding.plans.source_change import SourceChange, change_source

__all__ = [
    "REPLICATED_OVER",
    "Difference",
    "ExportedPlan",
    "Golden",
    "PipelineSteps",
    "PlanFile",
    "ReplicatedValue",
    "ShardingChange",
    "SourceChange",
    "change_source",
    "check_plan",
    "diff",
    "export_plan",
    "golden_path",
    "is_held",
    "is_per_device",
    "judge_growth",
    "replicated_by_accident",
    "replicated_values",
    "smallest",
]
