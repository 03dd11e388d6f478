"""What a custom call carries with it: anybody may have written that."""

from __future__ import annotations

import pytest

from hlosharding.rules import signature_of
from tests.support.propagated_texts import module, run

ROWS = "{devices=[2,1,1]<=[2]}"


# What XLA found for a batched Cholesky that said this of its batch dims.
@pytest.mark.parametrize(
    ("said", "factors", "found"),
    [
        *((said, "b0 _ _ -> b0 _ _", ROWS) for said in ("1", "01", "+1", " 1 ")),
        *((said, "_ _ _ -> _ _ _", None) for said in ("0", "-1", "", "x", "1 x", "- 1", "1_0", "٣", "9" * 5000)),
        ("7", "b0 b1 b2 -> b0 b1 b2", "{replicated}"),
    ],
)
def test_batch_dims_are_read_as_xla_reads_them(said: str, factors: str, found: str | None) -> None:
    carried = f'frontend_attributes={{num_batch_dims="{said}"}}'
    body = (
        f"  a = f32[8,4,4] parameter(0), sharding={ROWS}\n  ROOT c = f32[8,4,4] negate(a)\n"
        f'  b = f32[8,4,4] custom-call(a), custom_call_target="foreign", {carried}'
    )
    assert str(signature_of(module(body).by_name("b"))) == factors
    assert str(run(body).shardings["b"]) == str(found)
