"""A schedule as text: its programs, then its functions, a step a line; `parser` reads it.

Floor: schedule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hlosharding.executor import BoundaryArray
from hlosharding.schedule.flat_run import FlatRun
from hlosharding.schedule.interpreter import interpret
from hlosharding.schedule.op import Op
from hlosharding.schedule.spelling import attributes_text
from hlosharding.schedule.stage_program import StageProgram
from hlosharding.schedule.steps import Apply, Function, Functions, Parameter, Step, names_text, step_text
from hlosharding.schedule.value_type import Types, ValueType


def schedule_text(functions: Functions, ops: Mapping[str, Op], *, programs: bool = False) -> str:
    """The text.  With `programs` it holds the HLO of stage programs, source lines included, and can be read by itself;
    else who reads it must have them.  Users' ops stand in no text.
    """
    run = FlatRun()
    interpret(functions, observer=run)
    types = _types_of_steps(run)
    lines: list[str] = []
    for op in ops.values():
        if programs and isinstance(op, StageProgram):
            lines += [*_program_lines(op), ""]
    for function in functions.values():
        lines += [*_function_lines(function, types), ""]
    return "\n".join(lines).rstrip()


def _types_of_steps(run: FlatRun) -> dict[int, list[ValueType]]:
    """Of each step's results, by its identity; none where they differ from call to call."""
    found: dict[int, list[ValueType]] = {}
    for event in run.events:
        types = [run.types[n] for n in event.results]
        if found.setdefault(id(event.step), types) != types:
            found[id(event.step)] = []
    return found


def _program_lines(op: StageProgram) -> Iterator[str]:
    marks = (("sums", op.sums), ("donates", op.donates))
    said = "".join(f" {word}={{{','.join(map(str, found))}}}" for word, found in marks if found)
    yield f"program {op.name}({_boundary(op.inputs)}) -> ({_boundary(op.outputs)}){said} devices={op.num_devices} <<<"
    yield op.program.module.to_hlo_text(metadata=True).rstrip()
    yield ">>>"


def _boundary(arrays: Sequence[BoundaryArray]) -> str:
    return "; ".join(f"{array.shape} as {array.sharding}" for array in arrays)


def _function_lines(function: Function, types: Mapping[int, Types]) -> Iterator[str]:
    yield f"func @{function.name}({', '.join(map(_parameter, function.parameters))}) {{"
    for step in function.steps:
        yield f"  {_step(step, types.get(id(step), ()))}"
    yield f"  return {names_text(function.results)}".rstrip()
    yield "}"


def _parameter(parameter: Parameter) -> str:
    return f"%{parameter.name}" + (f": {parameter.type}" if parameter.type is not None else "")


def _step(step: Step, types: Types) -> str:
    if not isinstance(step, Apply):
        return step_text(step)
    stated = f" : {'; '.join(map(str, types))}" if types else ""
    return f"{step_text(step)}{attributes_text(step.op)}{stated}"
