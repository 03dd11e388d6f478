"""An op's sharding option, a list of axes per loop, from what is said about its results and operands.

Floor: mesh_propagation.  The mesh dialect's getShardingOption: orders before hints; results first, then operands, for
reduction loops and parallel loops that no result has settled; what is left is replicated.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hlosharding.mesh_propagation.loop_program import LoopOp
from hlosharding.mesh_propagation.loops import Option, iterator_kind, major, minors, partial_kind, partial_loops
from hlosharding.mesh_propagation.notes import Notes
from hlosharding.mesh_propagation.offers import Conflict, Offer, Wish, operand_wish, result_wish
from hlosharding.rules import Dims, Halo
from hlosharding.sharding import Axes, Cluster


@dataclass
class Inference:
    """The option of one op in the making."""

    op: LoopOp
    cluster: Cluster
    loops: dict[int, Axes] = field(default_factory=dict)
    owners: dict[int, Offer] = field(default_factory=dict)
    partial: Wish | None = None
    """The order for a result, beyond whose partial axes no reduction loop may be split."""
    conflicts: list[Conflict] = field(default_factory=list)
    """Orders refused."""
    yielded: list[Conflict] = field(default_factory=list)
    """Hints refused."""

    @property
    def option(self) -> Option:
        """Axes per loop; what is not settled is replicated."""
        return tuple(self.loops.get(n, ()) for n in range(len(self.op.signature.factors)))

    def take(self, wish: Wish, dims: Dims) -> None:
        """Offer a tensor's axes to the loops of its dims."""
        for dim, factors in enumerate(dims):
            axes = wish.sharding.along(dim)
            loop = major(self.op.signature, factors)
            if loop is None and axes:
                why = f" ({self.op.opaque})" if self.op.opaque else ""
                self._refuse("", wish.offer(axes), f"no loop runs over dim {dim}{why}", None)
            elif loop is not None and (axes or wish.settles):
                self.offer(loop, wish.offer(axes))

    def offer(self, loop: int, offer: Offer) -> None:
        """Split a loop by these axes, or note why not."""
        refusal = self._refusal(loop, offer.axes)
        if refusal is not None:
            self._refuse(self.op.signature.factors[loop].name, offer, *refusal)
            return
        self.loops[loop] = offer.axes
        self.owners.setdefault(loop, offer)

    def _refuse(self, loop: str, offer: Offer, reason: str, against: Offer | None) -> None:
        outcome = "the op gets no option" if offer.required else "the hint yields"
        offers = (offer,) if against is None else (offer, against)
        found = Conflict(self.op.name, self.op.where, loop, offers, reason, outcome)
        (self.conflicts if offer.required else self.yielded).append(found)

    def _refusal(self, loop: int, axes: Axes) -> tuple[str, Offer | None] | None:
        """Why a loop cannot be split by these axes, and who is in the way."""
        if self.loops.get(loop, axes) != axes:
            owner = self.owners[loop]
            return str(owner), owner
        if not axes:
            return None
        factors = self.op.signature.factors
        if iterator_kind(factors[loop]) == "invalid" and not self.op.is_made_whole:
            return "the loop is invalid: it cannot be split", None
        # By an axis that splits two loops a device gets the iterations in which both have its number, and nobody does
        # all others.
        for other, used in self.loops.items():
            double = [axis for axis in axes if axis in used]
            if other != loop and double:
                owner = self.owners[other]
                return f"axis {double[0]} splits loop {factors[other].name}, as {owner}", owner
        return self._partial_refusal(loop, axes) or self._dims_refusal(loop, axes)

    def _partial_refusal(self, loop: int, axes: Axes) -> tuple[str, Offer | None] | None:
        kind = partial_kind(self.op.signature.factors[loop])
        if kind is None:
            return None
        order = self.partial
        if order is not None and (not set(axes) <= set(order.sharding.partial) or kind != order.sharding.kind):
            reason = f"the result would be partial={kind}, and {order.by} requires {order.sharding}"
            return reason, order.offer(order.sharding.axes)
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
        # Pieces along a loop that strides over its dim overlap and exchange their borders; they need not be equal.
        if isinstance(factor.owes, Halo):
            return None
        # A split means equal pieces; an axis of unknown size is one that divides, until its size is known.
        ways = self.cluster.known_ways(axes)
        return f"{ways} does not divide its {factor.size} elements" if ways and factor.size % ways else None

    def complete_partial(self, wish: Wish) -> None:
        """Give partial axes that no loop has to the first reduction loop that is free."""
        loops = list(partial_loops(self.op.signature))
        placed = {axis for n, _ in loops for axis in self.loops.get(n, ())}
        rest = tuple(axis for axis in wish.sharding.partial if axis not in placed)
        if not rest:
            return
        kind = wish.sharding.kind
        free = [n for n, f in loops if not self.loops.get(n) and partial_kind(f) == kind]
        if free:
            self.offer(free[0], wish.offer(rest))
        else:
            self._refuse("", wish.offer(rest), f"no loop is left that makes partial={kind}", None)


def infer(op: LoopOp, notes: Notes, cluster: Cluster) -> Inference | None:
    """The option by what is said about the op's tensors; None if nothing is."""
    results = [result_wish(notes, op, n) for n in range(len(op.results))]
    operands = [operand_wish(notes, op, n) for n in range(len(op.operands))]
    said = [*zip(results, op.signature.results, strict=True), *zip(operands, op.signature.operands, strict=True)]
    if not any(wish for wish, _ in said):
        return None
    inference = Inference(op, cluster)
    for required in (True, False):
        for wish, dims in said:
            if wish is not None and wish.required == required:
                inference.take(wish, dims)
                if required and wish in results:
                    inference.partial = inference.partial or wish
    for wish in results:
        if wish is not None:
            inference.complete_partial(wish)
    return inference
