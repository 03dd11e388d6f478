"""Layers divided into stages on submeshes, by a dynamic program."""

from hlosharding.search.stages.division import divide_layers
from hlosharding.search.stages.plan_layers import DividedPlan, LayerPrices, divide_plan
from hlosharding.search.stages.run_prices import RunPrices, Stage

__all__ = ["DividedPlan", "LayerPrices", "RunPrices", "Stage", "divide_layers", "divide_plan"]
