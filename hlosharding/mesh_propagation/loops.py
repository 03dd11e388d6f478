"""An op's factors as the mesh dialect's loops: their kinds, their maps, and what a split of them makes of each tensor.

Floor: mesh_propagation.  A `Reduce` factor is a reduction loop, a `Whole` one (or one that does not spread) is invalid,
all others are parallel; a dim of several factors follows its major one.
"""

from __future__ import annotations

from collections.abc import Iterator

from hlosharding.ir import Instruction
from hlosharding.mesh_propagation.loop_program import LoopOp
from hlosharding.notations import AxisSharding
from hlosharding.rules import Dims, Factor, Halo, Reduce, Signature, Whole, signature_of
from hlosharding.sharding import Axes

_PARTIAL = {"add": "sum", "maximum": "max", "minimum": "min", "multiply": "product", "and": "and", "or": "or"} | {
    "xor": "xor"
}
Option = tuple[Axes, ...]
"""The axes that split each loop of an op; as long as the op has loops."""


def iterator_kind(factor: Factor) -> str:
    """parallel, invalid, or reduction_ with the kind of the partial value.

    >>> iterator_kind(Factor("k", 8, Reduce("add"))), iterator_kind(Factor("s", 8, Whole()))
    ('reduction_sum', 'invalid')
    """
    if isinstance(factor.owes, Reduce):
        return f"reduction_{partial_kind(factor)}"
    return "parallel" if factor.spreads and not isinstance(factor.owes, Whole) else "invalid"


def partial_kind(factor: Factor) -> str | None:
    """How the pieces of the result are combined when this factor is split; None if they are not."""
    return _PARTIAL.get(factor.owes.kind, "generic") if isinstance(factor.owes, Reduce) else None


def describe_loops(inst: Instruction) -> str:
    """Loop types and indexing maps, as the mesh dialect prints them; "no loops" for an op without a signature.

    >>> from hlosharding.ir import Builder, Shape
    >>> main = Builder("m").computation("main")
    >>> x = main.parameter(0, Shape.parse("f32[8,4]"))
    >>> print(describe_loops(main.add("transpose", Shape.parse("f32[4,8]"), (x,), dimensions=(1, 0))))
    loop types: [parallel parallel]
    indexing maps:
    (d0, d1) -> (d1, d0)
    (d0, d1) -> (d0, d1)
    """
    signature = signature_of(inst)
    if not isinstance(signature, Signature):
        return "no loops"
    kinds = " ".join(map(iterator_kind, signature.factors))
    maps = [_map(signature, dims) for dims in (*signature.operands, *signature.results)]
    return "\n".join([f"loop types: [{kinds}]", "indexing maps:", *maps])


def _map(signature: Signature, dims: Dims) -> str:
    loops = ", ".join(f"d{n}" for n in range(len(signature.factors)))
    return f"({loops}) -> ({', '.join(_sum(signature, factors) for factors in dims)})"


def _sum(signature: Signature, factors: tuple[int, ...]) -> str:
    terms: list[str] = []
    weight = 1
    overlapping = any(isinstance(signature.factors[n].owes, Halo) for n in factors) and len(factors) > 1
    for n in reversed(factors):
        # Of overlapping loops the rule knows which one strides, not how far.
        times = "stride" if overlapping else weight
        terms.append(f"d{n}" if weight == 1 else f"{times} * d{n}")
        weight *= signature.factors[n].size
    return " + ".join(reversed(terms)) or "0"


def major(signature: Signature, factors: tuple[int, ...]) -> int | None:
    """The factor whose split is a split of the dim: the first that has more than one element."""
    return next((n for n in factors if signature.factors[n].size != 1), factors[0] if factors else None)


def minors(signature: Signature, factors: tuple[int, ...]) -> tuple[int, ...]:
    """The other factors of a dim that have more than one element."""
    first = major(signature, factors)
    return tuple(n for n in factors if n != first and signature.factors[n].size != 1)


def implied(op: LoopOp, option: Option, dims: Dims, *, result: bool) -> AxisSharding:
    """What a tensor of the op looks like under an option; a result is partial along the split reduction loops."""
    signature = op.signature
    split: list[Axes] = []
    for factors in dims:
        first = major(signature, factors)
        split.append(() if first is None else option[first])
    partial: Axes = ()
    kind = "sum"
    for n, factor in partial_loops(signature) if result else ():
        if option[n]:
            partial, kind = (*partial, *option[n]), partial_kind(factor) or kind
    return AxisSharding(tuple(split), partial, kind)


def partial_loops(signature: Signature) -> Iterator[tuple[int, Factor]]:
    """The reduction loops."""
    return ((n, factor) for n, factor in enumerate(signature.factors) if isinstance(factor.owes, Reduce))
