"""Reducers, judged by XLA: what changes nothing there is neutral."""

from __future__ import annotations

import numpy as np
import pytest

from hlosharding import load
from hlosharding.errors import HloShardingError
from hlosharding.ir import (
    REDUCER_KINDS,
    Builder,
    Computation,
    Shape,
    is_neutral,
    neutral_element,
    reduce_arrays,
    reducer_kind,
)
from hlosharding.xla_bridge import run_proto

INTEGERS = ("s2", "s4", "s8", "s16", "s32", "s64", "u2", "u4", "u8", "u16", "u32", "u64")
FLOATS = (
    *("f16", "f32", "bf16", "f64", "f8e5m2", "f8e4m3", "f8e4m3fn", "f8e4m3b11fnuz", "f8e3m4", "f8e5m2fnuz"),
    *("f8e4m3fnuz", "f4e2m1fn"),
)
COMPLEX = ("c64", "c128")
BITS = ("and", "or", "xor")


def _values(shape: Shape) -> np.ndarray:
    if shape.element_type == "pred":
        return np.array([False, True])
    if shape.is_complex:
        return np.array([0, 1, -2.5 + 1j, 1 - 1j, 3j], shape.dtype)
    if shape.is_integral:
        lowest = int(neutral_element("maximum", shape.element_type))  # judged by the other kinds' runs
        return np.array([0, 1, lowest, -1 - lowest if lowest else -1]).astype(shape.dtype)
    numbers = np.array([0, 1, -2.5, 4, -4, np.inf, -np.inf]).astype(shape.dtype)
    return numbers[~np.isnan(numbers.astype(np.float64))]


def _run(kind: str, values: np.ndarray, other: np.ndarray) -> np.ndarray:
    builder = Builder("m")
    main = builder.computation("main")
    shape = Shape.from_dtype(values.dtype, values.shape)
    pair = [main.parameter(number, shape) for number in range(2)]
    main.root(main.add(kind, shape, pair))
    return run_proto(builder.finish(main).to_hlo_proto(), [[values], [np.full_like(values, other)]])[0][0]


def _bytes(values: np.ndarray) -> list[bytes]:
    return [value.tobytes() for value in values]


@pytest.mark.parametrize("kind", REDUCER_KINDS)
@pytest.mark.parametrize("element_type", ["pred", *INTEGERS, *FLOATS, *COMPLEX])
def test_xla_leaves_values_as_they_are(element_type: str, kind: str) -> None:
    values, neutral = _values(Shape.array(element_type, (1,))), neutral_element(kind, element_type)
    if neutral is None:
        assert kind in BITS
        assert element_type in FLOATS + COMPLEX
        return
    assert _bytes(_run(kind, values, neutral)) == _bytes(values)


@pytest.mark.parametrize("kind", ["maximum", "minimum"])
@pytest.mark.parametrize("element_type", [t for t in FLOATS if t.startswith(("f8", "f4"))])
def test_every_narrow_float_is_within_the_extremes(element_type: str, kind: str) -> None:
    dtype = Shape.array(element_type).dtype
    numbers = np.arange(16 if element_type.startswith("f4") else 256, dtype=np.uint8).view(dtype)
    numbers = numbers[~np.isnan(numbers.astype(np.float32))]
    assert _bytes(_run(kind, numbers, neutral_element(kind, element_type))) == _bytes(numbers)


def test_complex_extremes_lie_beyond_every_infinity() -> None:
    values = np.array([complex(-np.inf, -3), complex(-np.inf, -np.inf), complex(2, -np.inf)], np.complex64)
    assert _bytes(_run("maximum", values, neutral_element("maximum", "c64"))) == _bytes(values)


@pytest.mark.parametrize("element_type", ["f32", "c64"])
def test_xla_has_no_bits_of_floats(element_type: str) -> None:
    values = _values(Shape.array(element_type, (1,)))
    with pytest.raises(HloShardingError):
        _run("and", values, values[:1].reshape(()))


@pytest.mark.parametrize("kind", REDUCER_KINDS)
@pytest.mark.parametrize("element_type", ["pred", "s8", "u16"])
def test_numpy_combines_as_xla(element_type: str, kind: str) -> None:
    dtype = Shape.array(element_type).dtype
    left, right = np.array([0, 1, 3, 100, 0]).astype(dtype), np.array([0, 1, 77, 100, 1]).astype(dtype)
    pairs = [_run(kind, left[i : i + 1], right[i]) for i in range(len(left))]
    found = reduce_arrays(kind, [left, right])
    assert found.dtype == dtype
    assert found.tolist() == np.concatenate(pairs).tolist()


def _reducer(body: str) -> Computation:
    text = f"""HloModule m
    f {{ a = f32[] parameter(0)  b = f32[] parameter(1)  {body} }}
    ENTRY e {{ x = f32[4] parameter(0)  z = f32[] constant(0)
      ROOT y = f32[] reduce(x, z), dimensions={{0}}, to_apply=f }}"""
    return load(text).by_name("y").called[0]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("ROOT r = f32[] add(a, b)", "add"),
        ("ROOT r = f32[] multiply(b, a)", "multiply"),
        ("ROOT r = f32[] subtract(a, b)", "other"),
        ("ROOT r = f32[] add(a, a)", "other"),
        ("n = f32[] negate(b)  ROOT r = f32[] add(a, n)", "other"),
        ("ROOT r = f32[] copy(b)", "other"),
    ],
)
def test_reducers_are_known_by_their_structure(body: str, kind: str) -> None:
    assert reducer_kind(_reducer(body)) == kind


@pytest.mark.parametrize(("root", "kind"), [(0, "other"), (1, "assign")])
def test_who_returns_the_second_value_assigns(root: int, kind: str) -> None:
    body = Builder("m").computation("f")
    both = [body.parameter(number, Shape.array("f32")) for number in range(2)]
    body.root(both[root])
    assert reducer_kind(body.computation) == kind


def test_only_constants_are_known_to_be_neutral() -> None:
    main = Builder("m").computation("main")
    zero, one = main.constant(np.float32(0)), main.constant(np.float32(1))
    assert is_neutral(zero, "add")
    assert not is_neutral(one, "add")
    assert is_neutral(one, "multiply")
    assert is_neutral(main.add("copy", zero.shape, (zero,)), "add")
    assert not is_neutral(main.parameter(0, zero.shape), "add")


def test_what_is_neutral_in_a_narrow_type_need_not_be_so_in_a_wide_one() -> None:
    main = Builder("m").computation("main")
    least = main.constant(np.int8(-128))
    wide = main.add("convert", Shape.array("s32"), (least,))
    assert is_neutral(least, "maximum")
    assert not is_neutral(wide, "maximum")
    assert is_neutral(main.add("convert", Shape.array("bf16"), (main.constant(np.float32(-np.inf)),)), "maximum")


def test_an_unknown_reduction_has_no_neutral_element() -> None:
    assert neutral_element("assign", "f32") is None
