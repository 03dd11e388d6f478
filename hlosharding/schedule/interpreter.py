"""The one interpreter: a schedule run on values of which all, some or no elements are known.

Floor: schedule.  Types and shapes (the verifier), the reference executor, the projection to ranks and the simulator are
this function, called with other arguments and watched by other observers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlosharding.errors import HloShardingError, ScheduleError
from hlosharding.schedule.op import Known, Op, Value, type_of, without_meaning
from hlosharding.schedule.steps import Apply, Call, Free, Function, Functions, Step, function_named, place_of
from hlosharding.schedule.value_type import ValueType

Names = tuple[int, ...]
"""Values of a run, numbered as they are made."""


class Observer:
    """What is told of each step of a run.  Values are numbered: one that a call hands on keeps its number."""

    def entered(self, parameters: Names, values: Sequence[Value]) -> None:
        """The run begins with these."""

    def applied(self, step: Apply, function: str, operands: Names, results: Names, made: Sequence[Value]) -> None:
        """An op ran; `made` are its results."""

    def named(self, name: str, value: int, function: str) -> None:
        """A call made this value; the function that called gives it this name."""

    def freed(self, values: Names) -> None:
        """Nothing reads these any more."""

    def left(self, results: Names) -> None:
        """The run ends, with these as its results."""


Argument = ValueType | Known | Any


def interpret(
    functions: Functions, arguments: Sequence[Argument] = (), observer: Observer | None = None
) -> list[Value]:
    """Run @main; its results.

    `arguments`: for each parameter an array (its elements are known), or a ValueType; those not given are known by the
    type that the parameter states.  An op of which all operands are known computes, if it says what; another gives
    what its `infer` makes of types, which may be known, too (the shape of an array of which only the type is known).

    Raises ScheduleError with the step where types, devices or shares do not fit, or a value is not there.
    """
    run = _Run(functions, observer or Observer())
    main = function_named(functions, "main")
    if len(arguments) > len(main.parameters):
        raise ScheduleError(f"{len(arguments)} arguments for the {len(main.parameters)} parameters of @{main.name}")
    given = [
        _argument(p.name, p.type, arguments[n] if n < len(arguments) else None) for n, p in enumerate(main.parameters)
    ]
    parameters = tuple(map(run.number, given))
    run.observer.entered(parameters, given)
    results = run.function(main, parameters, ())
    run.observer.left(results)
    return [run.values[n] for n in results]


def run_reference(functions: Functions, arrays: Sequence[Any]) -> list[np.ndarray]:
    """All elements known: what the schedule means, one whole array for each parameter of @main in."""
    parameters = function_named(functions, "main").parameters
    if len(arrays) != len(parameters):
        raise ScheduleError(f"{len(arrays)} arrays for the {len(parameters)} parameters of @main")
    found = interpret(functions, [np.asarray(array) for array in arrays], _Computing())
    return [value.array for value in found if isinstance(value, Known)]


class _Computing(Observer):
    """Every element of every value is known."""

    def applied(self, step: Apply, function: str, operands: Names, results: Names, made: Sequence[Value]) -> None:
        if not step.op.has_meaning:
            raise without_meaning(step.op)


def _argument(name: str, stated: ValueType | None, given: Argument) -> Value:
    if stated is None:
        raise ScheduleError(f"parameter %{name} has no type", remedy="state those of the entry's parameters")
    if given is None:
        return stated
    if not isinstance(given, ValueType | Known):
        return Known(given, stated)
    if type_of(given) != stated:
        raise ScheduleError(f"parameter %{name} is {stated}, the argument {type_of(given)}")
    return given


class _Run:
    def __init__(self, functions: Functions, observer: Observer) -> None:
        self.functions, self.observer = functions, observer
        self.values: list[Value] = []
        self.gone: set[int] = set()
        self.inferred: dict[tuple[Any, ...], Sequence[Value]] = {}
        """(op, its operands) to results: what is repeated on equal types is inferred once."""

    def number(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def function(self, function: Function, arguments: Names, callers: tuple[str, ...]) -> Names:
        if function.name in callers:
            raise ScheduleError(f"@{function.name} calls itself", remedy="a schedule has no recursion")
        env: dict[str, int] = {}
        for parameter, number in zip(function.parameters, arguments, strict=True):
            _define(env, parameter.name, number)
            _agrees(parameter.type, type_of(self.values[number]))
        for step in function.steps:
            try:
                self.step(step, function, env, callers)
            except HloShardingError as error:
                if isinstance(error, ScheduleError) and error.where is not None:
                    raise
                raise ScheduleError(error.what, where=place_of(function.name, step), remedy=error.remedy) from error
        try:
            return tuple(self.read(env, name) for name in function.results)
        except ScheduleError as error:
            raise ScheduleError(error.what, where=f"return of @{function.name}", remedy=error.remedy) from error

    def read(self, env: dict[str, int], name: str) -> int:
        number = env.get(name)
        if number is None:
            raise ScheduleError(f"%{name} is not defined before")
        if number in self.gone:
            raise ScheduleError(f"%{name} is gone: it was freed, or an op overwrote it", remedy="read it earlier")
        return number

    def step(self, step: Step, at: Function, env: dict[str, int], callers: tuple[str, ...]) -> None:
        if isinstance(step, Free):
            freed = tuple(self.read(env, name) for name in step.values)
            self.observer.freed(freed)
            self.gone.update(freed)
            return
        operands = tuple(self.read(env, name) for name in step.operands)
        made_before = len(self.values)
        results = (
            self.call(step, operands, (*callers, at.name)) if isinstance(step, Call) else self.apply(step, operands)
        )
        if len(results) != len(step.results):
            raise ScheduleError(f"it has {len(results)} results, {len(step.results)} are named")
        for name, number in zip(step.results, results, strict=True):
            _define(env, name, number)
            if isinstance(step, Call) and number >= made_before:
                self.observer.named(name, number, at.name)
        for stated, number in zip(step.stated, results, strict=False):
            _agrees(stated, type_of(self.values[number]))
        if isinstance(step, Apply):
            self.gone.update(operands[n] for n in step.op.donated)
            self.observer.applied(step, at.name, operands, results, [self.values[n] for n in results])

    def call(self, step: Call, operands: Names, callers: tuple[str, ...]) -> Names:
        callee = function_named(self.functions, step.function)
        if len(callee.parameters) != len(operands):
            raise ScheduleError(f"@{callee.name} takes {len(callee.parameters)} operands, {len(operands)} were given")
        return self.function(callee, operands, callers)

    def apply(self, step: Apply, operands: Names) -> Names:
        values = [self.values[n] for n in operands]
        return tuple(map(self.number, self._applied(step.op, values)))

    def _applied(self, op: Op, values: Sequence[Value]) -> Sequence[Value]:
        key = (op, *values)
        if key not in self.inferred:
            self.inferred[key] = _made(op, values)
        return self.inferred[key]


def _made(op: Op, values: Sequence[Value]) -> Sequence[Value]:
    made = op.infer(values)
    known = [value for value in values if isinstance(value, Known)]
    if len(known) < len(values) or not op.has_meaning:
        return made
    arrays = op.meaning([value.array for value in known], [value.type for value in known])
    if len(arrays) != len(made):
        raise ScheduleError(f"{op.name} computes {len(arrays)} arrays, it has the types of {len(made)}")
    return [Known(array, type_of(value)) for array, value in zip(arrays, made, strict=True)]


def _define(env: dict[str, int], name: str, number: int) -> None:
    if name in env:
        raise ScheduleError(f"%{name} is defined twice", remedy="each value has a name of its own")
    env[name] = number


def _agrees(stated: ValueType | None, found: ValueType) -> None:
    if stated is not None and stated != found:
        raise ScheduleError(f"its type is {found}, stated as {stated}")
