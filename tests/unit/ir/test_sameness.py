"""Which attributes tell ops apart: one that changes what is computed does, a channel's number and a name do not."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hlosharding as hs
from hlosharding.ir import Instruction, Sameness

X = np.ones((4, 4), "f")
DIFFERENT = {
    "accuracy": (lax.exp, lambda x: lax.exp(x, accuracy=lax.AccuracyMode.HIGHEST)),
    "callee": (lambda x: x.sum(0), lambda x: x.max(0)),
    "comparison": (lambda x: x < 1, lambda x: x > 1),
    "dimension": (lambda x: x.sum(0), lambda x: x.sum(1)),
    "precision": (lambda x: x @ x, lambda x: jnp.matmul(x, x, precision="highest")),
    "stability": (lambda x: lax.sort(x, is_stable=True), lambda x: lax.sort(x, is_stable=False)),
    "start": (lambda x: x[1:3], lambda x: x[0:2]),
    "value": (lambda x: x + 1, lambda x: x + 2),
}  # fmt: skip


@pytest.mark.parametrize("what", DIFFERENT)
def test_attributes_tell_ops_apart(what: str) -> None:
    first, second = DIFFERENT[what]
    same = Sameness()
    one, again, other = (same.computation(hs.trace(f)(X).entry) for f in (first, first, second))
    assert one == again
    assert one != other


def test_which_channel_does_not_matter_that_there_is_one_does() -> None:
    same = Sameness()
    first, second, none = (same.op(_all_reduce(said)) for said in (", channel_id=1", ", channel_id=7", ""))
    assert first == second
    assert first != none


def _all_reduce(said: str) -> Instruction:
    text = "HloModule m\nadd { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"
    text += "ENTRY e { x = f32[4] parameter(0) ROOT y = f32[4] all-reduce(x), to_apply=add"
    return hs.load(f"{text}{said} }}").entry.root
