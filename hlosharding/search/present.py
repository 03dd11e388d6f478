"""The program as its writer annotated it, beside a plan: where the two differ, and what a step takes with either.

Floor: search.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hlosharding.cost import Machine
from hlosharding.errors import HloShardingError
from hlosharding.ir import Instruction, Module
from hlosharding.plans import ShardingChange
from hlosharding.schedule import Cutter, is_layout_call
from hlosharding.search.comparison import EQUAL, memory_text, time_text
from hlosharding.search.planner import Planner
from hlosharding.search.plans import Plan, SizedPlan
from hlosharding.search.price_file import Outcome
from hlosharding.search.priced_plan import PricedPlan
from hlosharding.search.strategies import mesh_of
from hlosharding.search.updates import lay_updated_alike
from hlosharding.sharding import REPLICATED, HloSharding, MeshInfo, spell


@dataclass(frozen=True, slots=True)
class Present:
    """The program as it is annotated today, beside a plan."""

    priced: Outcome
    """A step of it, as one program of as many data ways as it has devices; a text: why it has no price."""
    found: PricedPlan
    mesh: MeshInfo | None
    """Of the annotations."""
    found_mesh: MeshInfo
    """Of a stage of the plan."""
    changes: tuple[ShardingChange, ...]
    """Arguments, and values with constraints in the source, that lie otherwise: as annotated, and by the plan."""

    @property
    def own_lines(self) -> tuple[str, ...]:
        """Constraints in the source that a plan has otherwise: to be taken out where its lines are put in."""
        calls = (change for change in self.changes if change.value.opcode != "parameter")
        said = ((one.location, spell(one.before, self.mesh), spell(one.after, self.found_mesh)) for one in calls)
        return tuple(dict.fromkeys(f"{line}: in place of its own constraint {own}: {ours}" for line, own, ours in said))

    def __str__(self) -> str:
        differ = f"{len(self.changes)} annotations differ from {self.found.plan}"
        if isinstance(self.priced, str):
            return f"as annotated today it has no price: {self.priced}; {differ}"
        takes = f"{time_text(self.priced.time_s)}, {self.priced.time_s / self.found.time_s:.2f} times as long"
        holds = memory_text(self.priced.peak_memory_bytes) + ("" if self.priced.fits else ", does not fit")
        better = "; no plan here is as fast" if EQUAL * self.priced.time_s < self.found.time_s else ""
        return f"as annotated today, on {self.priced.plan.data} devices: {takes}, {holds}; {differ}{better}"


def beside_present(planner: Planner, found: PricedPlan, machine: Machine) -> Present | None:
    """The planner's program, beside a plan that was found for it; None where it has no annotations.

    What a step updates lies as it did, as in plans.
    """
    module = planner.module
    if module.num_partitions < 2 or not module.shardings:
        return None
    changes = tuple(_changes(module, planner.annotate(found.plan), found.plan))
    priced = _price_annotated(planner, found.batch_size, machine)
    return Present(priced, found, module.mesh, mesh_of(found.plan.ways), changes)


def _price_annotated(planner: Planner, batch_size: int, machine: Machine) -> Outcome:
    made, plan = planner.module.clone(), Plan(planner.module.num_partitions)
    lay_updated_alike(made)
    try:
        cutter = Cutter(planner.module, sorted(planner.numbers), sorted(planner.donated))
        schedule = cutter.pipeline(made, plan.layout, plan.submeshes, 1, machine).schedule("", 1)
        return PricedPlan.of(SizedPlan(plan, batch_size), schedule.simulate(machine))
    except HloShardingError as error:
        return str(error)


def _changes(module: Module, planned: Module, plan: Plan) -> Iterator[ShardingChange]:
    is_alike = plan.stages == 1 and not plan.order and planned.num_partitions == module.num_partitions
    of_plan = {inst.name: planned.sharding(inst) for inst in planned.instructions}
    # JAX constrains gradients likewise: these are no lines of the user's.
    lines = (inst for inst in module.instructions if is_layout_call(inst) and not inst.is_backward)
    for inst in (*module.entry.parameters, *lines):
        before, after = module.sharding(inst), of_plan.get(inst.name)
        if not _is_same(before or REPLICATED, after or REPLICATED, is_alike):
            yield ShardingChange(inst, before, after)


def _is_same(before: HloSharding, after: HloSharding, is_alike: bool) -> bool:
    """`is_alike`: on the same devices; else as often split along each dim."""
    return before == after if is_alike else _splits(before) == _splits(after)


def _splits(sharding: HloSharding) -> list[tuple[int, ...]]:
    return [leaf.data_dims if max(leaf.data_dims, default=1) > 1 else () for leaf in sharding.leaves]


def argument_path(value: Instruction) -> str:
    """Of an argument, or of one whose value has a constraint; "" of other values."""
    inst = value.operands[0] if is_layout_call(value) else value
    return inst.path if inst.opcode == "parameter" and inst.computation.is_entry else ""
