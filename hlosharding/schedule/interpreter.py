"""The one interpreter: a schedule run on values of which all, some or no elements are known.

Floor: schedule.  Types and shapes (the verifier), the reference executor, the projection to ranks and the simulator are
this function, called with other arguments and watched by other observers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hlosharding.errors import ScheduleError
from hlosharding.schedule.interface import Argument, is_abstract, value_of
from hlosharding.schedule.op import Known, Op, Value, no_meaning, type_of
from hlosharding.schedule.steps import (
    Apply,
    Call,
    Free,
    Function,
    Functions,
    Step,
    function_named,
    located,
    names_text,
    place_of,
)
from hlosharding.schedule.value_type import ValueType

Names = tuple[int, ...]
"""Values of a run, numbered as they are made."""


class Observer:
    """What is told of each step of a run.  Values are numbered: one that a call hands on keeps its number."""

    def on_enter(self, parameters: Names, values: Sequence[Value]) -> None:
        """The run begins with these."""

    def on_apply(self, step: Apply, function: str, operands: Names, results: Names, made: Sequence[Value]) -> None:
        """An op ran; `made` are its results."""

    def on_name(self, name: str, value: int, function: str) -> None:
        """A call made this value; the function that called gives it this name."""

    def on_free(self, values: Names) -> None:
        """Nothing reads these any more."""

    def on_leave(self, results: Names) -> None:
        """The run ends, with these as its results."""


MOST_KNOWN = 64
"""Elements of a value that are known while a schedule is only looked at: those of sizes and indices, not of data.  The
longest of them is a shape, whose rank is far below; what is longer costs time at each step of a stranger's text."""


def interpret(
    functions: Functions, arguments: Sequence[Argument] | None = None, observer: Observer | None = None
) -> list[Value]:
    """Run @main; its results.

    `arguments`: for each parameter an array (its elements are known), or a ShapeDtypeStruct or ValueType.  An op of
    which all operands are known computes, if it says what; another gives what its `infer` makes of types, which may be
    known, too (the shape of an array of which only the type is known).

    Without arguments the schedule is only looked at: parameters are what their types say, no program runs, and more
    than MOST_KNOWN elements are never known.  What is known then is so in every run.

    Raises ScheduleError with the step where types, devices or shares do not fit, or a value is not there.
    """
    main = function_named(functions, "main")
    if arguments is not None and len(arguments) != len(main.parameters):
        what = f"{len(arguments)} arguments for the {len(main.parameters)} parameters of @{main.name}"
        raise ScheduleError(what, remedy=f"they are {names_text([p.name for p in main.parameters])}")
    run = _Interpretation(functions, observer or Observer(), infer_op if arguments is None else compute_op)
    given = list(map(value_of, main.parameters, arguments or [p.type for p in main.parameters]))
    parameters = tuple(map(run.add_value, given))
    run.observer.on_enter(parameters, given)
    results = run.run_function(main, parameters, ())
    run.observer.on_leave(results)
    return [run.values[n] for n in results]


def run_reference(functions: Functions, arrays: Sequence[Any]) -> list[np.ndarray]:
    """All elements known: what the schedule means, one whole array for each parameter of @main in."""
    if any(map(is_abstract, arrays)):
        raise ScheduleError("a run takes arrays, not their shapes alone", remedy="give each element")
    found = interpret(functions, arrays, _Computing())
    return [value.array for value in found if isinstance(value, Known)]


class _Computing(Observer):
    """Every element of every value is known."""

    def on_apply(self, step: Apply, function: str, operands: Names, results: Names, made: Sequence[Value]) -> None:
        if not step.op.has_meaning:
            raise no_meaning(step.op)


Making = Callable[[Op, Sequence[Value]], Sequence[Value]]


def compute_op(op: Op, operands: Sequence[Value]) -> Sequence[Value]:
    """What an op makes of values in a run: computed, where all are known."""
    return _compute_known(op, operands, op.infer(operands))


def infer_op(op: Op, operands: Sequence[Value]) -> Sequence[Value]:
    """What an op makes of values while a schedule is only looked at: soon done, whatever a stranger wrote."""
    made = op.infer(operands)
    if op.is_program or any(type_of(value).shape.size > MOST_KNOWN for value in made):
        return [value if type_of(value).shape.size <= MOST_KNOWN else type_of(value) for value in made]
    return _compute_known(op, operands, made)


def _compute_known(op: Op, operands: Sequence[Value], made: Sequence[Value]) -> Sequence[Value]:
    known = [value for value in operands if isinstance(value, Known)]
    if len(known) < len(operands) or not op.has_meaning:
        return made
    results = [type_of(value) for value in made]
    arrays = op.compute([value.array for value in known], [value.type for value in known], results)
    return [Known(array, kind) for array, kind in zip(arrays, results, strict=True)]


class _Interpretation:
    def __init__(self, functions: Functions, observer: Observer, made_by: Making) -> None:
        self.functions, self.observer, self.made_by = functions, observer, made_by
        self.values: list[Value] = []
        self.gone: set[int] = set()
        self.inferred: dict[tuple[Any, ...], Sequence[Value]] = {}
        """(op, its operands) to results: what is repeated on equal types is inferred once."""

    def add_value(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def run_function(self, function: Function, arguments: Names, callers: tuple[str, ...]) -> Names:
        if function.name in callers:
            raise ScheduleError(f"@{function.name} calls itself", remedy="a schedule has no recursion")
        env: dict[str, int] = {}
        for parameter, number in zip(function.parameters, arguments, strict=True):
            _define(env, parameter.name, number)
            _check_agrees(parameter.name, parameter.type, type_of(self.values[number]))
        for step in function.steps:
            with located(place_of, function.name, step):
                self.run_step(step, function, env, callers)
        with located("return of @{}".format, function.name):
            return tuple(self.read_name(env, name) for name in function.results)

    def read_name(self, env: dict[str, int], name: str) -> int:
        number = env.get(name)
        if number is None:
            raise ScheduleError(f"%{name} is not defined before")
        if number in self.gone:
            raise ScheduleError(f"%{name} is gone: it was freed, or an op overwrote it", remedy="read it earlier")
        return number

    def run_step(self, step: Step, at: Function, env: dict[str, int], callers: tuple[str, ...]) -> None:
        if isinstance(step, Free):
            freed = tuple(self.read_name(env, name) for name in step.values)
            self.observer.on_free(freed)
            self.gone.update(freed)
            return
        operands = tuple(self.read_name(env, name) for name in step.operands)
        made_before = len(self.values)
        results = (
            self.run_call(step, operands, (*callers, at.name))
            if isinstance(step, Call)
            else self.run_op(step, operands)
        )
        if len(results) != len(step.results):
            raise ScheduleError(f"it has {len(results)} results, {len(step.results)} are named")
        for name, number in zip(step.results, results, strict=True):
            _define(env, name, number)
            # What a call only hands on has its name from before.
            if isinstance(step, Call) and number >= made_before:
                self.observer.on_name(name, number, at.name)
        if len(step.stated) > len(results):
            raise ScheduleError(f"it has {len(results)} results, {len(step.stated)} types are stated")
        for name, stated, number in zip(step.results, step.stated, results, strict=False):  # a text may leave types out
            _check_agrees(name, stated, type_of(self.values[number]))
        if isinstance(step, Apply):
            self.gone.update(operands[n] for n in step.op.donates)
            self.observer.on_apply(step, at.name, operands, results, [self.values[n] for n in results])

    def run_call(self, step: Call, operands: Names, callers: tuple[str, ...]) -> Names:
        callee = function_named(self.functions, step.function)
        if len(callee.parameters) != len(operands):
            raise ScheduleError(f"@{callee.name} takes {len(callee.parameters)} operands, {len(operands)} were given")
        return self.run_function(callee, operands, callers)

    def run_op(self, step: Apply, operands: Names) -> Names:
        # Types are equal where they say the same, a known value only to itself: no elements are compared.
        key = (step.op, *(self.values[n] for n in operands))
        if key not in self.inferred:
            self.inferred[key] = self.made_by(step.op, key[1:])
        return tuple(map(self.add_value, self.inferred[key]))


def _define(env: dict[str, int], name: str, number: int) -> None:
    if name in env:
        raise ScheduleError(f"%{name} is defined twice", remedy="each value has a name of its own")
    env[name] = number


def _check_agrees(name: str, stated: ValueType | None, found: ValueType) -> None:
    if stated is not None and stated != found:
        raise ScheduleError(f"%{name} is {found}, stated as {stated}")
