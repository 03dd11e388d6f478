"""One choice per node at the least cost, within memory: an integer program where it is small enough, or a search."""

from hlosharding.search.choices.integer_solvers import SOLVERS
from hlosharding.search.choices.problem import SelectionProblem
from hlosharding.search.choices.solver import solve_choices
from hlosharding.search.choices.whole import Choices

__all__ = ["SOLVERS", "Choices", "SelectionProblem", "solve_choices"]
