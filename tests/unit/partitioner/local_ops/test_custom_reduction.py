"""Partial results that only the op itself combines: arg-max with its own reducer, and the largest k."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.split_programs import kinds, mark, right, split

ROWS = ["[1,8]<=[8]", "[2,4]<=[8]", "[1,2,4]<=[8] copies", "[1,8]3,1,0,2,7,5,4,6", ""]


def largest(x: str, out: str, *, dims: str = "4,40", k: int = 3, kind: str = "f32", attributes: str = "") -> str:
    """A topk of the last dim, its leaves as results."""
    chosen = f"{dims.rpartition(',')[0]},{k}".lstrip(",")
    return f"""
        x = {kind}[{dims}] parameter(0){mark(x)}
        y = ({kind}[{chosen}], s32[{chosen}]) topk(x), k={k}, largest=true{attributes}
        v = {kind}[{chosen}] get-tuple-element(y), index=0{mark(out)}
        i = s32[{chosen}] get-tuple-element(y), index=1{mark(out)}
        ROOT r = ({kind}[{chosen}], s32[{chosen}]) tuple(v, i)"""


@pytest.mark.parametrize("out", ["", "[2,1,4]<=[8] copies", "[1,8]<=[8]"])
@pytest.mark.parametrize("x", ROWS)
@pytest.mark.parametrize("size", [40, 37, 9])
def test_the_largest_are_found_in_the_order_of_their_places(size: int, x: str, out: str) -> None:
    # Few different numbers: of equal ones the first must win.
    values = np.random.default_rng(0).integers(0, 4, (4, size)).astype(np.float32)
    right(largest(x, out, dims=f"4,{size}"), values)


@pytest.mark.parametrize("kind", ["s32", "bf16", "u8"])
def test_numbers_of_any_type_leave_padding_out(kind: str) -> None:
    import ml_dtypes

    dtype = np.dtype({"s32": np.int32, "bf16": ml_dtypes.bfloat16, "u8": np.uint8}[kind])
    lowest = -(2**31) if kind == "s32" else 0 if kind == "u8" else -np.inf
    values = np.full((4, 37), lowest).astype(dtype)
    right(largest("[1,8]<=[8]", "", dims="4,37", kind=kind), values)


def test_each_device_offers_its_own_k_and_the_best_of_those_are_taken() -> None:
    local = split(largest("[1,8]<=[8]", "", dims="4,50000", k=8))
    assert kinds(local) == ["all-gather", "all-gather"]
    assert local.comm_bytes_per_device == 7 * 4 * 8 * (4 + 4)


def test_one_row_of_candidates_needs_no_other_dim() -> None:
    local = right(largest("[8]<=[8]", "", dims="64"))
    assert set(kinds(local)) == {"all-gather"}
    assert local.comm_bytes_per_device == 7 * 3 * (4 + 4)


def test_where_candidates_are_no_fewer_than_elements_the_elements_are_gathered() -> None:
    local = right(largest("[8]<=[8]", "", dims="64", k=6))
    assert local.comm_bytes_per_device == 7 / 8 * 64 * 4


@pytest.mark.parametrize("x", ROWS)
def test_the_smallest_are_found_too(x: str) -> None:
    text = largest(x, "", dims="4,37").replace("largest=true", "largest=false")
    right(text, np.random.default_rng(0).normal(size=(4, 37)).astype(np.float32), how="run")


ARG_MAX = """
best {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  more = pred[] compare(a, b), direction=GE
  v = f32[] select(more, a, b)
  n = s32[] select(more, i, j)
  ROOT r = (f32[], s32[]) tuple(v, n)
}"""


@pytest.mark.parametrize("x", ROWS)
@pytest.mark.parametrize("size", [40, 37])
def test_the_place_of_the_largest_is_found_by_the_reducer_of_the_program(size: int, x: str) -> None:
    right(
        f"""
        x = f32[4,{size}] parameter(0){mark(x)}
        n = s32[4,{size}] iota(), iota_dimension=1{mark(x)}
        low = f32[] constant(-inf)
        zero = s32[] constant(0)
        ROOT y = (f32[4], s32[4]) reduce(x, n, low, zero), dimensions={{1}}, to_apply=best""",
        np.random.default_rng(0).permutation(4 * size).reshape(4, size).astype(np.float32),
        computations=ARG_MAX,
    )
