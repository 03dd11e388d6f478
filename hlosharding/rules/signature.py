"""How an op's dims relate: the one statement that propagation, partitioning, cost and reports read.

Floor: rules.  Knows shapes and names of one instruction; nothing of devices, levels, neighbours or prices.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import TypeAlias

from hlosharding.errors import RuleError
from hlosharding.ir import Instruction, Shape


@dataclass(frozen=True, slots=True)
class Nothing:
    """Each device computes its piece of the result from its pieces of the operands."""


@dataclass(frozen=True, slots=True)
class Reduce:
    """The pieces are partial results, combined by `kind`."""

    kind: str
    """add, multiply, maximum, minimum, and, or, xor; `other`: by the op's own reducer, `inst.called[-1]`."""
    once: tuple[int, ...] = ()
    """Operands without the factor that must enter one piece only (an initial value, the array scattered into); the
    other pieces get the identity of `kind`."""


@dataclass(frozen=True, slots=True)
class Halo:
    """A piece of the result needs elements of neighbouring pieces, as `window_of(inst, window)` says."""

    window: int
    """Index into the op's window, padding or slice dims (for reverse: the dim)."""


@dataclass(frozen=True, slots=True)
class Whole:
    """Dims with this factor must be whole to be computed, though a split may spread along them."""

    indexed: bool = False
    """The op addresses this dim by index values, one row or one block each.  Instead of making it whole, a device may
    shift the indices to its own rows and drop those outside; a result without the factor is then the sum of the
    pieces."""


Debt: TypeAlias = Nothing | Reduce | Halo | Whole
Dims: TypeAlias = tuple[tuple[int, ...], ...]
"""Per dim, the indices of its factors, major to minor; () is a dim of which nothing is declared: it must be whole."""


@dataclass(frozen=True, slots=True)
class Factor:
    """One independent extent of an op: a dim, or a part of one, that operands and results share."""

    name: str
    size: int
    """For `Halo` and `Whole`, whose dims may differ in size: the result's, where it has the factor."""
    owes: Debt = Nothing()
    spreads: bool = True
    """May propagation carry a split along this factor?  Independent of `owes`: a sort dim spreads its split, yet must
    be whole to be computed."""


@dataclass(frozen=True)
class Signature:
    """The factors of an op, and which of them each dim of each operand and each result leaf consists of.

    >>> factors = Factor("m", 8), Factor("k", 4, Reduce("add")), Factor("n", 2)
    >>> matmul = Signature(factors, (((0,), (1,)), ((1,), (2,))), (((0,), (2,)),))
    >>> str(matmul)
    'm k, k n -> m n'
    >>> matmul.pairs(0, None), matmul.pairs(0, 1)
    (((0, 0),), ((1, 0),))
    """

    factors: tuple[Factor, ...]
    operands: tuple[Dims, ...]
    results: tuple[Dims, ...]
    """One entry per leaf of the result shape."""

    def pairs(self, source: int, target: int | None = None, result: int = 0) -> tuple[tuple[int, int], ...]:
        """Dims of operand `source` and of operand `target` (None: of leaf `result`) that are the same factor."""
        other = self.results[result] if target is None else self.operands[target]
        place = {factors[0]: dim for dim, factors in enumerate(other) if len(factors) == 1}
        found = ((dim, place.get(f[0])) for dim, f in enumerate(self.operands[source]) if len(f) == 1)
        return tuple((dim, there) for dim, there in found if there is not None)

    def operand_dims(self, factor: int) -> tuple[tuple[int, int], ...]:
        """(operand, dim) of every place a factor has among the operands."""
        return _places(self.operands, factor)

    def result_dims(self, factor: int) -> tuple[tuple[int, int], ...]:
        """(leaf, dim) of every place a factor has among the results."""
        return _places(self.results, factor)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Asked for with every op that is partitioned: a signature is part of the key of what is decided of it."""
        return hash((self.factors, self.operands, self.results))

    @cached_property
    def index(self) -> dict[str, int]:
        """Factor name to index."""
        return {factor.name: i for i, factor in enumerate(self.factors)}

    def __str__(self) -> str:
        operands = ", ".join(self._dims(dims) for dims in self.operands)
        return f"{operands} -> {', '.join(self._dims(dims) for dims in self.results)}".strip()

    def _dims(self, dims: Dims) -> str:
        return " ".join(self._dim(factors) for factors in dims)

    def _dim(self, factors: tuple[int, ...]) -> str:
        names = " ".join(self.factors[f].name for f in factors)
        return names if len(factors) == 1 else f"({names})" if factors else "_"


def _places(tensors: tuple[Dims, ...], factor: int) -> tuple[tuple[int, int], ...]:
    return tuple((t, d) for t, dims in enumerate(tensors) for d, factors in enumerate(dims) if factor in factors)


@dataclass(frozen=True, slots=True)
class DataFlow:
    """The op moves whole values along: tuples, control flow, barriers.  Shardings pass leaf by leaf."""

    kind: str
    """tuple, get-tuple-element, call, while, conditional, parameter, pass (operand 0 to the result), order (tokens),
    manual (the edge of a manual region: shapes change from global to local or back)."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """Nothing is known of how the op's dims relate: it is computed whole."""

    reason: str


@dataclass
class SignatureMaker:
    """Collects factors for one instruction; a rule makes it, fills it and returns `build()`."""

    inst: Instruction
    _factors: list[Factor] = field(default_factory=list[Factor])

    def __post_init__(self) -> None:
        self._operands: list[list[tuple[int, ...]]] = [[()] * o.shape.rank for o in self.inst.operands]
        self._results: list[list[tuple[int, ...]]] = [[()] * leaf.rank for leaf in self.inst.shape.leaves]

    def factor(
        self,
        name: str,
        size: int,
        operands: Iterable[tuple[int, int]] = (),
        results: Iterable[tuple[int, int]] = (),
        *,
        owes: Debt = Nothing(),
        spreads: bool = True,
    ) -> None:
        """Enter a factor as the next minor part of the given (operand, dim) and (result leaf, dim) places."""
        number = len(self._factors)
        self._factors.append(Factor(name, size, owes, spreads))
        for tensors, places in ((self._operands, operands), (self._results, results)):
            for tensor, dim in places:
                tensors[tensor][dim] = (*tensors[tensor][dim], number)

    def build(self) -> Signature:
        """The signature; a name used twice is an error of the rule."""
        names = [f.name for f in self._factors]
        if len(set(names)) != len(names):
            raise RuleError(f"factor names {names} of {self.inst.opcode} are not distinct")
        return Signature(tuple(self._factors), tuple(map(tuple, self._operands)), tuple(map(tuple, self._results)))


def same_dims(
    inst: Instruction, *, whole: Iterable[int] = (), halo: Iterable[int] = (), spreads: bool = True
) -> Signature:
    """Every operand of the result's rank and every result leaf share each dim; `whole` and `halo` dims owe that."""
    make, whole, halo = SignatureMaker(inst), set(whole), set(halo)
    leaves = inst.shape.leaves
    rank = max((leaf.rank for leaf in leaves), default=0)
    tensors = [i for i, o in enumerate(inst.operands) if o.shape.rank == rank]
    results = [i for i, leaf in enumerate(leaves) if leaf.rank == rank]
    for dim in range(rank):
        owes = Whole() if dim in whole else Halo(dim) if dim in halo else Nothing()
        at, out = [(i, dim) for i in tensors], [(i, dim) for i in results]
        make.factor(f"d{dim}", leaves[results[0]].dims[dim], at, out, owes=owes, spreads=spreads)
    return make.build()


# ---- does a signature fit the shapes of its instruction?  Every rule is held to this; users' rules at each use


def check_signature(signature: Signature, inst: Instruction) -> None:
    """Raise RuleError naming the first tensor and dim where the signature and the shapes disagree."""
    sides = (
        ("operand", signature.operands, [o.shape for o in inst.operands]),
        ("result", signature.results, list(inst.shape.leaves)),
    )
    for side, tensors, shapes in sides:
        if len(tensors) != len(shapes):
            _fail(inst, signature, f"{len(tensors)} {side}s are declared, and there are {len(shapes)}")
        for number, (dims, shape) in enumerate(zip(tensors, shapes, strict=True)):
            problem = _problem(dims, shape, signature.factors)
            if problem is not None:
                _fail(inst, signature, f"{side} {number} ({shape}): {problem}")
    used = {f for t in (*signature.operands, *signature.results) for dim in t for f in dim}
    for number, factor in enumerate(signature.factors):
        if number not in used:
            _fail(inst, signature, f"factor {factor.name!r} is in no dim")


def _problem(dims: Dims, shape: Shape, factors: tuple[Factor, ...]) -> str | None:
    if len(dims) != shape.rank:
        return f"{len(dims)} dims are declared for rank {shape.rank}"
    seen: set[int] = set()
    for dim, numbers in enumerate(dims):
        if not set(numbers) <= set(range(len(factors))) or seen & set(numbers) or len(set(numbers)) < len(numbers):
            return f"dim {dim} has an unknown or repeated factor"
        seen |= set(numbers)
        elastic = any(isinstance(factors[f].owes, Halo | Whole) for f in numbers)
        size = prod(factors[f].size for f in numbers)
        if numbers and size != shape.dims[dim] and not elastic:
            names = " ".join(factors[f].name for f in numbers)
            return f"dim {dim} is {shape.dims[dim]}, and its factors {names} make {size}"
    return None


def _fail(inst: Instruction, signature: Signature, what: str) -> None:
    where = f"{inst!r} {inst.location}".strip()
    raise RuleError(f"signature {str(signature)!r} does not fit: {what}", where=where)
