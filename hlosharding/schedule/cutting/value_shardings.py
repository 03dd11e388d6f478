"""How the values of a program lie that is cut: what is said of them, what flows, and what propagation makes of it.

Floor: schedule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock

from hlosharding.frontends import constrain
from hlosharding.ir import Instruction, Module
from hlosharding.propagation import propagate
from hlosharding.schedule.cutting.batch_flow import Dims
from hlosharding.schedule.cutting.kept_splits import (
    SplitFlow,
    StageAxes,
    flows_of,
    sharding_as_read,
    splits_of,
    walk_flows,
)
from hlosharding.schedule.cutting.loop_fission import Fission
from hlosharding.schedule.cutting.microbatched import Microbatched, is_layout_call
from hlosharding.sharding import REPLICATED, HloSharding

Annotations = Mapping[str, HloSharding]
"""Of values by name the shardings that the user gave."""


@dataclass(frozen=True, slots=True)
class ValueShardings:
    """How the values of a program lie, by name."""

    said: Annotations
    axes: StageAxes
    flows: Sequence[tuple[SplitFlow, Mapping[Instruction, Dims]]]
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
        found = _walk_flows(program.module, tuple(flows))
        kept = splits_of(program.module, axes.mesh, flows, found)
        spread = _propagate_said(program.module, said, kept, number) if number > 1 else {}
        return cls(said, axes, list(zip(flows, found, strict=True)), spread)


_ONE_PLAN = Lock()
"""At a time says how values lie in the copy that plans share."""
_walk_flows = lru_cache(maxsize=4)(walk_flows)
"""The batch flows alike through one program for all plans."""


def _propagate_said(
    module: Module, said: Annotations, kept: Mapping[Instruction, tuple[HloSharding, Sequence[int]]], number: int
) -> Mapping[str, HloSharding | None]:
    """The sharding of each value by name: what is said, spread, and what flows split wherever it does."""
    made, calls = _constrained_copy(module, tuple((value, tuple(dims)) for value, (_, dims) in kept.items()))
    with _ONE_PLAN:
        made.num_partitions = number
        made.shardings = {made.by_name(name).id: sharding for name, sharding in said.items()}
        made.shardings |= {calls[value].id: sharding for value, (sharding, _) in kept.items()}
        is_open = [made.sharding(parameter) is None for parameter in made.entry.parameters]
        shardings = propagate(made, to_outputs=True, to_parameters=is_open).shardings
    # Who reads a constrained value reads its constraint: as that lies, so does the value.
    return shardings | {value.name: shardings[calls[value].name] for value in kept}


@lru_cache(maxsize=2)  # each is as large as the program
def _constrained_copy(
    module: Module, values: tuple[tuple[Instruction, tuple[int, ...]], ...]
) -> tuple[Module, Mapping[Instruction, Instruction]]:
    """A copy in which these are constrained, open in some dims, and the call of each.  Plans of many strategies
    constrain the same values: how they lie each says for itself."""
    made = module.clone()
    copies = dict(zip(module.instructions, made.instructions, strict=True))
    calls = constrain(made, {copies[value]: (REPLICATED, dims) for value, dims in values})
    return made, {value: calls[copies[value]] for value, _ in values}


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
