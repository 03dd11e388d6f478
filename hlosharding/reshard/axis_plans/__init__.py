"""Axis plans: whole device axes move between dims, by slices, gathers, all-to-alls, reductions and one permute."""

from hlosharding.reshard.axis_plans.common_grid import Axes, Grid
from hlosharding.reshard.axis_plans.plans import AxisSearch, axis_plans, have_grid

__all__ = ["Axes", "AxisSearch", "Grid", "axis_plans", "have_grid"]
