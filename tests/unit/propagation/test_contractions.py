"""Dot and convolution: what each operand gives, and who wins a tie."""

from __future__ import annotations

import pytest

from tests.support.propagated_texts import printed

ROWS = "{devices=[4,1]<=[4]}"
COLUMNS = "{devices=[1,4]<=[4]}"


def dot(left: str, right: str, *, m: int = 8, k: int = 16, n: int = 8, after: str = "") -> str | None:
    body = (
        f"  %x = f32[{m},{k}] parameter(0){left}\n  %y = f32[{k},{n}] parameter(1){right}\n"
        f"  %op = f32[{m},{n}] dot(%x, %y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n"
        f"{after or f'  ROOT %sink = (f32[{m},{n}]) tuple(%op)'}"
    )
    return printed(body, "op")


def test_batch_and_free_dims_pass_contracted_ones_do_not() -> None:
    assert dot(f", sharding={ROWS}", "") == ROWS
    assert dot("", f", sharding={COLUMNS}") == COLUMNS
    assert dot(f", sharding={COLUMNS}", "") == "{replicated}"


def test_compatible_splits_of_both_operands_merge() -> None:
    left = ", sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}"
    right = ", sharding={devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}"
    assert dot(left, right) == "{devices=[2,2]<=[4]}"


def test_the_larger_operand_wins_a_tie_and_the_left_one_if_equal() -> None:
    left, right = f", sharding={ROWS}", f", sharding={COLUMNS}"
    assert dot(left, right) == ROWS
    assert dot(left, right, m=8, n=16) == COLUMNS


def test_the_user_ahead_decides_a_tie() -> None:
    after = f"  %u = f32[8,8] negate(%op)\n  ROOT %s = f32[8,8] copy(%u), sharding={COLUMNS}"
    assert dot(f", sharding={ROWS}", f", sharding={COLUMNS}", after=after) == COLUMNS


def test_an_operand_hears_from_output_and_from_the_other_operand() -> None:
    body = (
        "  %p = f32[8,16] parameter(0)\n  %x = f32[8,16] negate(%p)\n"
        "  %y = f32[16,8] parameter(1), sharding={devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}\n"
        "  %op = f32[8,8] dot(%x, %y), lhs_contracting_dims={1}, rhs_contracting_dims={0},"
        " sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}\n"
        "  ROOT %sink = (f32[8,8]) tuple(%op)"
    )
    assert printed(body, "x") == "{devices=[2,2]<=[4]}"


@pytest.mark.parametrize(
    ("image", "sharding", "kernel", "window", "out", "expected"),
    [
        # A small kernel leaves batch and spatial splits alone ...
        (
            "4,3,8,8",
            "{devices=[2,1,2,1]<=[4]}",
            "5,3,3,3",
            "size=3x3 pad=1_1x1_1",
            "4,5,8,8",
            "{devices=[2,1,2,1]<=[4]}",
        ),
        # ... nothing comes of a split feature dim along with a spatial one ...
        ("4,4,8,8", "{devices=[1,2,2,1]<=[4]}", "5,4,3,3", "size=3x3 pad=1_1x1_1", "4,5,8,8", None),
        # ... and a large one (a weight gradient) keeps the batch split alone.
        (
            "4,3,8,8",
            "{devices=[2,1,2,1]<=[4]}",
            "5,3,6,6",
            "size=6x6",
            "4,5,3,3",
            "{devices=[2,1,1,1,2]<=[4] last_tile_dim_replicate}",
        ),
    ],
)
def test_convolution(image: str, sharding: str, kernel: str, window: str, out: str, expected: str | None) -> None:
    body = (
        f"  %x = f32[{image}] parameter(0), sharding={sharding}\n  %k = f32[{kernel}] parameter(1)\n"
        f"  %op = f32[{out}] convolution(%x, %k), window={{{window}}}, dim_labels=bf01_oi01->bf01\n"
        f"  ROOT %sink = (f32[{out}]) tuple(%op)"
    )
    assert printed(body, "op") == expected
