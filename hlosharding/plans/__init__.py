"""Plans that are kept: in files, compared, held to their figures, and handed to a stock `jax.jit`."""

from hlosharding.plans.plan_file import PlanFile
from hlosharding.plans.plan_reader import PipelineSteps

__all__ = ["PipelineSteps", "PlanFile"]
