"""One search problem for one question."""

from __future__ import annotations

from hlosharding.reshard.axis_plans.common_grid import common_grid
from hlosharding.reshard.axis_plans.moves import problem_of
from hlosharding.sharding import HloSharding


def test_the_same_problem_comes_back_padded_or_not() -> None:
    """Problems are keys by identity: of a new one nothing that was found before is found again."""
    rows, columns = (HloSharding.parse(f"{{devices={dims}<=[4]}}") for dims in ("[4,1]", "[1,4]"))
    grid = common_grid(rows, columns, 2, 4)
    assert grid is not None
    plain, padded = problem_of(grid, (6, 8)), problem_of(grid, (6, 8), (8, 8))
    assert problem_of(grid, (6, 8)) is plain
    assert problem_of(grid, (6, 8), (8, 8)) is padded
    assert (padded.target.padded, padded.may_cut_unevenly) == ((8, 8), True)
    assert (plain.target.padded, plain.may_cut_unevenly) == ((6, 8), False)
