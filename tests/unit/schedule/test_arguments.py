"""`Schedule.interpret`: what is known of results where arrays, or only their shapes, are known of arguments."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import jax
import numpy as np
import pytest

import hlosharding as hs
from hlosharding.errors import ScheduleError
from hlosharding.schedule import Schedule, parse_schedule
from tests.support.layer_scans import SCANS
from tests.support.mlp_ops import FIGURES, arrays, one_device, ops

ROWS = {"pipeline": 4, "checkpointing": 8, "zero": 4}


def shapes_of(given: Sequence[Any]) -> list[Any]:
    return [jax.ShapeDtypeStruct(np.shape(each), np.asarray(each).dtype) for each in given]


def figure(name: str) -> Schedule:
    return parse_schedule((FIGURES / f"{name}.txt").read_text(), ops(ROWS[name]))


@pytest.mark.parametrize("name", ROWS)
def test_all_arrays_give_what_one_device_computes(name: str) -> None:
    for found, expected in zip(figure(name).interpret(*arrays()), one_device(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ROWS)
def test_all_shapes_give_the_shapes_of_the_results(name: str) -> None:
    assert figure(name).interpret(*shapes_of(arrays())) == shapes_of(one_device())


def test_a_result_is_known_where_all_that_it_reads_is() -> None:
    schedule = parse_schedule("""func @main(%x: f32[4] on {0}, %y: f32[4] on {0}, %z: f32[4] on {1}) {
      %a = send(%x) to={1}
      %b = add(%a, %z)
      %c = concat(%x, %y) dim=0
      %two = constant() value={2,2,2,2} shape=f32[4] to={0}
      %d = add(%two, %y)
      return %b, %c, %d
    }""")
    given = [np.arange(4, dtype=np.float32) * n for n in (1, 2, 3)]
    x, y, z = given
    results = [(x + z, {0, 2}), (np.concatenate([x, y]), {0, 1}), (y + 2, {1})]
    for is_known in product((False, True), repeat=3):
        mixed = [a if k else s for a, s, k in zip(given, shapes_of(given), is_known, strict=True)]
        for found, (expected, reads) in zip(schedule.interpret(*mixed), results, strict=True):
            if all(is_known[n] for n in reads):
                np.testing.assert_array_equal(found, expected)
            else:
                assert [found] == shapes_of([expected])


def stacked() -> tuple[Schedule, list[np.ndarray], list[np.ndarray]]:
    """Stages have their layers' rows of the weights."""
    step = SCANS["rematerialised"]()
    made = hs.pipelined(hs.trace(step.function)(*step.arguments), batch=step.batch, stages=2)
    assert made.interface is not None
    return made, list(map(np.asarray, step.flat())), step.expected()


def test_arrays_that_stages_share_are_cut_and_joined() -> None:
    schedule, given, expected = stacked()
    for found, wanted in zip(schedule.interpret(*given), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)
    assert schedule.interpret(*shapes_of(given)) == shapes_of(expected)


def test_what_is_not_cut_so_is_refused_with_its_argument() -> None:
    schedule, given, _ = stacked()
    assert schedule.interface is not None
    number = next(n for n, kind in enumerate(schedule.interface.parameters) if kind.parts > 1)
    for wrong in (np.ones(3, np.float32), jax.ShapeDtypeStruct((3,), np.float32)):
        with pytest.raises(
            ScheduleError, match=rf"shape \[3\] is not cut into 2 \+ 2 rows along dim 0; at argument {number}"
        ):
            schedule.interpret(*given[:number], wrong, *given[number + 1 :])


X = parse_schedule("func @main(%x: f32[4] on {0}, %n: s32[2] on {0}) {\n  return %x, %n\n}")
F, S = jax.ShapeDtypeStruct((4,), np.float32), jax.ShapeDtypeStruct((2,), np.int32)
WRONG: dict[str, tuple[tuple[Any, ...], str]] = {
    "too few": ((F,), r"1 arguments for the 2 parameters of @main; they are %x, %n"),
    "too many": ((F, S, S), r"3 arguments for the 2 parameters of @main"),
    "shape of an array": ((np.ones(3), S), r"shape \[3\] for f32\[4\]; at argument %x"),
    "shape": ((jax.ShapeDtypeStruct((3,), np.float32), S), r"parameter %x is f32\[4\] on \{0\}, the argument f32\[3\]"),
    "dtype": ((F, jax.ShapeDtypeStruct((2,), np.uint32)), r"parameter %n is s32\[2\] on \{0\}, the argument u32\[2\]"),
    "numbers that are cut off": ((F, np.ones(2)), r"an array of float64 for s32\[2\]; at argument %n; convert it"),
    "complex numbers": ((np.ones(4, complex), S), r"an array of complex128 for f32\[4\]; at argument %x"),
    "words": ((["a"] * 4, S), r"no XLA element type for dtype str\w*; at argument %x"),
    "integers out of range": ((F, [1, 2**40]), r"is no s32\[2\]: .*; at argument %n"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_refused_with_its_name(case: str) -> None:
    given, says = WRONG[case]
    with pytest.raises(ScheduleError, match=says):
        X.interpret(*given)


def test_arrays_of_any_kind() -> None:
    """As `run_reference` takes them: of Python, numpy and JAX; converted where no number is lost."""
    for x, n in (([1, 2, 3, 4], (5, 6)), (jax.numpy.arange(1.0, 5.0), np.array([5, 6]))):
        found = X.interpret(x, n)
        np.testing.assert_array_equal(found[0], np.array([1, 2, 3, 4]))
        np.testing.assert_array_equal(found[1], np.array([5, 6]))
        assert [each.dtype.name for each in found] == ["float32", "int32"]
