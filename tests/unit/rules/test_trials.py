"""A rule tried: halves that make up the whole, and those that do not."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest

from hlosharding.ir import Shape
from hlosharding.rules import Factor, Reduce, Signature
from hlosharding.rules.trials import Trial

MATRIX = (((0,), (1,)),)
A, B = Factor("a", 4), Factor("b", 6)
SUMMED = Factor("b", 6, Reduce("add"))
CASES: dict[str, tuple[Any, Signature, list[bool]]] = {
    "pointwise": (jnp.sin, Signature((A, B), MATRIX, MATRIX), [True, True]),
    "sum": (lambda x: x.sum(1), Signature((A, SUMMED), MATRIX, (((0,),),)), [True, True]),
    "mean": (lambda x: x.mean(1), Signature((A, SUMMED), MATRIX, (((0,),),)), [True, False]),
    "largest, added": (lambda x: x.max(1), Signature((A, SUMMED), MATRIX, (((0,),),)), [True, False]),
    "reversed": (lambda x: x[::-1], Signature((A, B), MATRIX, MATRIX), [False, True]),
    "two in one, one of them said": (
        lambda x: x.reshape(-1, 6),
        Signature((A, B), (((0, 1),),), MATRIX),
        [True, False],
    ),
    "two in one, swapped": (lambda x: x.reshape(-1, 4).T, Signature((A, B), (((0, 1),),), MATRIX), [False, False]),
    "kept whole by one": (lambda x: (x, x.sum(0)), Signature((A, B), MATRIX, (*MATRIX, ((1,),))), [False, True]),
}


@pytest.mark.parametrize("name", CASES)
def test_halves_are_compared_with_the_whole(name: str) -> None:
    function, signature, verdicts = CASES[name]
    trial = Trial(
        [function], signature, [Shape.parse("f32[4,6]" if len(signature.operands[0]) > 1 else "f32[24]")], 1e-4
    )
    assert [trial.verdict(n) for n in range(2)] == verdicts


def test_a_function_that_refuses_halves_says_nothing() -> None:
    trial = Trial([lambda x: x.reshape(4)], Signature((A,), (((0,),),), (((0,),),)), [Shape.parse("f32[4]")], 1e-4)
    assert trial.verdict(0) is None


def test_all_functions_must_agree() -> None:
    signature, shapes = Signature((A,), (((0,),),), (((0,),),)), [Shape.parse("f32[4]")]
    assert Trial([jnp.sin, lambda x: jnp.cos(x - jnp.pi / 2)], signature, shapes, 1e-4).is_agreed
    assert not Trial([jnp.sin, jnp.cos], signature, shapes, 1e-4).is_agreed
    assert not Trial([jnp.sin, lambda x: x[:2]], signature, shapes, 1e-4).is_agreed
