"""The names of one function's values: plain variables, or entries of a record (`layer_3["tanh"]`, `inputs["x"]`).

Floor: executor.
"""

from __future__ import annotations

from collections.abc import Iterable

from hlosharding.executor.flow import Constant, Leaf, Slot, Tree, Var
from hlosharding.executor.text import GLOBAL_NAMES, Namer, identifier
from hlosharding.ir import ElementReaders

MANY = 6
"""More results than this come as a record."""


def wish(var: Var, readers: ElementReaders) -> str:
    """The name a value would like: a parameter's path, its instruction's name, or that of the element taken from it."""
    inst = var.inst
    if inst.opcode == "parameter" and inst.computation.is_entry and inst.op_name and not var.path:
        return identifier(inst.op_name)
    if len(var.path) == 1:
        taker = next(iter(readers.of(inst, var.path[0])), None)
        if taker is not None and not taker.name.startswith("get-tuple-element"):
            return identifier(taker.name)
    return identifier("_".join([inst.name, *map(str, var.path)]))


class Scope:
    """Names of values; a value's root is the variable that holds it (itself, or its record)."""

    def __init__(self, taken: Iterable[str], readers: ElementReaders) -> None:
        self._readers = readers
        self.namer = Namer(GLOBAL_NAMES | set(taken))
        self._texts: dict[Leaf, str] = {}
        self._roots: dict[Leaf, str] = {}

    def text(self, tree: Tree) -> str:
        """An operand as an expression."""
        if isinstance(tree, Constant):
            return tree.text
        if isinstance(tree, tuple):
            inner = ", ".join(self.text(part) for part in tree)
            return f"({inner},)" if len(tree) == 1 else f"({inner})"
        return self._texts[tree]

    def root(self, leaf: Leaf) -> str:
        """The variable that holds a value."""
        return self._roots[leaf]

    def bind(self, tree: Tree) -> str:
        """New variables for the values of a tree, as the target of an assignment."""
        if isinstance(tree, tuple):
            inner = ", ".join(self.bind(part) for part in tree)
            return f"({inner},)" if len(tree) == 1 else f"({inner})"
        assert not isinstance(tree, Constant)
        name = self.namer.fresh(wish(tree.var if isinstance(tree, Slot) else tree, self._readers))
        self._texts[tree] = self._roots[tree] = name
        return name

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
