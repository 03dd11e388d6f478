"""Each room has a budget of code lines, `.ci/line-budget`: a room that grows says why in the commit that raises it.

`python -m tests.architecture.test_line_budget` writes what stands now.
"""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "hlosharding"
BUDGET = ROOT / ".ci" / "line-budget"


def code_lines(source: str) -> int:
    """Lines that hold code: no comments, no blanks, no strings that stand alone.

    >>> code_lines('"What it is."' + "\\n\\nx = [  # why\\n    1,\\n]\\n")
    3
    """
    said = enumerate(map(str.strip, source.splitlines()), 1)
    lines = {number for number, line in said if line and not line.startswith("#")}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


@cache
def lines_of_rooms() -> Counter[str]:
    """By room; files beside the rooms are the ground's."""
    found = Counter[str]()
    for path in PACKAGE.rglob("*.py"):
        folder = path.relative_to(PACKAGE).parts[0]
        found["ground" if folder.endswith(".py") else folder] += code_lines(path.read_text())
    return found


def budgets() -> dict[str, int]:
    rows = (line.split() for line in BUDGET.read_text().splitlines() if not line.startswith("#"))
    return {room: int(lines) for room, lines in rows}


def test_no_room_is_above_its_budget() -> None:
    budget = budgets()
    above = {room: lines for room, lines in lines_of_rooms().items() if lines > budget.get(room, 0)}
    assert not above, "raise the budget in the commit that needs it, with its reason (.ci/line-budget)"


def test_every_budget_is_a_rooms() -> None:
    assert budgets().keys() == lines_of_rooms().keys()


if __name__ == "__main__":
    rooms = "".join(f"{room} {lines}\n" for room, lines in sorted(lines_of_rooms().items()))
    BUDGET.write_text(f"# Code lines of each room at most, without comments, docstrings and blanks.\n{rooms}")
