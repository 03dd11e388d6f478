"""Fresh names, chosen as XLA chooses them, so that a prepared module can be read beside XLA's own dumps.

Floor: ir.  Strings only.
"""

from __future__ import annotations

from collections.abc import Iterable


class NameUniquer:
    """Names already given out, per root; follows XLA's NameUniquer and its SequentialIdGenerator.

    >>> names = NameUniquer(["add.1", "add.3"])
    >>> names.fresh("add.1"), names.fresh("add"), names.fresh("add.7"), names.fresh("tuple")
    ('add.0', 'add.2', 'add.7', 'tuple')
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._used: dict[str, set[int]] = {}
        self._next: dict[str, int] = {}
        for name in taken:
            self.fresh(name)

    def fresh(self, wanted: str) -> str:
        """`wanted` if it is free, else its root with the smallest number not yet given out."""
        root, separator, suffix = wanted.rpartition(".")
        numbered = bool(root and separator and suffix.isascii() and suffix.isdigit())
        root, number = (root, int(suffix)) if numbered else (wanted, 0)
        number = self._register(root, number)
        if number == 0:
            return f"{root}.0" if numbered else root
        return f"{root}.{number}"

    def _register(self, root: str, number: int) -> int:
        used = self._used.setdefault(root, set())
        if number not in used:
            used.add(number)
            return number
        candidate = self._next.get(root, 0)
        while candidate in used:
            candidate += 1
        used.add(candidate)
        self._next[root] = candidate + 1
        return candidate
