"""An op as a nest of loops: the mesh dialect's ShardingInterface, an iterator kind per loop, an affine map per tensor.

Floor: rules.  A loop becomes the factor of its number, so that an op's sharding option, a list of axes per loop, is a
list of axes per factor.  Maps of results are projected permutations; operands may sum loops with coefficients.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

from hlosharding.errors import RuleError
from hlosharding.ir import Instruction
from hlosharding.rules.registration import register_rule
from hlosharding.rules.signature import Debt, Dims, Factor, Halo, Nothing, Reduce, Signature, Whole, check_signature

Term: TypeAlias = tuple[int, int]
"""(coefficient, loop)."""
Sum: TypeAlias = tuple[Term, ...]
"""The index expression of one dim, largest coefficient first; () is the constant 0."""

_KINDS = {"sum": "add", "max": "maximum", "min": "minimum", "prod": "multiply", "product": "multiply"} | {
    kind: kind for kind in ("and", "or", "xor")
}
_MAP = re.compile(r"\s*\((?P<loops>[^()]*)\)\s*->\s*\((?P<dims>[^()]*)\)\s*")
_TERM = re.compile(r"(?:(?P<before>\d{1,9})\s*\*\s*)?(?P<loop>[A-Za-z]\w*)(?:\s*\*\s*(?P<after>\d{1,9}))?")


def register_interface(
    target: str, iterator_kinds: Sequence[str], indexing_maps: Sequence[str], *, num_results: int = 1, **sizes: int
) -> None:
    """Declare a custom call as loops: a kind per loop, an indexing map per operand and then per result.

    Kinds: `parallel`; `reduction_` with sum, max, min, prod, and, or, xor; `invalid`, a loop that cannot be split.
    `sizes` gives the extent of loops that no dim has for itself.  Raises RuleError.

    >>> maps = ["(i, j, k) -> (i, k)", "(i, j, k) -> (k, j)", "(i, j, k) -> (i, j)"]
    >>> register_interface("looped_matmul", ["parallel", "parallel", "reduction_sum"], maps)
    """
    register_rule(target, rule_of_maps(indexing_maps, iterator_kinds, num_results=num_results, **sizes).bind)


def rule_of_maps(maps: Sequence[str], iterator_kinds: Sequence[str], *, num_results: int = 1, **sizes: int) -> LoopRule:
    """Read kinds and maps; see `register_interface`.

    >>> maps = ["(d0, d1, d2) -> (d0, d2)", "(d0, d1, d2) -> (d2, d1)", "(d0, d1, d2) -> (d0, d1)"]
    >>> rule_of_maps(maps, ["parallel", "parallel", "reduction_sum"]).owes["d2"]
    Reduce(kind='add', once=())
    """
    if len(maps) < num_results or not maps:
        raise RuleError(f"{len(maps)} indexing maps for {num_results} results", remedy="one per operand and result")
    read = [_read_map(text) for text in maps]
    loops = read[0][0]
    for text, (found, _) in zip(maps, read, strict=True):
        if found != loops:
            raise RuleError(f"map {text!r} is not over the loops ({', '.join(loops)}) of the first map")
    if len(loops) != len(iterator_kinds):
        raise RuleError(f"{len(iterator_kinds)} iterator kinds for {len(loops)} loops", remedy="give one per loop")
    unknown = sorted(set(sizes) - set(loops))
    if unknown:
        raise RuleError(f"a size for {unknown[0]!r}, which is no loop", remedy=f"the loops are {', '.join(loops)}")
    owes = {loop: _debt(kind) for loop, kind in zip(loops, iterator_kinds, strict=True)}
    cut = len(read) - num_results
    rule = LoopRule(loops, owes, tuple(d for _, d in read[:cut]), tuple(d for _, d in read[cut:]), sizes)
    for text, dims in zip(maps[cut:], rule.results, strict=True):
        rule.check_result(text, dims)
    return rule


def _debt(kind: str) -> Debt:
    if kind in ("parallel", "invalid"):
        return Nothing() if kind == "parallel" else Whole()
    family, _, reducer = kind.partition("_")
    if family != "reduction" or reducer not in _KINDS:
        remedy = f"parallel, invalid, or reduction_ with {', '.join(_KINDS)}"
        raise RuleError(f"no iterator kind {kind!r}", remedy=remedy)
    return Reduce(_KINDS[reducer])


def _read_map(text: str) -> tuple[tuple[str, ...], tuple[Sum, ...]]:
    match = _MAP.fullmatch(text)
    if match is None:
        raise RuleError(f"no indexing map: {text!r}", remedy="write it as (d0, d1) -> (d0, 2 * d1)")
    loops = _parts(match["loops"])
    return loops, tuple(_read_sum(text, dim, loops) for dim in _parts(match["dims"]))


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",")) if text.strip() else ()


def _read_sum(text: str, dim: str, loops: tuple[str, ...]) -> Sum:
    if dim == "0":
        return ()
    terms: list[Term] = []
    for part in dim.split("+"):
        match = _TERM.fullmatch(part.strip())
        if match is None or match["loop"] not in loops:
            raise RuleError(f"map {text!r}: {part.strip()!r} is no c * loop", remedy=f"loops: {', '.join(loops)}")
        terms.append((int(match["before"] or 1) * int(match["after"] or 1), loops.index(match["loop"])))
    if len({loop for _, loop in terms}) < len(terms) or any(c == 0 for c, _ in terms):
        raise RuleError(f"map {text!r}: {dim!r} repeats a loop or multiplies by 0")
    return tuple(sorted(terms, key=lambda term: -term[0]))


@dataclass(frozen=True)
class LoopRule:
    """Loops by name with what each owes, and the index expression of every dim of every tensor."""

    loops: tuple[str, ...]
    owes: Mapping[str, Debt]
    operands: tuple[tuple[Sum, ...], ...]
    results: tuple[tuple[Sum, ...], ...]
    sizes: Mapping[str, int]

    def check_result(self, text: str, dims: tuple[Sum, ...]) -> None:
        """A result's dims are single loops, each once, and none of them is reduced."""
        loops = [term[1] for terms in dims for term in terms]
        if any(len(terms) != 1 or terms[0][0] != 1 for terms in dims) or len(set(loops)) < len(loops):
            raise RuleError(f"result map {text!r} is no projected permutation", remedy="give each dim one loop, once")
        reduced = next((self.loops[n] for n in loops if isinstance(self.owes[self.loops[n]], Reduce)), None)
        if reduced is not None:
            raise RuleError(f"result map {text!r} has {reduced!r}, which is reduced", remedy="make it parallel")

    def bind(self, inst: Instruction) -> Signature:
        """The signature for one instruction, loop sizes taken from the shapes.  Raises RuleError."""
        sizes = self._solve(inst)
        factors = [Factor(name, sizes[n], self.owes[name]) for n, name in enumerate(self.loops)]
        self._close_open_ends(factors)
        operands = [
            tuple(_fit(terms, shape.dims[dim], factors) for dim, terms in enumerate(dims))
            for dims, shape in zip(self.operands, (o.shape for o in inst.operands), strict=True)
        ]
        results: list[Dims] = [tuple((terms[0][1],) for terms in dims) for dims in self.results]
        signature = Signature(tuple(factors), tuple(operands), tuple(results))
        check_signature(signature, inst)
        return signature

    def _solve(self, inst: Instruction) -> dict[int, int]:
        sides = (self.operands, [o.shape for o in inst.operands]), (self.results, list(inst.shape.leaves))
        sizes = {self.loops.index(name): size for name, size in self.sizes.items()}
        for word, (tensors, shapes) in zip(("operands", "results"), sides, strict=True):
            if [len(dims) for dims in tensors] != [shape.rank for shape in shapes]:
                ranks = [len(dims) for dims in tensors]
                raise self._error(f"{word} of ranks {ranks}, but the op's are {[s.rank for s in shapes]}", inst)
            for dims, shape in zip(tensors, shapes, strict=True):
                for dim, terms in enumerate(dims):
                    if len(terms) == 1 and terms[0][0] == 1:
                        sizes.setdefault(terms[0][1], shape.dims[dim])
        missing = [name for n, name in enumerate(self.loops) if n not in sizes]
        if missing:
            raise self._error(f"no dim gives the size of loop {missing[0]!r}: pass {missing[0]}=...", inst)
        return sizes

    def _close_open_ends(self, factors: list[Factor]) -> None:
        """As for rules in text: a parallel loop of one side only cannot be split without being told how."""
        at, out = ({loop for dims in side for t in dims for _, loop in t} for side in (self.operands, self.results))
        for number, factor in enumerate(factors):
            if factor.owes == Nothing() and not (number in at and number in out):
                factors[number] = replace(factor, owes=Whole())

    def _error(self, what: str, inst: Instruction) -> RuleError:
        return RuleError(f"loops ({', '.join(self.loops)}): {what}", where=f"{inst!r} {inst.location}".strip())


def _fit(terms: Sum, size: int, factors: list[Factor]) -> tuple[int, ...]:
    """The factors of an operand's dim: the loops as its digits, or one loop whose pieces need their neighbours'.

    With digits, `4 * i + j` for j < 4, a split of i is a split of the dim.  Where loops overlap, `i + j`, only the
    one that strides may be split: a piece of any other is no smaller op of the same kind, for its index starts late.
    """
    if not terms or (len(terms) == 1 and terms[0][0] == 1):
        return tuple(loop for _, loop in terms)
    rest = terms[-1][0]
    weights = [rest * prod(factors[loop].size for _, loop in terms[n + 1 :]) for n in range(len(terms))]
    if [c for c, _ in terms] == weights and weights[0] * factors[terms[0][1]].size == size:
        digits = tuple(loop for _, loop in terms)
        if rest == 1:
            return digits
        factors.append(Factor(f"rest{len(factors)}", rest, Whole()))
        return (*digits, len(factors) - 1)
    stride = next((loop for _, loop in terms if factors[loop].owes == Nothing()), terms[0][1])
    for _, loop in terms:
        owes = Halo(0) if loop == stride and factors[loop].owes == Nothing() else Whole()
        factors[loop] = replace(factors[loop], owes=owes)
    return (stride, *(loop for _, loop in terms if loop != stride))
