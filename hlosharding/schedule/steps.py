"""The steps of a schedule, in functions; their order is the order in which every device works.

Floor: schedule.  Data only: what steps mean stands in the ops, whether they make sense the interpreter says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hlosharding.errors import HloShardingError, ScheduleError
from hlosharding.schedule.op import Op
from hlosharding.schedule.value_type import ValueType


@dataclass(frozen=True, slots=True)
class Apply:
    """Run an op."""

    op: Op
    operands: tuple[str, ...]
    results: tuple[str, ...]
    stated: tuple[ValueType | None, ...] = ()
    """Types of the results that the schedule's text states, to be checked."""
    where: str = ""
    """Line of the text, or what it stands for."""


@dataclass(frozen=True, slots=True)
class Call:
    """Run another function of the schedule."""

    function: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    stated: tuple[ValueType | None, ...] = ()
    where: str = ""


@dataclass(frozen=True, slots=True)
class Free:
    """Give back the memory of values: nothing reads them any more.  Without it a value lives until its last reader."""

    values: tuple[str, ...]
    where: str = ""


Step = Apply | Call | Free


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a function takes; of the entry's parameters the type is stated."""

    name: str
    type: ValueType | None = None


@dataclass(frozen=True, slots=True)
class Function:
    """Steps in order, each value named once."""

    name: str
    parameters: tuple[Parameter, ...]
    steps: tuple[Step, ...]
    results: tuple[str, ...]


Functions = Mapping[str, Function]
"""By name; the one called "main" is run."""


def function_named(functions: Functions, name: str) -> Function:
    """Raises ScheduleError where there is none of that name."""
    found = functions.get(name)
    if found is None:
        known = ", ".join(f"@{each}" for each in functions) or "none"
        raise ScheduleError(f"no function @{name}", remedy=f"there are {known}")
    return found


def step_text(step: Step) -> str:
    """A step without attributes and types, as messages name it.

    >>> step_text(Free(("x", "y")))
    'free %x, %y'
    """
    if isinstance(step, Free):
        return f"free {names_text(step.values)}"
    results = f"{names_text(step.results)} = " if step.results else ""
    word = f"call @{step.function}" if isinstance(step, Call) else step.op.name
    return f"{results}{word}({names_text(step.operands)})"


def names_text(names: Sequence[str]) -> str:
    """As they stand in a text.

    >>> names_text(("x", "y"))
    '%x, %y'
    """
    return ", ".join(f"%{name}" for name in names)


def place_of(function: str, step: Step) -> str:
    """Where a message points to."""
    line = f"{step.where}: " if step.where else ""
    return f"{line}{step_text(step)} of @{function}"


@contextmanager
def located(place: Callable[..., str], *arguments: Any) -> Iterator[None]:
    """Errors of the block as ScheduleErrors at a place, which is asked for only then.

    >>> with located(place_of, "main", Free(("x",))):
    ...     raise ScheduleError("%x is gone")
    Traceback (most recent call last):
        ...
    hlosharding.errors.ScheduleError: %x is gone; at free %x of @main
    """
    try:
        yield
    except HloShardingError as error:
        # It has a place already: that of a step inside of a call, which is the one to look at.
        if isinstance(error, ScheduleError) and error.where is not None:
            raise
        raise ScheduleError(error.what, where=place(*arguments), remedy=error.remedy) from error
