"""Annotations and options as the user gives them, found in the program and checked.

Floor: mesh_propagation.  Raises AnnotationError for what names nothing or does not fit; what contradicts something else
is for propagation to report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from hlosharding.errors import AnnotationError, ShardingError
from hlosharding.ir import Instruction, Module
from hlosharding.mesh_propagation.loop_program import LoopOp, LoopProgram, LoopValue, Place
from hlosharding.mesh_propagation.loops import Option
from hlosharding.mesh_propagation.notes import OUTPUT, USER, AxisAnnotation, Note, Notes
from hlosharding.mesh_propagation.offers import Offer
from hlosharding.mesh_propagation.options import Inference
from hlosharding.notations import AxisSharding
from hlosharding.sharding import Cluster


def read_notes(module: Module, program: LoopProgram, cluster: Cluster, given: Any) -> Notes:
    """The module's own shardings and the annotations given, {value: sharding} or a list of AxisAnnotation."""
    notes, names = Notes(program), _ValueNames(module, program)
    _read_module(module, notes, cluster)
    said: dict[LoopValue, Note] = {}
    for annotation in _as_list(given):
        value = names.value(annotation.value)
        where = f"annotation of %{value.name} {value.shape}"
        note = Note(_fitting(annotation.sharding, value.shape.rank, cluster, where), annotation.required, annotation.by)
        if not annotation.annotate_for_users:
            # Compared with other annotations alone: what the module itself says of the value gives way without a word.
            before = said.setdefault(value, note)
            if before.sharding != note.sharding:
                remedy = "give one (a tuple's element is the value that went in)"
                what = f"annotated as {before.sharding} and as {note.sharding}, and it has one result"
                raise AnnotationError(what, where=where, remedy=remedy)
            notes.results[value] = note
            continue
        for place in _places(notes, value, annotation, where):
            notes.uses[place] = note
    return notes


def _as_list(given: Any) -> list[AxisAnnotation]:
    if not isinstance(given, Mapping):
        return list(given)
    return [
        replace(wanted, value=name) if isinstance(wanted, AxisAnnotation) else AxisAnnotation(name, wanted)
        for name, wanted in given.items()
    ]


def _read_module(module: Module, notes: Notes, cluster: Cluster) -> None:
    for inst, values in notes.program.values.items():
        sharding = module.sharding(inst)
        # A tuple's leaves are annotated where they are made.
        if sharding is None or inst.shape.is_tuple or sharding.is_tuple() or sharding.is_unknown():
            continue
        try:
            notes.results[values[0]] = Note(AxisSharding.from_hlo(sharding, cluster), True, USER)
        except ShardingError as error:
            where = inst.where
            raise AnnotationError(error.what, where=where, remedy=error.remedy) from error


class _ValueNames:
    """What values and ops may be called by."""

    def __init__(self, module: Module, program: LoopProgram) -> None:
        self._values = {value.name: value for values in program.values.values() for value in values}
        self._found: dict[str, Instruction] = {i.name: i for i in program.values}
        for path, inst in module.paths.items():
            self._found.setdefault(path, inst)
        self._program = program

    def value(self, name: str) -> LoopValue:
        """The one array of that name: an instruction, a parameter's path, or `name{2}` for a leaf of a tuple."""
        name = name.removeprefix("%")
        inst = self._found.get(name)
        if inst is not None and not inst.shape.is_tuple:
            return self._program.values[inst][0]
        if name in self._values:
            return self._values[name]
        if inst is not None:
            raise AnnotationError(f"%{name} is a tuple", remedy=f"annotate one leaf, as in {name}{{0}}")
        near = get_close_matches(name, [*self._found, *self._values], 3)
        remedy = f"did you mean {', '.join(near)}?" if near else "see module.to_hlo_text() for the names"
        raise AnnotationError(f"no instruction or parameter path {name!r}", remedy=remedy)


def _fitting(sharding: Any, rank: int, cluster: Cluster, where: str) -> AxisSharding:
    try:
        return AxisSharding.of(sharding, rank).rename(cluster.axis)
    except ShardingError as error:
        raise AnnotationError(error.what, where=where, remedy=error.remedy) from error


def _places(notes: Notes, value: LoopValue, annotation: AxisAnnotation, where: str) -> list[Place]:
    places = notes.places(value)
    users = [_names(place) for place in places]
    for wanted in annotation.users:
        if not any(wanted.removeprefix("%") in names for names in users):
            known = ", ".join(names[0] for names in users) or "none"
            raise AnnotationError(f"{wanted} does not use the value", where=where, remedy=f"its users: {known}")
    if not places:
        raise AnnotationError("the value has no users", where=where, remedy="annotate it as a result")
    asked = {name.removeprefix("%") for name in annotation.users}
    named = [place for place, names in zip(places, users, strict=True) if not asked or asked & set(names)]
    found = [place for place in named if annotation.operand in (None, place[1])]
    if not found:
        known = ", ".join(f"operand {place[1]} of {_names(place)[0]}" for place in named)
        what = f"the value is nowhere operand {annotation.operand}"
        raise AnnotationError(what, where=where, remedy=f"it is {known}")
    return found


def _names(place: Place) -> tuple[str, ...]:
    return (OUTPUT,) if place[0] is None else (place[0].name, place[0].instruction.name)


def read_options(program: LoopProgram, cluster: Cluster, given: Mapping[str, Any]) -> dict[LoopOp, Option]:
    """Sharding options by op name: a list of axes per loop, or {loop name: axes}."""
    ops = {op.name: op for op in program.ops}
    found: dict[LoopOp, Option] = {}
    for name, wanted in given.items():
        op = ops.get(name.removeprefix("%"))
        if op is None:
            near = get_close_matches(name, ops, 3)
            remedy = f"did you mean {', '.join(near)}?" if near else "options are for ops that compute"
            raise AnnotationError(f"no op %{name} to give an option to", remedy=remedy)
        found[op] = _option(op, cluster, wanted)
    return found


def _option(op: LoopOp, cluster: Cluster, wanted: Any) -> Option:
    names = list(op.signature.index)
    where = f"option of {op.where}, loops {' '.join(names) or 'none'}"
    if isinstance(wanted, Mapping):
        unknown = next((name for name in wanted if name not in names), None)
        if unknown is not None:
            raise AnnotationError(f"no loop {unknown!r}", where=where)
        wanted = [_axes(wanted.get(name, ())) for name in names]
    sharding = _fitting(wanted, len(names), cluster, where)
    if sharding.partial:
        raise AnnotationError("an option has no partial axes", where=where, remedy="split a reduction loop instead")
    inference = Inference(op, cluster)
    for loop in range(len(names)):
        inference.offer(loop, Offer("the option", sharding.along(loop), required=True))
    if inference.conflicts:
        conflict = inference.conflicts[0]
        remedy = "choose other axes or another loop"
        raise AnnotationError(f"{conflict.offers[0]} on {conflict.loop}: {conflict.reason}", where=where, remedy=remedy)
    return inference.option


def _axes(wanted: Any) -> Iterable[Any]:
    return (wanted,) if isinstance(wanted, int | str) else wanted
