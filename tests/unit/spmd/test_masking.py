"""Neutral elements and what lies past the end."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from hlosharding.errors import PartitionError
from hlosharding.ir import Builder, Shape
from hlosharding.sharding import HloSharding
from hlosharding.spmd.emitter import Emitter, Program
from hlosharding.spmd.masking import identity, is_identity, mask_padding
from hlosharding.xla_bridge import run_proto

TYPES = ("f32", "bf16", "f16", "s8", "u32", "s64")
REDUCTIONS = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}


@pytest.mark.parametrize("kind", REDUCTIONS)
@pytest.mark.parametrize("element_type", TYPES)
def test_an_identity_changes_nothing(element_type: str, kind: str) -> None:
    shape = Shape.array(element_type, (5,))
    x = np.array([0, 1, 5, 120, 3]).astype(shape.dtype)
    assert np.array_equal(REDUCTIONS[kind](x, identity(kind, shape)), x)


@pytest.mark.parametrize("kind", ["and", "or", "xor"])
def test_an_identity_of_bits(kind: str) -> None:
    function = getattr(np, f"bitwise_{kind}")
    for x in (np.array([0, 5, -1], np.int32), np.array([True, False])):
        shape = Shape.from_dtype(x.dtype, x.shape)
        assert np.array_equal(function(x, identity(kind, shape)), x)


def test_truth_values_have_a_largest_and_a_smallest() -> None:
    assert not identity("maximum", Shape.array("pred"))
    assert identity("minimum", Shape.array("pred"))


def test_floats_without_infinity_take_their_largest() -> None:
    assert identity("minimum", Shape.array("f8e4m3fn")) == ml_dtypes.finfo(ml_dtypes.float8_e4m3fn).max


def test_an_unknown_reduction_has_none() -> None:
    with pytest.raises(PartitionError, match="no neutral element"):
        identity("assign", Shape.array("f32"))


def test_only_constants_are_known_to_be_neutral() -> None:
    main = Builder("m").computation("main")
    zero, one = main.constant(np.float32(0)), main.constant(np.float32(1))
    assert is_identity(zero, "add")
    assert not is_identity(one, "add")
    assert is_identity(one, "multiply")
    assert is_identity(main.add("copy", zero.shape, (zero,)), "add")
    assert not is_identity(main.parameter(0, zero.shape), "add")


def test_padding_is_replaced_on_the_devices_that_have_some() -> None:
    # Seven rows over four devices in reverse order: device 0 holds row 6 and one row of padding.
    builder = Builder("m", num_partitions=4)
    main = builder.computation("main")
    x = main.parameter(0, Shape.array("f32", (2, 3)))
    sharding = HloSharding.parse("{devices=[4,1]3,2,1,0}")
    emitter = Emitter(Program(builder, 4), main)
    main.root(mask_padding(emitter, x, Shape.array("f32", (7, 3)), sharding, (0,), np.float32(-1)))
    garbage = [np.full((2, 3), np.nan, np.float32) for _ in range(4)]
    found = run_proto(builder.finish(main).to_hlo_proto(), [garbage], 4)[0]
    assert [[float(row[0]) == -1 for row in tile] for tile in found] == [
        [False, True],
        [False, False],
        [False, False],
        [False, False],
    ]
