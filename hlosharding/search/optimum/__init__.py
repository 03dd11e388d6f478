"""How the values of a program had best lie on a mesh: one choice for each, over all mesh axes at once."""

from hlosharding.search.optimum.nodes import Weights
from hlosharding.search.optimum.optimum import Optimum, find_optimum
from hlosharding.search.optimum.program_choices import ProgramChoices
from hlosharding.search.optimum.strategy import OPTIMUM, OptimumOf

__all__ = ["OPTIMUM", "Optimum", "OptimumOf", "ProgramChoices", "Weights", "find_optimum"]
