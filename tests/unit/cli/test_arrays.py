"""Arrays for a program to run on, and the comparison of two runs."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hlosharding as hs
from hlosharding.cli.arrays import difference, random_arrays, read_arrays
from hlosharding.ir import Shape

PROGRAM = """HloModule m
ENTRY e {{
  ROOT x = {shape} parameter(0)
}}"""
TYPES = ["pred", "s4", "u4", "s8", "u32", "s64", "f16", "bf16", "f8e4m3fn", "f64", "c64"]


@pytest.mark.parametrize("element_type", TYPES)
def test_every_type_has_random_values_that_are_finite(element_type: str) -> None:
    [array] = random_arrays(hs.load(PROGRAM.format(shape=f"{element_type}[50]")).entry.parameters, seed=1)
    assert array.dtype == Shape.array(element_type, (50,)).dtype
    wide = array.astype(np.complex128)
    assert np.isfinite(wide).all()
    assert np.unique(wide).size > 1
    assert np.abs(wide).max() < 8


def test_bfloat16_survives_a_file(tmp_path: Path) -> None:
    values = np.arange(6).astype(ml_dtypes.bfloat16)
    np.savez(tmp_path / "in.npz", x=values)
    [array] = read_arrays(hs.load(PROGRAM.format(shape="bf16[6]")).entry.parameters, str(tmp_path / "in.npz"))
    assert array.dtype == values.dtype
    assert (array == values).all()


def test_what_a_tuple_holds_is_named_by_its_place(tmp_path: Path) -> None:
    parameters = hs.load(PROGRAM.format(shape="(f32[2], f32[3])")).entry.parameters
    given = random_arrays(parameters, seed=0)
    assert [array.shape for array in given] == [(2,), (3,)]
    np.savez(tmp_path / "in.npz", **{f"{parameters[0].name}.{n}": array for n, array in enumerate(given)})
    read = read_arrays(parameters, str(tmp_path / "in.npz"))
    assert all((one == other).all() for one, other in zip(read, given, strict=True))


def test_a_token_is_no_array() -> None:
    with pytest.raises(hs.HloShardingError, match="takes arrays"):
        random_arrays(hs.load(PROGRAM.format(shape="token[]")).entry.parameters, seed=0)


@pytest.mark.parametrize(
    ("element_type", "found", "expected", "agrees"),
    [
        ("s32", [1, 2], [1, 2], True),
        ("s32", [1, 3], [1, 2], False),
        ("pred", [True], [False], False),
        ("f32", [1, 1e6 + 10], [1, 1e6], True),  # relative to the largest magnitude
        ("f32", [1, 1e6 + 1000], [1, 1e6], False),
        ("f32", [np.nan, np.inf], [np.nan, np.inf], True),
        ("f32", [np.nan, 1], [1, 1], False),
        ("f32", [np.inf, 1], [-np.inf, 1], False),
        ("f32", [], [], True),
        ("f32", [0.0], [0.0], True),
        ("c64", [1j], [1], False),
    ],
)
def test_runs_are_compared_as_their_type_asks(
    element_type: str, found: list[float], expected: list[float], agrees: bool
) -> None:
    shape = Shape.array(element_type, (len(found),))
    arrays = [np.asarray(values).astype(shape.dtype) for values in (found, expected)]
    assert difference(arrays[0], arrays[1], shape).agrees == agrees


def test_a_tolerance_may_be_given() -> None:
    shape = Shape.array("f32", (1,))
    one = np.ones(1, np.float32)
    assert not difference(one + np.float32(0.01), one, shape).agrees
    assert difference(one + np.float32(0.01), one, shape, 0.1).agrees
