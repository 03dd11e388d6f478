"""What a custom call carries with it: anybody may have written that."""

from __future__ import annotations

import pytest

import hlosharding as hs
from hlosharding.rules import Opaque, signature_of
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


# What such a call means its target alone says, and a stranger's may be another.
@pytest.mark.parametrize(
    ("target", "given", "made"),
    [
        ("TopK", ["f32[4]"], "f32[]"),
        ("TopK", ["f32[]"], "f32[]"),
        ("TopK", [], "f32[4]"),
        ("ResizeNearest", ["f32[4]"], "f32[4,4]"),
        ("lapack_sgetrf_ffi", [], "f32[4,4]"),
        ("lapack_strsm_ffi", ["f32[4]", "f32[4]"], "f32[2,4,4]"),
        ("cu_threefry2x32_ffi", ["u32[4]"], "()"),
        ("cu_threefry2x32_ffi", [], "u32[4]"),
    ],
)
def test_a_call_that_only_bears_a_known_name_is_a_strangers(target: str, given: list[str], made: str) -> None:
    operands = "".join(f"  x{n} = {shape} parameter({n})\n" for n, shape in enumerate(given))
    names = ", ".join(f"x{n}" for n in range(len(given)))
    body = f'{operands}  ROOT c = {made} custom-call({names}), custom_call_target="{target}"'
    call = module(body).by_name("c")
    assert isinstance(signature_of(call), Opaque)
    assert hs.partition(module(body), num_partitions=2).module.entry.root.shape == call.shape
