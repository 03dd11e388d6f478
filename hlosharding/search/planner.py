"""A program for which plans are made: what they have in common is done once.

Floor: search.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property

from hlosharding.collector import collector_comes_after
from hlosharding.cost import Machine, WholeStep
from hlosharding.errors import AnnotationError, ScheduleError
from hlosharding.ir import Instruction, Module, fused_attention
from hlosharding.notebook import file_name
from hlosharding.partitioner import PartitionOptions
from hlosharding.schedule import (
    Cutter,
    Pipeline,
    Schedule,
    StageAxes,
    StageLayout,
    argument_numbers,
    recompute_layers,
    sharding_as_read,
)
from hlosharding.search.plans import EXPERTS, Plan
from hlosharding.search.ragged_products import group_by_expert
from hlosharding.search.strategies import (
    BATCH,
    STRATEGIES,
    Specs,
    Strategy,
    SummedWhole,
    Ways,
    join_specs,
    megatron,
    mesh_of,
    number_specs,
    over_sequences,
    place_of_argument,
    spec_of,
    split_arguments,
)
from hlosharding.search.updates import find_updated
from hlosharding.sharding import REPLICATED, axes_by_dim


class Planner:
    """Makes pipelines of one program, whose `batch` arguments have the batch as their first dim.

    `donate`: arguments that the update may overwrite.  `strategies`: those of plans by name, beside `STRATEGIES`.
    Raises ScheduleError for arguments that are not there.
    """

    def __init__(
        self,
        module: Module,
        batch: Sequence[str | int],
        donate: Sequence[str | int] = (),
        strategies: Mapping[str, Strategy] | None = None,
    ) -> None:
        self.module = module
        self.numbers = frozenset(argument_numbers(module, batch))
        self.strategies = {"": megatron, **STRATEGIES, **(strategies or {})}
        self._cutter = Cutter(module, batch, donate)
        self._annotated: dict[Plan, Module] = {}

    @collector_comes_after
    def pipeline(self, plan: Plan, machine: Machine | None = None, options: PartitionOptions | None = None) -> Pipeline:
        """The program cut so.  Raises ScheduleError where it cannot be, AnnotationError for a strategy's bad specs."""
        for parameter in self.module.entry.parameters:
            if parameter.parameter_number in self.numbers:
                _check_divides(parameter, plan)
        return self._cut(plan, plan.layout, plan.submeshes, machine, options)

    def on_one_submesh(self, plan: Plan, layers: Sequence[int], machine: Machine) -> Pipeline:
        """The program cut into stages of so many layers each, all on the devices of the plan's first one: to be priced.

        Raises as `pipeline` does.
        """
        layout = StageLayout(len(layers), even=bool(self.trips), layers=tuple(layers))
        return self._cut(plan, layout, plan.submeshes[:1] * len(layers), machine)

    def _cut(
        self,
        plan: Plan,
        layout: StageLayout,
        devices: Sequence[tuple[int, ...]],
        machine: Machine | None,
        options: PartitionOptions | None = None,
    ) -> Pipeline:
        annotated, axes, cutter = self.annotate(plan), self.axes_of(plan), self._planner_of_cut(plan)._cutter
        return cutter.pipeline(annotated, layout, devices, plan.microbatches, machine, options, axes)

    @property
    def trips(self) -> Sequence[int]:
        """Of each loop over layers, forward; none where layers are listed."""
        return self._cutter.trips

    def _planner_of_cut(self, plan: Plan) -> Planner:
        """The planner of the program that is cut: where experts are split, of one whose products go by expert; where
        layers are computed again, of one that does so."""
        of_experts = self._of_experts if plan.experts > 1 else self
        return of_experts._of_recomputed if plan.recompute else of_experts

    @cached_property
    def _of_experts(self) -> Planner:
        # Of a small layer with sorted tokens 176 kB move so on four devices; 912 did with its experts' weights split by
        # hand.
        return self._of_program(group_by_expert(self.module))

    @cached_property
    def _of_recomputed(self) -> Planner:
        made = self._of_program(recompute_layers(self.module))
        if made.module is self.module:
            what = "the program has no layers whose gradients read much more than what layers were given"
            raise ScheduleError(what, remedy="leave recompute out")
        return made

    def _of_program(self, module: Module) -> Planner:
        """The planner of a program that does the same."""
        made = self._copy()
        made.module = module
        if module is not self.module:
            made._cutter = Cutter(module, sorted(self.numbers), sorted(self.donated))
            made._cutter.whole = self.whole  # rows that are masked, and what is made again, is no work of the model's
        return made

    def _copy(self) -> Planner:
        """To be changed; planners of other programs it makes for itself."""
        made = copy(self)
        # They would keep the cutter of the original: of plans with either, donating was said to save nothing.
        for name in ("_of_experts", "_of_recomputed"):
            made.__dict__.pop(name, None)
        return made

    def with_strategy(self, name: str, strategy: Strategy) -> Planner:
        """A planner that knows one strategy more, and shares what was cut already."""
        made = self._copy()
        made.strategies = {**self.strategies, name: strategy}
        # The name may have meant another strategy.
        made._annotated = {key: module for key, module in self._annotated.items() if key.strategy != name}
        return made

    def with_donation(self) -> tuple[Planner, list[str]] | None:
        """A planner that donates what the step updates, and the arguments that this is; None: it updates nothing."""
        updated = find_updated(self.module).values()
        if not updated:
            return None
        made = self._copy()
        made._cutter = Cutter(self.module, sorted(self.numbers), [p.parameter_number for p in updated])
        return made, list(dict.fromkeys(map(argument_of, updated)))

    @property
    def whole(self) -> WholeStep:
        """The step, whatever the plan."""
        return self._cutter.whole

    @property
    def donated(self) -> frozenset[int]:
        """Numbers of the arguments that the update may overwrite."""
        return self._cutter.donated

    def schedule(self, plan: Plan, machine: Machine | None = None, options: PartitionOptions | None = None) -> Schedule:
        """The plan's schedule, ready to be verified, simulated and run.  Raises ScheduleError."""
        return self.pipeline(plan, machine, options).schedule(plan.schedule, plan.microbatches)

    def annotate(self, plan: Plan) -> Module:
        """The program with the shardings of a stage by its strategy; where it says nothing, the batch over data."""
        if plan.stage not in self._annotated:
            if len(self._annotated) >= _MOST_KEPT:
                self._annotated.pop(next(iter(self._annotated)))
            try:
                self._annotated[plan.stage] = self._planner_of_cut(plan)._annotate(plan)
            except (AnnotationError, ScheduleError) as error:
                where = " by ".join(filter(None, (error.where, self._place(plan.strategy))))
                raise type(error)(error.what, where=where, remedy=error.remedy) from None
        return self._annotated[plan.stage]

    def _annotate(self, plan: Plan) -> Module:
        ways = plan.ways
        said = [each(self.module, ways, self.numbers) for each in (BATCH, self.find_strategy(plan.strategy))]
        # Sequences are split beside what lies over tensor already (`_over_tensor`): that has to be known first.
        made = split_arguments(self.module, ways, *said)
        along = [_over_tensor(made, ways, self.numbers)] if plan.sequence else []
        return split_arguments(self.module, ways, *said, *along) if along else made

    def _place(self, name: str) -> str:
        """Where a strategy is written."""
        code = getattr(self.find_strategy(name), "__code__", None)
        line = f" ({file_name(code.co_filename)}:{code.co_firstlineno})" if code is not None else ""
        return f"strategy {name or 'megatron'}{line}"

    def axes_of(self, plan: Plan) -> StageAxes:
        """The mesh of a stage, and what keeps its split along which of its axes."""
        is_whole = isinstance(self.find_strategy(plan.strategy), SummedWhole)
        return StageAxes(
            mesh_of(plan.ways),
            of_weights=frozenset((EXPERTS, "tensor") if plan.sequence else (EXPERTS,)),
            # Results of flash attention keep the split of heads: so its plans move as many bytes as those of attention
            # written out.
            of_calls=frozenset(("tensor",) if self._has_attention else ()),
            sums_whole=frozenset(SummedWhole.over if is_whole else ()),
        )

    @cached_property
    def _has_attention(self) -> bool:
        return any(fused_attention(inst) is not None for inst in self.module.of_opcodes("custom-call"))

    def find_strategy(self, name: str) -> Strategy:
        """By name.  Raises ScheduleError where there is none."""
        if name not in self.strategies:
            known = ", ".join(filter(None, self.strategies))
            raise ScheduleError(f"no strategy {name!r}", remedy=f"there are {known}; others are given as strategies=")
        return self.strategies[name]


_MOST_KEPT = 4
"""Copies of a program: plans of as many ways come one after the other.  Of 32 plans with 20 kinds of stages none is
annotated twice with 4.  Each copy is as large as the program, and each batch size of a search has a planner."""


def argument_of(parameter: Instruction) -> str:
    """The name of the argument of which it is a leaf."""
    return re.split(r"[\[.]", parameter.path)[0]


def _over_tensor(annotated: Module, ways: Ways, batch: frozenset[int]) -> Specs:
    """Of arguments that have sequences, how these lie, and split over tensor, too."""
    sequences = over_sequences("tensor")(annotated, ways, batch)
    said = {
        p.parameter_number: sharding_as_read(p, annotated.sharding) or REPLICATED for p in annotated.entry.parameters
    }
    specs = {number: spec_of(axes_by_dim(said[number], mesh_of(ways))) for number in number_specs(annotated, sequences)}
    return join_specs(annotated, specs, sequences)


def _check_divides(parameter: Instruction, plan: Plan) -> None:
    """Raises ScheduleError unless all microbatches, and all their tiles, have as many examples."""
    dims = parameter.shape.dims
    if not dims or not plan.divides(dims[0]):
        pieces = f"{plan.microbatches} microbatches, each {plan.batch_ways} ways"
        raise ScheduleError(
            f"the batch of %{parameter.name} {parameter.shape} is not cut into {pieces}",
            where=place_of_argument(parameter),
            remedy="take another batch size, fewer microbatches or fewer ways",
        )
