"""Stages that somebody says: by function of the program's source, or by node of an ONNX model.

Floor: schedule.  What is said holds for forward ops; where nothing is said, an op goes where the data flow has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import count

from hlosharding.errors import ScheduleError, is_count
from hlosharding.ir import Instruction, Module
from hlosharding.schedule.cutting.microbatched import error_at, reads_of

Said = tuple[tuple[str, int], ...]
"""Of functions, or nodes, the stage."""


def count_said_stages(said: Mapping[str, int]) -> int:
    """How many stages there are.  Raises ScheduleError where one is left out.

    >>> count_said_stages({"encoder": 0, "middle": 1, "decoder": 2})
    3
    """
    if not said:
        raise ScheduleError("no function or node is in a stage", remedy="say of some in which, or how many there are")
    for name, stage in said.items():
        if not is_count(stage, 0):
            raise ScheduleError(f"{name!r} is in stage {stage!r}", remedy="stages are whole numbers from 0 on")
    stages = {stage: name for name, stage in said.items()}
    gap = next(number for number in count() if number not in stages)
    above = min((stage for stage in stages if stage > gap), default=None)
    if above is not None:
        below = f"{stages[gap - 1]!r} is in stage {gap - 1}, " if gap else ""
        what = f"nothing is in stage {gap}: {below}{stages[above]!r} in stage {above}"
        raise ScheduleError(what, remedy="count stages from 0 without leaving one out")
    return gap


def check_known(module: Module, said: Mapping[str, int]) -> None:
    """Raises ScheduleError for a name that is none of the program: nodes that left no op are in `Module.stages`."""
    known = {name for inst in module.instructions for name in _sources(inst)} | set(module.stages)
    for name in said:
        if name not in known:
            near = get_close_matches(name, known, 3)
            remedy = f"did you mean {', '.join(map(repr, near))}?" if near else "name functions, or nodes of a model"
            raise ScheduleError(f"no op comes from {name!r}, which is said to be in stage {said[name]}", remedy=remedy)


def place_as_said(forward: Sequence[Instruction], said: Mapping[str, int]) -> dict[Instruction, int]:
    """The stage of each forward op, these in program order.

    One of which nothing is said goes where the last of what it reads is made; what reads nothing of the kind goes with
    the first that reads it.  Raises ScheduleError where values would flow up the pipeline.
    """
    readers = _first_readers(forward, said)
    stage: dict[Instruction, int] = {}
    cause: dict[Instruction, Instruction] = {}
    for inst in forward:
        last = max((o for o in reads_of(inst) if o in stage), key=stage.__getitem__, default=None)
        wanted = said_stage_of(inst, said)
        # Elements stay with the loop that they are of, whatever is said of their line.
        if wanted is None or inst.opcode == "get-tuple-element":
            stage[inst] = readers.get(inst, 0) if last is None else stage[last]
            cause[inst] = inst if last is None else cause[last]
            continue
        if last is not None and stage[last] > wanted:
            raise _flows_up(cause[last], stage[last], inst, wanted)
        stage[inst], cause[inst] = wanted, inst
    return stage


def said_stage_of(inst: Instruction, said: Mapping[str, int]) -> int | None:
    """Of the innermost function, or node, of which there is something said."""
    return next((said[name] for name in _sources(inst) if name in said), None) if said else None


def source_of(inst: Instruction) -> str:
    """The function of its source, or the node; "" where that is not known."""
    return next(_sources(inst), "")


def _sources(inst: Instruction) -> Iterator[str]:
    """The innermost first."""
    return (frame.function for frame in inst.frames.of_user)


def _first_readers(forward: Sequence[Instruction], said: Mapping[str, int]) -> dict[Instruction, int]:
    """Of what is read, perhaps by way of ops of which nothing is said, the first stage that wants it."""
    found: dict[Instruction, int] = {}
    # Readers first: so one pass tells it through any chain of ops.
    for inst in reversed(forward):
        own = said_stage_of(inst, said)
        wanted = found.get(inst) if own is None else own
        if wanted is not None:
            found.update({operand: min(wanted, found.get(operand, wanted)) for operand in reads_of(inst)})
    return found


def _flows_up(maker: Instruction, made: int, reader: Instruction, wanted: int) -> ScheduleError:
    """What reads a value is said to be in a stage before that of what it is made of."""
    what = f"{source_of(maker)!r} is in stage {made}, and {source_of(reader)!r}, which reads of it, in stage {wanted}"
    return error_at(reader, what, "values go from a stage to later ones: say others, or only how many stages there are")
