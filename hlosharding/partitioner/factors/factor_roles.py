"""What factors of a signature mean for a split: may it be made, must something be reduced, does it save work?

Floor: partitioner.  Reads signatures alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hlosharding.rules import Debt, Dims, Halo, Reduce, Signature, Whole


def splittable(signature: Signature, *, halo: bool, indexed: bool, any_reducer: bool) -> frozenset[int]:
    """Factors that may be split, given what the op's lowering can do beyond computing the same op on tiles."""

    def may(owes: Debt) -> bool:
        match owes:
            case Whole(indexed=by_index):
                return by_index and indexed
            case Halo():
                return halo
            case Reduce(kind=kind):
                return kind != "other" or any_reducer
            case _:
                return True

    kinds = {f.owes.kind for f in signature.factors if isinstance(f.owes, Reduce)}
    if len(kinds) > 1:  # partial results have one kind
        return frozenset(i for i, f in enumerate(signature.factors) if may(f.owes) and not isinstance(f.owes, Reduce))
    return frozenset(i for i, f in enumerate(signature.factors) if may(f.owes))


def is_reduced(signature: Signature, factor: int) -> bool:
    """Are the devices' results along a split of the factor partial results?"""
    return isinstance(signature.factors[factor].owes, Reduce) or is_looked_up(signature, factor)


def is_looked_up(signature: Signature, factor: int) -> bool:
    """Are rows along the factor only looked up?  A split of it saves no work: every device looks all of them up."""
    return not divides_work(signature, factor) and not signature.result_dims(factor)


def divides_work(signature: Signature, factor: int) -> bool:
    """Has a device less to do where the factor is split?  Not of rows that indices name: each looks for all of them."""
    owes = signature.factors[factor].owes
    return not (isinstance(owes, Whole) and owes.indexed)


def reduce_kind_of(signature: Signature, factor: int) -> str:
    """By what partial results along a factor that `is_reduced` are combined: of rows looked up all but one are 0."""
    owes = signature.factors[factor].owes
    return owes.kind if isinstance(owes, Reduce) else "add"


def reduces(signature: Signature) -> bool:
    """Has the op a factor that is reduced?"""
    return any(isinstance(f.owes, Reduce) for f in signature.factors)


def contracts(signature: Signature) -> bool:
    """Is there a factor that two operands carry and no result?"""
    return any(
        isinstance(f.owes, Reduce) and len(signature.operand_dims(n)) > 1 for n, f in enumerate(signature.factors)
    )


def num_carriers(signature: Signature, factor: int) -> int:
    """How many operands and results have the factor."""
    return sum(any(factor in parts for parts in dims) for dims in (*signature.operands, *signature.results))


def num_points(signature: Signature, num_tiles: Sequence[int]) -> int:
    """Points of the iteration space that one device computes, its factors split so often."""
    return math.prod(
        -(-factor.size // tiles)
        for number, (factor, tiles) in enumerate(zip(signature.factors, num_tiles, strict=True))
        if divides_work(signature, number)
    )


def major_dims(dims: Dims, signature: Signature) -> Dims:
    """Of a dim made of several factors the major one, which alone can be split; parts of size 1 do not count."""
    if all(len(factors) <= 1 for factors in dims):
        return dims
    real = (tuple(f for f in factors if signature.factors[f].size > 1) or factors for factors in dims)
    return tuple(factors[:1] for factors in real)


def cuts_through_dim(signature: Signature, factor: int, num_tiles: int) -> bool:
    """Would the split cut through a dim made of several factors: along a minor one, or unevenly along the major one?"""
    is_uneven = signature.factors[factor].size % num_tiles != 0
    return any(
        is_uneven or major_dims((parts,), signature) != ((factor,),)
        for dims in (*signature.operands, *signature.results)
        for parts in dims
        if len(parts) > 1 and factor in parts
    )
