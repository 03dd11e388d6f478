"""An op's sharding option, a list of axes per loop, from what is said about its results and operands.

Floor: propagation.  The mesh dialect's getShardingOption: orders before hints; results first, whose empty lists count
too; then operands, for reduction loops and parallel loops that no result has settled; what is left is replicated.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from hlosharding.propagation.axes.axis_sharding import AxisSharding
from hlosharding.propagation.axes.cluster import Axes, Cluster
from hlosharding.propagation.axes.loops import Option, iterator_kind, major, minors, partial_kind, partial_loops
from hlosharding.propagation.axes.notes import Notes
from hlosharding.propagation.axes.offers import Conflict, Offer, operand_offer, result_offer
from hlosharding.propagation.axes.program import LoopOp
from hlosharding.rules import Dims, Halo

Loop: TypeAlias = int | None


@dataclass
class Inference:
    """The option of one op in the making."""

    op: LoopOp
    cluster: Cluster
    loops: dict[int, Axes] = field(default_factory=dict)
    owners: dict[int, Offer] = field(default_factory=dict)
    partial: tuple[AxisSharding, Offer] | None = None
    """The order for a result, beyond whose partial axes no reduction loop may be split."""
    conflicts: list[Conflict] = field(default_factory=list)
    """Orders refused."""
    yielded: list[Conflict] = field(default_factory=list)
    """Hints refused."""

    @property
    def option(self) -> Option:
        """Axes per loop; what is not settled is replicated."""
        return tuple(self.loops.get(n, ()) for n in range(len(self.op.signature.factors)))

    def take(self, sharding: AxisSharding, dims: Dims, offer: Offer, *, settles: bool) -> None:
        """Offer a tensor's axes to the loops of its dims; with `settles`, empty lists are offers too."""
        for dim, factors in enumerate(dims):
            axes = sharding.along(dim)
            loop = major(self.op.signature, factors)
            if loop is None:
                self._check(loop, dim, Offer(offer.by, axes, offer.required))
            elif axes or settles:
                self.offer(loop, Offer(offer.by, axes, offer.required))
            for minor in minors(self.op.signature, factors) if settles and axes else ():
                self.loops.setdefault(minor, ())

    def offer(self, loop: int, offer: Offer) -> None:
        """Split a loop by these axes, or note why not."""
        if self._check(loop, -1, offer):
            self.loops[loop] = offer.axes
            self.owners.setdefault(loop, offer)

    def _check(self, loop: Loop, dim: int, offer: Offer) -> bool:
        if loop is None:
            if offer.axes:
                why = f" ({self.op.opaque})" if self.op.opaque else ""
                self._refuse("", offer, f"no loop runs over dim {dim}{why}", None)
            return not offer.axes
        refusal = self._refusal(loop, offer.axes)
        if refusal is not None:
            self._refuse(self.op.signature.factors[loop].name, offer, *refusal)
        return refusal is None

    def _refuse(self, loop: str, offer: Offer, reason: str, against: Offer | None) -> None:
        outcome = "the op gets no option" if offer.required else "the hint yields"
        offers = (offer,) if against is None else (offer, against)
        found = Conflict(self.op.name, self.op.where, loop, offers, reason, outcome)
        (self.conflicts if offer.required else self.yielded).append(found)

    def _refusal(self, loop: int, axes: Axes) -> tuple[str, Offer | None] | None:
        """Why a loop cannot be split by these axes, and who is in the way."""
        if self.loops.get(loop, axes) != axes:
            owner = self.owners.get(loop)
            return (str(owner) if owner else "the dim's major loop is split already"), owner
        if not axes:
            return None
        factors = self.op.signature.factors
        if iterator_kind(factors[loop]) == "invalid" and not self.op.is_made_whole:
            return "the loop is invalid: it cannot be split", None
        for other, used in self.loops.items():
            double = [axis for axis in axes if axis in used]
            if other != loop and double:
                owner = self.owners.get(other)
                return f"axis {double[0]} splits loop {factors[other].name}, as {owner}", owner
        return self._partial_refusal(loop, axes) or self._dims_refusal(loop, axes)

    def _partial_refusal(self, loop: int, axes: Axes) -> tuple[str, Offer | None] | None:
        kind = partial_kind(self.op.signature.factors[loop])
        if kind is None:
            return None
        if self.partial is not None:
            sharding, owner = self.partial
            if not set(axes) <= set(sharding.partial) or kind != sharding.kind:
                return f"the result would be partial={kind}, and {owner.by} requires {sharding}", owner
        for other, factor in partial_loops(self.op.signature):
            if self.loops.get(other) and partial_kind(factor) != kind:
                return f"loop {factor.name}, which is split, makes another kind of partial value", None
        return None

    def _dims_refusal(self, loop: int, axes: Axes) -> tuple[str, Offer | None] | None:
        """Dims of several loops: at most one is split, and where it is not the major one the dim must be whole."""
        signature = self.op.signature
        for dims, is_result in [(d, False) for d in signature.operands] + [(d, True) for d in signature.results]:
            for factors in dims:
                rest = minors(signature, factors)
                if loop not in factors or not rest:
                    continue
                if is_result and loop in rest:
                    return "its pieces would lie scattered in a dim of the result", None
                fellow = next((n for n in factors if n != loop and self.loops.get(n)), None)
                if fellow is not None:
                    name = signature.factors[fellow].name
                    return f"loop {name} of the same dim is split already", self.owners.get(fellow)
                problem = self._uneven(loop, axes) if loop not in rest else None
                if problem is not None:
                    return problem, None
        return None

    def _uneven(self, loop: int, axes: Axes) -> str | None:
        factor = self.op.signature.factors[loop]
        if isinstance(factor.owes, Halo):
            return None
        ways = self.cluster.known_ways(axes)
        if ways is None:
            return "a dim of several loops is split only where the sizes of the axes are known"
        return f"{ways} does not divide its {factor.size} elements" if factor.size % ways else None

    def complete_partial(self, sharding: AxisSharding, offer: Offer) -> None:
        """Give partial axes that no loop has to the first reduction loop that is free."""
        loops = list(partial_loops(self.op.signature))
        placed = {axis for n, _ in loops for axis in self.loops.get(n, ())}
        rest = tuple(axis for axis in sharding.partial if axis not in placed)
        if not rest:
            return
        free = [n for n, f in loops if not self.loops.get(n) and partial_kind(f) == sharding.kind]
        asked = Offer(offer.by, rest, offer.required)
        if free:
            self.offer(free[0], asked)
        else:
            self._refuse("", asked, f"no loop is left that makes partial={sharding.kind}", None)


def infer(op: LoopOp, notes: Notes, cluster: Cluster) -> Inference | None:
    """The option by what is said about the op's tensors; None if nothing is."""
    results = [result_offer(notes, op, n) for n in range(len(op.results))]
    operands = [operand_offer(notes, op, n) for n in range(len(op.operands))]
    if not any(results) and not any(operands):
        return None
    inference = Inference(op, cluster)
    partials: list[tuple[AxisSharding, Offer]] = []
    for required in (True, False):
        for entry, dims in zip(results, op.signature.results, strict=True):
            if entry is not None and entry[1].required == required:
                inference.take(entry[0], dims, entry[1], settles=True)
                partials.append(entry)
                inference.partial = inference.partial or (entry if required else None)
        for entry, dims in zip(operands, op.signature.operands, strict=True):
            if entry is not None and entry[1].required == required:
                inference.take(entry[0], dims, entry[1], settles=required)
    for sharding, offer in partials:
        inference.complete_partial(sharding, offer)
    return inference
