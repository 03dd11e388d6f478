"""The interpreter on types, or on some known elements, says of every run on arrays what is so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlosharding.cost import machines
from hlosharding.errors import ScheduleError
from hlosharding.schedule import Known, Schedule, UserOp, ValueType, parse_schedule, run_ranks
from hlosharding.schedule.interface import Argument
from hlosharding.schedule.interpreter import Names, Observer, interpret
from hlosharding.schedule.local_ops import Split
from hlosharding.schedule.op import Value, type_of
from hlosharding.schedule.steps import Apply, Functions
from hlosharding.schedule.value_type import parse_type
from tests.support.random_schedules import schedules


class Seen(Observer):
    """Every value that a run made."""

    def __init__(self, functions: Functions, arguments: Sequence[Argument]) -> None:
        self.values: list[Value] = []
        self.results = interpret(functions, arguments, self)

    def on_apply(self, step: Apply, function: str, operands: Names, results: Names, made: Sequence[Value]) -> None:
        self.values += made


@given(functions=schedules(), data=st.data())
def test_what_a_run_on_types_says_is_so_in_every_run(functions: Functions, data: st.DataObject) -> None:
    """Some of the inputs are known, the others have any elements."""
    types = [parameter.type for parameter in functions["main"].parameters]
    is_known = data.draw(st.tuples(*(st.booleans() for _ in types)))

    def inputs(seed: int) -> list[Any]:
        random = np.random.default_rng(seed)
        return [kind.as_array(random.integers(-9, 9, kind.shape.dims)) for kind in types if kind is not None]

    known = inputs(0)
    mixed = Seen(functions, [a if k else t for a, t, k in zip(known, types, is_known, strict=True)])
    for seed in (0, 1, 2):
        every = [a if k else other for a, other, k in zip(known, inputs(seed), is_known, strict=True)]
        concrete = Seen(functions, every)
        covers(mixed.values, concrete.values)
        covers(mixed.results, concrete.results)


def covers(said: Sequence[Value], found: Sequence[Value]) -> None:
    assert [type_of(value) for value in said] == [type_of(value) for value in found]
    for claim, value in zip(said, found, strict=True):
        assert isinstance(value, Known)
        if isinstance(claim, Known):
            np.testing.assert_array_equal(claim.array, value.array)


X = "func @main(%x: f32[4] on {0}, %w: f32[4] on {0}) {\n"


def test_types_that_hand_on_an_operand_do_not_hand_on_its_elements() -> None:
    shifted = UserOp("shifted", lambda x, _: x, lambda x, w: x + w)
    schedule = parse_schedule(f"{X} %y = @shifted(%x, %w)\n return %y\n}}", {"shifted": shifted})
    [found] = interpret(schedule.functions, [np.ones(4, np.float32), parse_type("f32[4] on {0}")])
    assert not isinstance(found, Known)


def test_types_of_an_op_see_types_whatever_is_known() -> None:
    doubled = UserOp("doubled", lambda x: ValueType(x.shape, x.devices), lambda x: 2 * x)
    schedule = parse_schedule(f"{X} %y = @doubled(%x)\n return %y\n}}", {"doubled": doubled})
    assert [each.tolist() for each in schedule.run_reference([1, 2, 3, 4], [0] * 4)] == [[2, 4, 6, 8]]


def test_what_is_known_of_a_piece_is_of_that_piece() -> None:
    [piece] = Split(0, 2, "micro").infer([parse_type("f32[4] on {0}")])[:1]
    size = UserOp("size", lambda x: Known(np.array(x.shape.dims[0]), parse_type("s32[] on {0}")))
    assert [str(value) for value in size.infer([piece])] == ["s32[] on {0}, piece 0/2 of micro = 2"]


def test_an_op_that_reads_only_numbers_and_says_no_meaning_is_simulated() -> None:
    steps = "%n = number() piece=0 parts=1 axis=micro to={0}\n%y = @seeded(%n)\nreturn %y"
    seeded = UserOp("seeded", lambda n: parse_type("f32[4] on {0}"), seconds=2.0)
    schedule = parse_schedule(f"{X}{steps}\n}}", {"seeded": seeded})
    assert schedule.simulate(machines.h100(1)).time_s == 2.0
    with pytest.raises(ScheduleError, match=r"nothing says what @seeded computes; at line 3"):
        schedule.run_reference(np.ones(4), np.ones(4))


RUNS: dict[str, Callable[[Schedule, Any], Any]] = {
    "on one device": lambda schedule, array: schedule.run_reference(array),
    "on devices": lambda schedule, array: schedule.compile()(array),
    "as ranks": lambda schedule, array: run_ranks(schedule.ranks(), array),
}
STEP = "func @main(%x: s32[4] on {0}) {\n %y = @step(%x)\n %z = send(%y) to={1}\n return %z\n}"


def step(arrays: Callable[[np.ndarray], Any]) -> Schedule:
    return parse_schedule(STEP, {"step": UserOp("step", lambda x: x, arrays)})


@pytest.mark.parametrize("run", RUNS)
def test_arrays_of_other_integers_are_converted(run: str) -> None:
    [found] = RUNS[run](step(np.cumsum), np.arange(4, dtype=np.int32))  # numpy makes s64 of them
    np.testing.assert_array_equal(np.asarray(found), np.array([0, 1, 3, 6], np.int32), strict=True)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        (lambda x: (x, x), "@step computes 2 arrays, it has the types of 1"),
        (lambda x: (), "@step computes 0 arrays"),
        (lambda x: x.reshape(2, 2), r"@step computes an array of shape \[2, 2\] for s32\[4\]"),
    ],
)
def test_arrays_that_types_do_not_speak_of(run: str, arrays: Callable[[np.ndarray], Any], says: str) -> None:
    with pytest.raises(ScheduleError, match=says):
        RUNS[run](step(arrays), np.arange(4, dtype=np.int32))


@pytest.mark.parametrize("run", [*RUNS, "alone"])
@pytest.mark.parametrize("given", [np.arange(0.5, 4, dtype=np.float32), [0.5, 1.5, 2.5, 3.5], np.ones(4, complex)])
def test_numbers_that_a_parameter_would_cut_off_are_refused(run: str, given: Any) -> None:
    runs = RUNS | {"alone": lambda schedule, array: schedule.rank(0).run_alone([array])}
    with pytest.raises(ScheduleError, match=r"an array of \w+ for s32\[4\]; at .*%x; convert it"):
        runs[run](step(np.cumsum), given)


def test_results_that_are_not_there() -> None:
    with pytest.raises(ScheduleError, match=r"%y is not defined before; at return of @main"):
        parse_schedule(f"{X} return %y\n}}")
