"""The signature of a whole program, composed of those of its ops.

Floor: rules.  It follows each extent of an argument through the program.  Where a number of the program depends on a
size (a mean divides by one), it says what would be true if none did: who uses it tries (`twins.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_lowercase
from typing import TypeAlias

from hlosharding.ir import Computation, Instruction, Module, arguments, branches, callers, reducer_kind, while_parts
from hlosharding.rules.catalog import Relation, signature_of
from hlosharding.rules.signature import DataFlow, Debt, Dims, Factor, Halo, Nothing, Reduce, Signature, Whole

# ---- dims of a program that are one extent: joined where an op says so, cut where one is a multiple of another


@dataclass(eq=False, slots=True)
class Extent:
    """A dim of a program, or a part of one, until it is found to be another's, or to have parts itself."""

    size: int
    _same: Extent | None = field(default=None, repr=False)
    _parts: tuple[Extent, ...] = field(default=(), repr=False)

    @property
    def parts(self) -> tuple[Extent, ...]:
        """What it consists of now, major to minor; of size 1 nothing."""
        if self._same is not None:
            return self._same.parts
        if self._parts:
            return tuple(part for one in self._parts for part in one.parts)
        return () if self.size == 1 else (self,)

    def cut(self, major: int) -> None:
        """In two, of which the first has this size."""
        self._parts = Extent(major), Extent(self.size // major)

    def become(self, other: Extent) -> None:
        """From now on it is that one."""
        self._same = other


def parts_of(extents: Iterable[Extent]) -> tuple[Extent, ...]:
    """Those of a dim, or of several."""
    return tuple(part for extent in extents for part in extent.parts)


def join(first: Iterable[Extent], second: Iterable[Extent]) -> bool:
    """Make two lists that stand for one dim the same extents; False where they do not line up.

    >>> rows, halves = Extent(8), (Extent(2), Extent(4))
    >>> join([rows], halves), rows.parts == parts_of(halves)
    (True, True)
    >>> join([Extent(6)], [Extent(4)])
    False
    """
    left, right = list(first), list(second)
    while True:
        # Anew each time: an extent that was just cut or joined may stand further on in either list.
        left, right = list(parts_of(left)), list(parts_of(right))
        while left and right and left[0] is right[0]:
            del left[0], right[0]
        if not (left and right):
            return left == right
        small, large = sorted((left[0], right[0]), key=lambda extent: extent.size)
        if small.size == large.size:
            large.become(small)
        elif small.size and large.size % small.size == 0:
            large.cut(small.size)
        else:
            return False


_Tensor: TypeAlias = list[tuple[Extent, ...]]
"""The extents of each dim."""

_MOVES = frozenset("broadcast copy dynamic-slice gather reshape reverse slice transpose".split())
"""Whatever combines the pieces of their first operand combines those of the result."""
_LINEAR_IN_FIRST = frozenset("imag negate real".split())
_LINEAR_IF_NOT_ROUNDED = frozenset("convert divide".split())
"""In the first operand, of results that are no integers."""
_LINEAR_IN_EACH = frozenset("convolution dot multiply".split())
_OF_ALL = {
    "add": frozenset({"add", "concatenate", "subtract"}),
    "maximum": frozenset({"concatenate", "maximum"}),
    "minimum": frozenset({"concatenate", "minimum"}),
}
"""By what combines them: pieces of all operands give pieces of the result."""
_FLOWS = frozenset({"tuple", "get-tuple-element", "call", "while", "conditional", "parameter", "pass"})


def composed_signature(module: Module) -> Signature:
    """How the dims of a program's parameters and results relate, as if it were one op.

    >>> import jax, jax.numpy as jnp, hlosharding as hs
    >>> shapes = jax.ShapeDtypeStruct((8, 16), jnp.float32), jax.ShapeDtypeStruct((16, 4), jnp.float32)
    >>> found = composed_signature(hs.trace(lambda x, y: -(x @ y).T)(*shapes))
    >>> str(found), [type(factor.owes).__name__ for factor in found.factors]
    ('a b, b c -> c a', ['Nothing', 'Reduce', 'Nothing'])
    """
    return _Composition(module).signature()


class _Composition:
    """The extents of every value, which must be whole, and what is still to be combined along which."""

    def __init__(self, module: Module) -> None:
        self._entry, self._sites = module.entry, callers(module)
        self._relations = {op: signature_of(op) for computation in _run(module) for op in computation.instructions}
        self._tensors: dict[Instruction, list[_Tensor]] = {
            op: [[(Extent(size),) for size in leaf.dims] for leaf in op.shape.leaves] for op in self._relations
        }
        self._factors: dict[Instruction, tuple[Extent, ...]] = {}
        self._partial: dict[Instruction, list[dict[Extent, str]]]
        """Of each leaf: extents that it has no more, with what combines the pieces."""
        self._partial = {op: [{} for _ in op.shape.leaves] for op in self._relations}
        broken = [extent for op in self._relations for extent in self._join(op)]
        self._whole = set(parts_of(broken))
        self._whole |= {extent for leaves in self._tensors.values() for leaf in leaves for extent in _repeated(leaf)}
        # It ends: extents only become whole or partial, never the reverse, and none are added.
        while self._combine():
            pass

    def _join(self, op: Instruction) -> Iterator[Extent]:
        """Make those one that the op says are one; what must be whole then."""
        relation = self._relations[op]
        if isinstance(relation, Signature):
            yield from self._join_factors(op, relation)
        elif _is_flow(relation):
            for value, leaf, place in self._flows(op):
                yield from _joined(self._tensors[value][leaf], self._tensors[op][place])
        else:
            yield from (e for value in (*op.operands, op) for leaf in self._tensors[value] for dim in leaf for e in dim)

    def _join_factors(self, op: Instruction, signature: Signature) -> Iterator[Extent]:
        self._factors[op] = factors = tuple(Extent(factor.size) for factor in signature.factors)
        tensors = [leaf for value in (*op.operands, op) for leaf in self._tensors[value]]
        for dims, tensor in zip((*signature.operands, *signature.results), tensors, strict=True):
            yield from _joined(tensor, [tuple(factors[number] for number in numbers) for numbers in dims])
        for extent, factor in zip(factors, signature.factors, strict=True):
            if isinstance(factor.owes, Whole | Halo):
                yield extent

    def _flows(self, op: Instruction) -> Iterator[tuple[Instruction, int, int]]:
        """What comes out of an op as it went in: a value, its leaf, and the leaf of the result."""
        leaves = range(len(op.shape.leaves))
        if op.opcode == "tuple":
            for operand, first in zip(op.operands, op.shape.first_leaves[:-1], strict=True):
                yield from ((operand, leaf, first + leaf) for leaf in range(len(operand.shape.leaves)))
        elif op.opcode == "get-tuple-element":
            first = op.operands[0].shape.first_leaves[op.tuple_index]
            yield from ((op.operands[0], first + leaf, leaf) for leaf in leaves)
        else:
            yield from ((value, leaf, leaf) for value in self._given(op) for leaf in leaves)

    def _given(self, op: Instruction) -> Iterable[Instruction]:
        match op.opcode:
            case "parameter":
                return [value for site in self._sites.get(op.computation, ()) for value in arguments(site, op)]
            case "call":
                return (op.called[0].root,)
            case "while":
                return op.operands[0], while_parts(op).body.root
            case "conditional":
                return [branch.computation.root for branch in branches(op)]
            case _:
                return op.operands[:1]

    def _combine(self) -> bool:
        """Follow what is still to be combined one op further, everywhere; was there any?"""
        before = self._found
        for op, relation in self._relations.items():
            if isinstance(relation, Signature):
                self._combine_pieces(op, relation)
            elif _is_flow(relation):
                self._pass_on(op)
            else:
                self._whole.update(e for operand in op.operands for leaf in self._partial[operand] for e in leaf)
        return before != self._found

    @property
    def _found(self) -> tuple[int, int]:
        return len(self._whole), sum(len(leaf) for leaves in self._partial.values() for leaf in leaves)

    def _combine_pieces(self, op: Instruction, signature: Signature) -> None:
        made: dict[Extent, str] = {}
        for factor, extent in zip(signature.factors, self._factors[op], strict=True):
            if isinstance(factor.owes, Reduce):
                made |= dict.fromkeys(extent.parts, factor.owes.kind)
        held = {e for value in (*op.operands, op) for leaf in self._tensors[value] for e in _extents_of(leaf)}
        given = [leaf for operand in op.operands for leaf in self._partial[operand]]
        for extent in {extent: None for partial in given for extent in partial}:
            kinds = [partial.get(extent) for partial in given]
            kind = next(filter(None, kinds))
            if extent in held or not _is_linear(op, kind, kinds):
                self._whole.add(extent)
            made[extent] = kind
        for leaf, partial in zip(self._tensors[op], self._partial[op], strict=True):
            partial |= {extent: kind for extent, kind in made.items() if extent not in _extents_of(leaf)}

    def _pass_on(self, op: Instruction) -> None:
        flows = list(self._flows(op))
        for place, partial in enumerate(self._partial[op]):
            sources = [self._partial[value][leaf] for value, leaf, to in flows if to == place]
            for extent in {extent: None for source in sources for extent in source}:
                kinds = [source.get(extent) for source in sources]
                if len(set(kinds)) > 1 or extent in _extents_of(self._tensors[op][place]):
                    self._whole.add(extent)
                partial[extent] = next(filter(None, kinds))
        # By a piece of the predicate no device can tell which way to go.
        if op.opcode == "conditional":
            self._whole |= self._partial[op.operands[0]][0].keys()
        elif op.opcode == "while":
            self._whole |= self._partial[while_parts(op).condition.root][0].keys()

    def signature(self) -> Signature:
        """Of parameters and results."""
        operands = [leaf for parameter in self._entry.parameters for leaf in self._tensors[parameter]]
        results = self._tensors[self._entry.root]
        tensors = [*operands, *results]
        for leaf in tensors:  # a dim that cannot be said is whole, and so is all that is in it
            self._whole.update(e for dim in map(parts_of, leaf) if _repeated(leaf) & {*dim} for e in dim)
        said = (e for leaf in tensors for dim in map(parts_of, leaf) if not _repeated(leaf) & {*dim} for e in dim)
        numbers = {extent: number for number, extent in enumerate(dict.fromkeys(said))}
        factors = (Factor(_name(n), e.size, self._debt(e, operands, results)) for e, n in numbers.items())
        dims = [_said(leaf, numbers) for leaf in tensors]
        return Signature(tuple(factors), tuple(dims[: len(operands)]), tuple(dims[len(operands) :]))

    def _debt(self, extent: Extent, operands: Sequence[_Tensor], results: Sequence[_Tensor]) -> Debt:
        if extent in self._whole or extent.size == 0 or not any(extent in _extents_of(leaf) for leaf in operands):
            return Whole()
        partial = self._partial[self._entry.root]
        others = {
            part.get(extent) for leaf, part in zip(results, partial, strict=True) if extent not in _extents_of(leaf)
        }
        if len(others) == 1 and (kind := next(iter(others))) is not None:
            return Reduce(kind)
        in_results = any(extent in _extents_of(leaf) for leaf in results)
        return Nothing() if others <= {None} and in_results else Whole()


def _run(module: Module) -> list[Computation]:
    """The computations that run as the program does, without those that an op applies to elements."""
    found = [module.entry]
    # The list grows while it is walked, so that callees of callees are found, too.
    for computation in found:
        sites = [op for op in computation.instructions if op.called and isinstance(signature_of(op), DataFlow)]
        found += dict.fromkeys(callee for op in sites for callee in op.called if callee not in found)
    return found


def _is_flow(relation: Relation) -> bool:
    return isinstance(relation, DataFlow) and relation.kind in _FLOWS


def _joined(first: _Tensor, second: _Tensor) -> Iterator[Extent]:
    """Dim by dim; those of dims that do not line up."""
    for one, other in zip(first, second, strict=True):
        if not join(one, other):
            yield from (*one, *other)


def _extents_of(tensor: _Tensor) -> tuple[Extent, ...]:
    return parts_of(extent for dim in tensor for extent in dim)


def _repeated(tensor: _Tensor) -> set[Extent]:
    return {extent for extent, count in Counter(_extents_of(tensor)).items() if count > 1}


def _is_linear(op: Instruction, kind: str, kinds: Sequence[str | None]) -> bool:
    """Do pieces of the operands with a kind, combined by it, give pieces of the result that are combined alike?"""
    others = kinds[1:]
    if op.opcode in _MOVES:
        return not any(others)
    if op.opcode in _OF_ALL.get(kind, ()):
        return set(kinds) == {kind}
    if kind != "add":
        return False
    if op.opcode in _LINEAR_IF_NOT_ROUNDED:
        return (op.shape.is_floating or op.shape.is_complex) and not any(others)
    if op.opcode == "reduce":
        return reducer_kind(op.called[0]) == "add" and not any(others)
    # In one operand at a time: the product of two sums is not the sum of the products of their terms.
    return (op.opcode in _LINEAR_IN_FIRST and not any(others)) or (
        op.opcode in _LINEAR_IN_EACH and kinds.count(None) == 1
    )


def _said(tensor: _Tensor, numbers: Mapping[Extent, int]) -> Dims:
    repeated = _repeated(tensor)
    return tuple(() if repeated & {*dim} else tuple(numbers[extent] for extent in dim) for dim in map(parts_of, tensor))


def _name(number: int) -> str:
    return ascii_lowercase[number] if number < len(ascii_lowercase) else f"e{number}"
