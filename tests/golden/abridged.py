"""Output of which a page shows some lines: each is printed, in order, but for figures that are the machine's own."""

from __future__ import annotations

import re

_FIGURE = re.compile(r"\d[\d,.]*(e[+-]\d+)?")
_ROUNDING = (re.compile(r"\b(?:\d\.\de-\d\d|0\.0e\+00)\b"), re.compile(r"(?<=\b\d\.\d{4})\d\d\b"))
"""How far two sums in another order are apart, and the digits of a loss that show it."""


def brought_up_to_date(shown: str, printed: str) -> str:
    """The lines that a page shows, each with the figures of the line that is printed now; one that is not there stays.

    >>> brought_up_to_date("...\\n2: 3 us", "title\\n 1: 4 us \\n 2: 4 us \\n")
    '...\\n2: 4 us'
    """
    lines, rest = list[str](), [line.strip() for line in printed.splitlines()]
    for line in shown.splitlines():
        likely = [i for i, other in enumerate(rest) if line.strip() and _words(other) == _words(line)]
        if not likely:
            lines.append(line)
            continue
        at = max(likely, key=lambda i: len({*rest[i].split()} & {*line.split()}))
        lines.append(line[: len(line) - len(line.lstrip())] + rest[at])
        rest = rest[at + 1 :]
    return "\n".join(lines)


def missing_lines(shown: str, printed: str) -> list[str]:
    """The shown lines that are not printed, or not behind those before them."""
    rest, missing = iter([_exact(line) for line in printed.splitlines()]), list[str]()
    for line in filter(None, map(_exact, shown.splitlines())):
        if line != "..." and line not in rest:
            missing.append(line)
    return missing


def _exact(line: str) -> str:
    for figure in _ROUNDING:
        line = figure.sub("#", line)
    return line.strip()


def _words(line: str) -> list[str]:
    return _FIGURE.sub("0", line).split()
