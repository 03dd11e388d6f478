"""The names under which rows of a page stand, so that links to them last: `report.html#c12`.

Floor: report.  The page's script makes links of them, of what a text names (`#12`, `%dot.2`, `mlp.py:8`), too.
"""

from __future__ import annotations


def collective_place(number: int) -> str:
    """Of the collective with that number."""
    return f"c{number}"


def remedy_place(number: int) -> str:
    """Of what would remove that collective."""
    return f"m{number}"


def value_place(name: str) -> str:
    """Of an op."""
    return f"v-{name}"


def line_place(location: str) -> str:
    """Of a source line."""
    return f"l-{location}"


def copies_place(name: str) -> str:
    """Of a replicated value."""
    return f"r-{name}"


def group_place(name: str) -> str:
    """Of a group of ops that a roofline has."""
    return f"g-{name}"


def function_place(name: str) -> str:
    """Of a function of the source."""
    return f"f-{name}"


def picture_place(name: str) -> str:
    """Of an op as it is drawn."""
    return f"p-{name}"
