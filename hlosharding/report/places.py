"""The names under which rows of a page stand, so that links to them last: `report.html#c12`.

Floor: report.  The page's script makes links of them, of what a text names (`#12`, `%dot.2`, `mlp.py:8`), too.
"""

from __future__ import annotations

from collections.abc import Callable

from hlosharding.printable import printable

_LONGEST = 200
"""Characters of a stranger's name."""


def spelled(name: str) -> str:
    r"""As much of a name as stands in an address, with nothing that cannot be printed.

    >>> spelled("a\tb"), len(spelled("x" * 10_000))
    ('a\\tb', 200)
    """
    return printable(name[:_LONGEST])


def _places(letter: str) -> Callable[[str], str]:
    return lambda name: f"{letter}-{spelled(name)}"


collective_place, remedy_place = "c{}".format, "m{}".format
"""Of the collective with that number, and of what would remove it."""
value_place = _places("v")
"""Of an op."""
line_place = _places("l")
"""Of a source line."""
copies_place = _places("r")
"""Of a replicated value."""
group_place = _places("g")
"""Of a group of ops that a roofline has."""
function_place = _places("f")
"""Of a function of the source."""
picture_place = _places("p")
"""Of an op as it is drawn."""
