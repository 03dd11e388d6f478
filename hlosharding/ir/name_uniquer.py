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
        self._unread = tuple(taken)
        """Names taken from the start: an edit that makes nothing new never reads them."""

    def fresh(self, wanted: str) -> str:
        """`wanted` if it is free, else its root with the smallest number not yet given out."""
        for name in self._unread:
            self._register(*_parts(name)[:2])
        self._unread = ()
        root, number, numbered = _parts(wanted)
        number = self._register(root, number)
        if number == 0:
            return f"{root}.0" if numbered else root
        return f"{root}.{number}"

    def _register(self, root: str, number: int) -> int:
        used = self._used.get(root)
        if used is None:
            used = self._used[root] = set()
        if number not in used:
            used.add(number)
            return number
        candidate = self._next.get(root, 0)
        while candidate in used:
            candidate += 1
        used.add(candidate)
        self._next[root] = candidate + 1
        return candidate


def _parts(name: str) -> tuple[str, int, bool]:
    """Root, number, and whether the name ends in one."""
    root, _, suffix = name.rpartition(".")
    if root and suffix.isdigit() and suffix.isascii():
        return root, int(suffix), True
    return name, 0, False
