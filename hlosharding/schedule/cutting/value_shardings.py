"""How the values of a program lie that is cut: what is said of them, what flows, and what propagation makes of it.

Floor: schedule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hlosharding.ir import Instruction, Module
from hlosharding.propagation import propagate
from hlosharding.schedule.cutting.batch_flow import Dims
from hlosharding.schedule.cutting.kept_splits import (
    SplitFlow,
    StageAxes,
    flows_of,
    keep_split,
    sharding_as_read,
    walk_flows,
)
from hlosharding.schedule.cutting.loop_fission import Fission
from hlosharding.schedule.cutting.microbatched import Microbatched, is_layout_call
from hlosharding.sharding import HloSharding

Annotations = Mapping[str, HloSharding]
"""Of values by name the shardings that the user gave."""


@dataclass(frozen=True, slots=True)
class ValueShardings:
    """How the values of a program lie, by name."""

    said: Annotations
    axes: StageAxes
    flows: list[tuple[SplitFlow, Mapping[Instruction, Dims]]]
    """Where each of them lies in the program."""
    spread: Mapping[str, HloSharding | None]
    """What is said, propagated."""

    @classmethod
    def of(
        cls, program: Microbatched, annotated: Module, fission: Fission, axes: StageAxes | None, number: int
    ) -> ValueShardings:
        """On so many devices.  `annotated`: the program before its loops were cut, with what the user says of it."""
        said = _find_annotations(program.module, annotated, fission.origin) if number > 1 else {}
        parameters = [sharding_as_read(p, lambda value: said.get(value.name)) for p in program.module.entry.parameters]
        axes = axes or StageAxes.of_tiles(parameters[number] for number in program.batch)
        flows = flows_of(program.batch, parameters, axes)
        walked = list(zip(flows, walk_flows(program.module, flows), strict=True))
        return cls(said, axes, walked, _propagate_said(program, said, axes, flows, number))


def _propagate_said(
    program: Microbatched, said: Annotations, axes: StageAxes, flows: Sequence[SplitFlow], number: int
) -> Mapping[str, HloSharding | None]:
    """The sharding of each value by name: what is said, spread, and what flows split wherever it does."""
    if number == 1:
        return {}
    made = program.module.clone()
    made.num_partitions = number
    for name, sharding in said.items():
        made.shardings[made.by_name(name).id] = sharding
    is_open = [made.sharding(parameter) is None for parameter in made.entry.parameters]
    kept = {call.name: value.name for value, call in keep_split(made, axes.mesh, flows).items()}
    found = propagate(made, to_outputs=True, to_parameters=is_open).module
    shardings = {inst.name: found.sharding(inst) for inst in found.entry.instructions}
    return shardings | {kept[name]: sharding for name, sharding in shardings.items() if name in kept}


def _find_annotations(program: Module, annotated: Module, origin: Mapping[str, str]) -> Annotations:
    """The shardings that the user gave to inputs and to what keeps its name, by name.

    `origin`: of parts, by name, that of which they are parts.
    """
    given, inside = _find_given(annotated)
    entry = ((inst.name, given.get(origin.get(inst.name, inst.name))) for inst in program.entry.instructions)
    copies = ((inst.name, inside.get(origin.get(inst.name, inst.name))) for inst in program.of_opcodes("copy"))
    return {name: sharding for name, sharding in (*entry, *copies) if sharding is not None}


def _find_given(annotated: Module) -> tuple[Annotations, Annotations]:
    """By name, of the entry and of what loops constrain; what a call lays out lies so itself, if nothing else is said
    of it."""
    named = ((inst, annotated.sharding(inst)) for inst in annotated.instructions)
    given = {inst: sharding for inst, sharding in named if sharding is not None}
    for call in [inst for inst in given if is_layout_call(inst)]:
        given.setdefault(call.operands[0], given[call])
    entry = {inst.name: sharding for inst, sharding in given.items() if inst.computation.is_entry}
    inner = {inst.name: s for inst, s in given.items() if is_layout_call(inst) and not inst.computation.is_entry}
    return entry, inner
