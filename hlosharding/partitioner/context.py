"""One computation being partitioned: the state that every strategy gets as its first argument.

Floor: partitioner.  What plans depend on (`PlanContext`), and where they are written (`Context`); what an operand
became, and how it gets into another sharding, is in `resharding`.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from hlosharding.ir import Instruction
from hlosharding.partitioner.choice import OpPlan
from hlosharding.partitioner.decisions import Decisions
from hlosharding.partitioner.iteration_space import as_compared
from hlosharding.partitioner.prices import Cost, Prices
from hlosharding.partitioner.value import AnyValue, DeferredReduction
from hlosharding.sharding import HloSharding
from hlosharding.spmd import Emitter, ManualGroups, sharding_in_groups

# Most shardings, which `as_compared` takes as they are.
_OWN_SPELLING = frozenset({"tiled", "replicated"})

Lower = Callable[["Context", Instruction], AnyValue | DeferredReduction]
"""What makes a partitioned value of a global instruction whose operands are partitioned."""


@dataclass(slots=True, kw_only=True)
class PlanContext:
    """What plans of a computation's ops depend on, beside the places of their operands: nothing can be written."""

    shardings: dict[int, HloSharding] | ChainMap[int, HloSharding]
    """What propagation found, by instruction id; nothing where any sharding will do."""
    decisions: Decisions
    manual_groups: ManualGroups | None = None
    """The manual region whose groups share the work; None: all devices do."""
    may_defer: frozenset[Instruction] = frozenset()
    """What carries of a loop go through that may turn out to be deferred: what is added to it had better be, too."""

    @property
    def prices(self) -> Prices:
        return self.decisions.prices

    def is_deferred(self, inst: Instruction) -> bool | None:
        """Is a value partial sums that nobody has needed yet?  None: it is not known."""
        return None

    def wanted(self, inst: Instruction) -> HloSharding | None:
        """The sharding an instruction was given (a tuple's as a tuple sharding), or None."""
        return self.shardings.get(inst.id)

    def wanted_leaves(self, inst: Instruction) -> tuple[HloSharding | None, ...]:
        """The sharding of each result leaf, or None where propagation found nothing."""
        given = self.shardings.get(inst.id)
        if given is not None and self.manual_groups is None and not inst.shape.is_tuple and given.kind in _OWN_SPELLING:
            return (given.meaning,)
        count = len(inst.shape.leaves) if inst.shape.is_tuple else 1
        if given is None or given.is_unknown():
            return (None,) * count
        if self.manual_groups is not None:
            leaves = given.normalize_tuple(count).leaves
            return tuple(sharding_in_groups(as_compared(s), self.manual_groups) for s in leaves)
        # An empty tuple has a sharding, though no array.
        leaves = given.normalize_tuple(count).leaves[:count] if inst.shape.is_tuple else (given,)
        return tuple(as_compared(s) for s in leaves)


@dataclass(slots=True, kw_only=True)
class Context(PlanContext):
    """The computation as all devices see it, or (`inside`) as groups of a manual region do: with the same values."""

    emitter: Emitter
    lower: Lower
    """The walk's step: control flow takes the computations that it calls through it."""
    values: dict[Instruction, AnyValue | DeferredReduction] = field(default_factory=dict)
    """What each global instruction became."""
    plans: dict[Instruction, OpPlan] = field(default_factory=dict)
    """How those were partitioned that there was a choice for, of all computations."""
    paid: dict[Instruction, Cost] = field(default_factory=dict)
    """What moving elements cost, by the instruction that moves them."""
    outside: Context | None = None
    """The same computation as all devices see it; None: this is it."""
    regions: dict[ManualGroups, Context] = field(default_factory=dict)

    def inside(self, groups: ManualGroups | None) -> Context:
        """The context for ops of a manual region; of none: for all others."""
        root = self.outside or self
        if groups is None:
            return root
        if groups not in root.regions:
            decisions, emitter = root.decisions.inside(groups), root.emitter.inside(groups)
            root.regions[groups] = replace(
                root,
                decisions=decisions,
                manual_groups=groups,
                emitter=emitter,
                paid={},
                outside=root,
                may_defer=frozenset(),
            )
        return root.regions[groups]

    def computation(self, emitter: Emitter, *, may_defer: frozenset[Instruction] = frozenset()) -> Context:
        """The context of another computation of the same module."""
        return Context(
            shardings=self.shardings,
            decisions=self.decisions,
            may_defer=may_defer,
            emitter=emitter,
            lower=self.lower,
            plans=self.plans,
        )

    @property
    def num_partitions(self) -> int:
        """Devices that share the work."""
        return self.emitter.num_partitions

    def is_deferred(self, inst: Instruction) -> bool | None:
        value = self.values.get(inst)
        return None if value is None else isinstance(value, DeferredReduction)
