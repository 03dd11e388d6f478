"""The names of one function's values: plain variables, or entries of a record (`layer_3["tanh"]`, `inputs["x"]`).

Floor: executor.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from hlosharding.executor.flow import Formal, Inline, Leaf, Tree, Var
from hlosharding.executor.text import GLOBAL_NAMES, Namer, tuple_of
from hlosharding.executor.wishes import Wishes

MANY = 6
"""More results than this come as a record of names: at 3 programs are 1.004 times as long, at 12 0.994 times."""
_SPARSE = 4
"""One element in so many, and it is clearer to take them one by one.  Half changes no program, double two."""


class Scope:
    """Names of values; a value's root is the variable that holds it (itself, or its record)."""

    def __init__(self, taken: Iterable[str], wishes: Wishes) -> None:
        self._wishes = wishes
        self.namer = Namer(GLOBAL_NAMES | set(taken))
        self._texts: dict[Leaf, str] = {}
        self._roots: dict[Leaf, str] = {}

    def text(self, tree: Tree) -> str:
        """An operand as an expression."""
        if isinstance(tree, Inline):
            return tree.text
        if isinstance(tree, tuple):
            return tuple_of([self.text(part) for part in tree])
        return self._texts[tree]

    def root(self, leaf: Leaf) -> str:
        """The variable that holds a value."""
        return self._roots[leaf]

    def bind(self, tree: Tree, used: Container[Leaf] | None = None) -> str:
        """New variables for the values of a tree, as the target of an assignment; `_` for those that nobody uses."""
        if isinstance(tree, tuple):
            return tuple_of(["_" if _is_unused(part, used) else self.bind(part, used) for part in tree])
        assert not isinstance(tree, Inline)
        name = self.namer.fresh(self._wishes.of(tree.var if isinstance(tree, Formal) else tree))
        self._texts[tree] = self._roots[tree] = name
        return name

    def unpack(self, tree: tuple[Tree, ...], whole: str, used: Container[Leaf]) -> list[str]:
        """Lines that take out of a tuple what is used."""
        wanted = [(n, part) for n, part in enumerate(tree) if not _is_unused(part, used)]
        if len(wanted) * _SPARSE >= len(tree):
            return [f"{self.bind(tree, used)} = {whole}"]
        return [f"{self.bind(part, used)} = {whole}[{n}]" for n, part in wanted]

    def bind_entry(self, leaf: Leaf, record: str, key: str) -> None:
        """A value that is an entry of a record."""
        self._texts[leaf], self._roots[leaf] = f'{record}["{key}"]', record

    def write_in_place(self, leaf: Leaf, text: str) -> None:
        """A value without a name: its expression stands where it is used."""
        self._texts[leaf] = text

    def move(self, roots: Iterable[str], record: str) -> None:
        """Variables that have become entries of a record, with all that they hold."""
        moved = set(roots)
        for leaf, root in self._roots.items():
            if root in moved:
                self._texts[leaf] = f'{record}["{root}"]{self._texts[leaf][len(root) :]}'
                self._roots[leaf] = record


def _is_unused(part: Tree, used: Container[Leaf] | None) -> bool:
    return used is not None and isinstance(part, (Var, Formal)) and part not in used
