"""The names under which rows of a page stand, so that links to them last: `report.html#c12`.

Floor: report.  The page's script makes links of them, of what a text names (`#12`, `%dot.2`, `mlp.py:8`), too.
"""

from __future__ import annotations

from hlosharding.printable import printable

_LONGEST = 200
"""Characters of a stranger's name."""


def spelled(name: str) -> str:
    r"""As much of a name as stands in an address, with nothing that cannot be printed.

    >>> spelled("a\tb"), len(spelled("x" * 10_000))
    ('a\\tb', 200)
    """
    return printable(name[:_LONGEST])


def collective_place(number: int) -> str:
    """Of the collective with that number."""
    return f"c{number}"


def remedy_place(number: int) -> str:
    """Of what would remove that collective."""
    return f"m{number}"


def value_place(name: str) -> str:
    """Of an op."""
    return f"v-{spelled(name)}"


def line_place(location: str) -> str:
    """Of a source line."""
    return f"l-{spelled(location)}"


def copies_place(name: str) -> str:
    """Of a replicated value."""
    return f"r-{spelled(name)}"


def group_place(name: str) -> str:
    """Of a group of ops that a roofline has."""
    return f"g-{spelled(name)}"


def function_place(name: str) -> str:
    """Of a function of the source."""
    return f"f-{spelled(name)}"


def picture_place(name: str) -> str:
    """Of an op as it is drawn."""
    return f"p-{spelled(name)}"
