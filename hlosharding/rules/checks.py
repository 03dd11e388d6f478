"""Does a signature fit the shapes of its instruction?  Every rule is held to this; users' rules at each use.

Floor: rules.
"""

from __future__ import annotations

from math import prod

from hlosharding.errors import RuleError
from hlosharding.ir import Instruction, Shape
from hlosharding.rules.signature import Dims, Factor, Halo, Signature, Whole


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
