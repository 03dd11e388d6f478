"""Every way to split an op by the axes of a mesh, with how operands must lie for it, and how results come out.

Floor: partitioner.  For who chooses for many ops at once, before anything is known of how values lie.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hlosharding.ir import Instruction
from hlosharding.partitioner.factors.choice_problem import ChoiceProblem
from hlosharding.partitioner.factors.factor_roles import is_reduced, num_points, reduce_kind_of
from hlosharding.partitioner.factors.lowering_choice import problems_of
from hlosharding.partitioner.factors.splits import splits_of_mesh
from hlosharding.partitioner.iteration_space import as_compared
from hlosharding.partitioner.value import ValuePlace
from hlosharding.rules import Signature
from hlosharding.sharding import REPLICATED, HloSharding, TileAssignment


class OpSplit(NamedTuple):
    """One way to split an op."""

    space: HloSharding
    """A dim for each factor of the signature."""
    operands: tuple[HloSharding, ...]
    results: tuple[HloSharding, ...]
    """Per leaf; with an unreduced subgroup where devices have partial results."""
    reduce_kind: str | None
    """By what these are combined; None where there are none."""
    work: float
    """The part of the op that a device computes."""


def every_split(inst: Instruction, signature: Signature, mesh: TileAssignment) -> list[OpSplit]:
    """The splits that cut all dims evenly; of windows (convolutions, pads) only those that do not cut through them.

    >>> import hlosharding as hs
    >>> from hlosharding.rules import signature_of
    >>> module = hs.load('''HloModule m
    ... ENTRY e {
    ...   x = f32[4,8] parameter(0)
    ...   y = f32[8,6] parameter(1)
    ...   ROOT z = f32[4,6] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    ... }''')
    >>> for split in every_split(module.entry.root, signature_of(module.entry.root), TileAssignment.from_iota((4,))):
    ...     print(*split.operands, "->", *split.results, split.reduce_kind)
    {replicated} {replicated} -> {replicated} None
    {devices=[4,1]<=[4]} {replicated} -> {devices=[4,1]<=[4]} None
    {devices=[1,4]<=[4]} {devices=[4,1]<=[4]} -> {devices=[1,1,4]<=[4] last_tile_dims={unreduced}} add
    """
    places = [ValuePlace(operand.shape, REPLICATED) for operand in inst.operands]
    problems = problems_of(inst, signature, places, (None,) * len(inst.shape.leaves))
    return [split for problem in problems for split in _splits(problem, mesh)]


def even_placements(dims: tuple[int, ...], mesh: TileAssignment) -> tuple[HloSharding, ...]:
    """Every way to put each axis on one dim of an array, or on none, that cuts it evenly; first on none.

    >>> [str(s) for s in even_placements((4, 3), TileAssignment.from_iota((2,)))]
    ['{replicated}', '{devices=[2,1]<=[2]}']
    """
    found = splits_of_mesh(mesh, len(dims), lambda dim, tiles: dims[dim] % tiles == 0)
    return tuple(map(found.space, range(len(found))))


def _splits(problem: ChoiceProblem, mesh: TileAssignment) -> Iterator[OpSplit]:
    factors, whole = problem.signature.factors, (1,) * len(problem.signature.factors)

    def may_be_split(factor: int, tiles: int) -> bool:
        is_even = problem.windows[factor] is None and factors[factor].size % tiles == 0
        return is_even and problem.is_possible(factor, tiles)

    found = splits_of_mesh(mesh, len(factors), may_be_split)
    points = num_points(problem.signature, whole) or 1
    for row in range(len(found)):
        part = num_points(problem.signature, problem.num_tiles(found.space(row))) / points
        yield _split(problem, found.space(row), part)


def _split(problem: ChoiceProblem, space: HloSharding, work: float) -> OpSplit:
    signature = problem.signature
    deferred = tuple(f for f, n in enumerate(problem.num_tiles(space)) if n > 1 and is_reduced(signature, f))
    kind = next((reduce_kind_of(signature, f) for f in deferred), None)
    operands = tuple(as_compared(problem.operand_sharding(operand, space)) for operand in problem.operands)
    results = tuple(as_compared(problem.result_sharding(result, space, deferred)) for result in problem.results)
    return OpSplit(space, operands, results, kind, work)
