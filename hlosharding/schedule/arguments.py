"""What a schedule's caller gives, and gets, as values of the interpreter: arrays, and shapes of arrays.

Floor: schedule.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hlosharding.errors import ScheduleError
from hlosharding.ir import Shape
from hlosharding.schedule.interface import is_abstract
from hlosharding.schedule.op import Known, Value, type_of
from hlosharding.schedule.steps import Parameter, located
from hlosharding.schedule.value_type import ValueType, numbers_for

Argument = ValueType | Known | Any


def value_of(parameter: Parameter, given: Argument) -> Value:
    """What a parameter of @main is where this is given.  Raises ScheduleError where it does not fit."""
    stated = parameter.type
    if stated is None:
        raise ScheduleError(f"parameter %{parameter.name} has no type", remedy="state those of the entry's parameters")
    if not isinstance(given, ValueType | Known):
        if not is_abstract(given):
            with located("argument %{}".format, parameter.name):
                return Known(np.asarray(numbers_for(given, stated.shape)), stated)
        given = replace(stated, shape=Shape.from_dtype(given.dtype, given.shape))
    if type_of(given) != stated:
        raise ScheduleError(f"parameter %{parameter.name} is {stated}, the argument {type_of(given)}")
    return given


def elements_of(value: Value) -> Any:
    """A known value as its array, another as a ShapeDtypeStruct."""
    import jax

    if isinstance(value, Known):
        return value.array
    return jax.ShapeDtypeStruct(value.shape.dims, value.shape.dtype)
