"""Axis plans: whole device axes move between dims, by slices, gathers, all-to-alls, reductions and one permute."""

from hlosharding.reshard.axis_plans.plans import AxisSearch, axis_plans, have_grid

__all__ = ["AxisSearch", "axis_plans", "have_grid"]
