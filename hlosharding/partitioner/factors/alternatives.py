"""How else an op could be split, and why it is not: asked of one op at a time, by who wants to know.  And every way to
split one by the axes of a mesh, for who chooses for many ops at once, before anything is known of how values lie.

Floor: partitioner.  Looks at every split that a choice is made from, however much work it repeats, and prices those
that promise most; the choice itself is `factor_choice`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from hlosharding.ir import Instruction
from hlosharding.partitioner.choice import FactorChoice, Lowering, OpPlan
from hlosharding.partitioner.factors.choice_problem import ChoiceProblem, SplitQuestion
from hlosharding.partitioner.factors.factor_choice import promising_splits
from hlosharding.partitioner.factors.factor_roles import is_reduced, num_points, reduce_kind_of
from hlosharding.partitioner.factors.lowering_choice import problems_of
from hlosharding.partitioner.factors.split_prices import memory_bytes, priced_split
from hlosharding.partitioner.factors.splits import splits_of_mesh
from hlosharding.partitioner.iteration_space import as_compared
from hlosharding.partitioner.prices import Number, Prices
from hlosharding.partitioner.value import ValuePlace
from hlosharding.rules import Signature
from hlosharding.sharding import REPLICATED, HloSharding, TileAssignment

# Of 150 ops priced in seconds, the best of the five that promise most was dearer by more than a tenth than the best of
# all for five ops; the best of 48 for none.
_MOST_PRICED = 48
"""Of all splits those that promise most."""
# What differs by rounding alone is no better.
_EQUAL = 1 + 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitAlternative:
    """One way to split an op; figures are of one device and one execution."""

    factors: tuple[str, ...]
    """Names of the op's dims, each as often as it is an extent of its own: `m0`, `k0`, `n0` of a product."""
    space: HloSharding
    """The split: a dim for each factor."""
    comm_bytes: float
    """Received to bring operands, and the result, into place: mean over devices."""
    seconds: float
    """Predicted, of that and of the computation."""
    work: float
    """The part of the op that a device computes: 1/8 where 8 devices divide it."""
    memory_bytes: int
    """Tiles of operands and results that the op itself reads and writes."""
    price: float
    """What is compared: bytes and seconds weighed as the objective says."""
    excluded: str
    """Why it is not the one chosen; "" of that one."""


class SplitAlternatives(NamedTuple):
    """The split of an op, and others that are better in some figure."""

    chosen: SplitAlternative
    others: tuple[SplitAlternative, ...]
    runner_up: SplitAlternative | None
    """Of all that were priced for this answer the one of the least price, were the chosen one not there."""


@dataclass(slots=True)
class _InBytes(Prices):
    """The same plans, counted in bytes received."""

    def comparable(self, nbytes: Number, seconds: Number) -> Number:
        return nbytes

    def compute_seconds(self, points: Number, nbytes: Number, contracts: bool) -> Number:
        return 0 * points  # an array where points are one


@dataclass(slots=True)
class _InSeconds(Prices):
    """The same plans, counted in predicted seconds."""

    def comparable(self, nbytes: Number, seconds: Number) -> Number:
        return seconds

    def compute_seconds(self, points: Number, nbytes: Number, contracts: bool) -> Number:
        return self.flop_seconds(points, contracts) + nbytes / self.machine.memory_bandwidth


def alternatives_of(plan: OpPlan, *, most: int = 3) -> SplitAlternatives | None:
    """The split of an op; of those with fewer bytes, less time, or less memory, the `most` best.  None of an op that is
    not split by its dims.
    """
    if not isinstance(plan, Lowering):
        return None
    question, choice = plan.question, plan.choice
    pricing = _Pricing(question)
    problem = next(problem for problem in question.problems if problem.signature == choice.signature)
    chosen = pricing.priced(problem, choice.space, "")
    found = {_way(one): one for one in pricing.all_promising(chosen)}
    found.pop(_way(chosen), None)
    best: dict[_Way, SplitAlternative] = {}
    for figure in ("comm_bytes", "seconds", "memory_bytes"):
        ranked = sorted(found.values(), key=lambda one: (getattr(one, figure), one.price))
        better = [one for one in ranked if getattr(one, figure) * _EQUAL < getattr(chosen, figure)]
        best |= {_way(one): one for one in better[:most]}
    others = tuple(sorted(best.values(), key=lambda one: (one.comm_bytes, one.seconds)))
    return SplitAlternatives(chosen, others, min(found.values(), key=lambda one: one.price, default=None))


_Way = tuple[HloSharding, tuple[str, ...]]


def _way(one: SplitAlternative) -> _Way:
    """What tells it from others.  Two signatures of a convolution have spaces alike, of windows or of results: by these
    alone two splits would be one, and by the names of all dims what splits neither would be two."""
    tiles = one.space.data_dims if one.space.kind == "tiled" else ()
    return one.space, tuple(name for name, n in zip(one.factors, tiles, strict=False) if n > 1)


class _Pricing:
    """Prices splits of one op in each measure."""

    def __init__(self, question: SplitQuestion) -> None:
        self.question, self.prices = question, question.prices
        self.in_bytes = _InBytes(self.prices.machine, self.prices.objective)
        self.in_seconds = _InSeconds(self.prices.machine, self.prices.objective)

    def all_promising(self, chosen: SplitAlternative) -> Iterator[SplitAlternative]:
        """Those with the lowest bounds, whatever work they repeat."""
        problems, mesh = self.question.problems, self.question.mesh
        splits, most_work = promising_splits(problems, self.prices, mesh, most=_MOST_PRICED, may_repeat=True)
        for problem, space, work in splits:
            found = self.priced(problem, space, "")
            why = f"repeats work: {work:.3g} of the op on a device, where {most_work:.3g} is allowed"
            # Where time decides the one taken may itself repeat work.
            is_too_much = work > max(most_work, chosen.work)
            yield replace(found, excluded=why if is_too_much else self._why_not(found, chosen))

    def _why_not(self, found: SplitAlternative, chosen: SplitAlternative) -> str:
        # A split that moves nothing is mostly taken before others are looked at (`choose`): one may even be cheaper.
        if chosen.comm_bytes == 0 < found.comm_bytes:
            return "moves data, where the one taken moves none"
        if found.price >= chosen.price:
            return f"dearer by the objective {self.prices.objective!r}"
        if self.question.waits:
            return "moves operands, where the one taken leaves partial sums that others share"
        return "promised less than those that were priced"

    def priced(self, problem: ChoiceProblem, space: HloSharding, excluded: str) -> SplitAlternative:
        measures = self.prices, self.in_bytes, self.in_seconds
        by_objective, in_bytes, in_seconds = (_split(problem, space, prices) for prices in measures)
        num_tiles, whole = problem.num_tiles(space), (1,) * len(problem.signature.factors)
        return SplitAlternative(
            factors=tuple(factor.name for factor in problem.signature.factors),
            space=space,
            comm_bytes=in_bytes.communication,
            seconds=in_seconds.seconds,
            work=num_points(problem.signature, num_tiles) / (num_points(problem.signature, whole) or 1),
            memory_bytes=int(memory_bytes(problem, by_objective)),
            price=by_objective.seconds,
            excluded=excluded,
        )


def _split(problem: ChoiceProblem, space: HloSharding, prices: Prices) -> FactorChoice:
    choice = priced_split(problem, space, prices)
    assert choice is not None, "no limit, so nothing is above it"
    return choice


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
    # How operands lie says nothing here: of a problem only its possible splits are asked.
    places = [ValuePlace(operand.shape, REPLICATED) for operand in inst.operands]
    problems = problems_of(inst, signature, places, (None,) * len(inst.shape.leaves))
    # What two signatures of the op have in common is one split.
    return list(dict.fromkeys(split for problem in problems for split in _splits(problem, mesh)))


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
        yield _op_split(problem, found.space(row), part)


def _op_split(problem: ChoiceProblem, space: HloSharding, work: float) -> OpSplit:
    signature = problem.signature
    deferred = tuple(f for f, n in enumerate(problem.num_tiles(space)) if n > 1 and is_reduced(signature, f))
    kind = next((reduce_kind_of(signature, f) for f in deferred), None)
    operands = tuple(as_compared(problem.operand_sharding(operand, space)) for operand in problem.operands)
    results = tuple(as_compared(problem.result_sharding(result, space, deferred)) for result in problem.results)
    return OpSplit(space, operands, results, kind, work)
