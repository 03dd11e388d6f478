"""Why an op is split as it is, and what other splits would cost.

Floor: compiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hlosharding.ir import Module
from hlosharding.notebook import InNotebooks
from hlosharding.partitioner import OpPlan, SplitAlternative, SplitAlternatives, alternatives_of
from hlosharding.printable import printable
from hlosharding.propagation import Explanation
from hlosharding.sharding import MeshInfo, spell_short


@dataclass(frozen=True, slots=True)
class SplitExplanation(InNotebooks):
    """Why one op is split as it is.  `str` prints the cause of its sharding, its split, and those that were not taken.

    >>> import hlosharding as hs
    >>> text = '''HloModule m, num_partitions=2
    ... ENTRY e {
    ...   x = f32[4,8] parameter(0), sharding={devices=[1,2]<=[2]}
    ...   y = f32[8,4] parameter(1), sharding={devices=[2,1]<=[2]}
    ...   ROOT z = f32[4,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={replicated}
    ... }'''
    >>> found = hs.partition(hs.load(text)).explain("z")
    >>> found.splits.chosen.comm_bytes, found.splits.chosen.work
    (64.0, 0.5)
    """

    name: str
    opcode: str
    cause: Explanation | None
    """Why the value has its sharding; None where the program was given with its shardings."""
    splits: SplitAlternatives | None
    """None for what is not split by its dims: parameters, ops that only move elements, loops, calls."""
    mesh: MeshInfo | None

    def __str__(self) -> str:
        lines, name = [] if self.cause is None else [str(self.cause)], printable(self.name)
        if self.splits is None:
            lines.append(f"%{name} ({self.opcode}) is not split by its dims: there is no choice of a split")
        else:
            lines += [f"%{name} is split {told(self.splits.chosen, self.mesh)}"]
            lines += [f"  else {told(one, self.mesh)}; not taken: {one.excluded}" for one in self.splits.others]
        return "\n".join(lines)


def told(one: SplitAlternative, mesh: MeshInfo | None) -> str:
    """A split and its figures in a line."""
    return (
        f"{' '.join(one.factors)} as {spell_short(one.space, mesh)}: {one.comm_bytes:,.0f} bytes received,"
        f" {one.seconds * 1e6:.3g} us, {one.work:.3g} of the work, {one.memory_bytes:,} bytes of memory"
    )


def explained_split(
    source: Module, plans: Mapping[str, OpPlan], name: str, cause: Explanation | None
) -> SplitExplanation:
    """Of the op of that name.  Raises ModuleError for a name that is not in the module."""
    inst = source.by_name(name)
    return SplitExplanation(inst.name, inst.opcode, cause, splits_of(plans, inst.name), source.mesh)


def splits_of(plans: Mapping[str, OpPlan], name: str) -> SplitAlternatives | None:
    """How an op is split, and how else it could be; None where there was no choice."""
    plan = plans.get(name)
    return plan and alternatives_of(plan)
