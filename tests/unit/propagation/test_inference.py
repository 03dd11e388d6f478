"""What one op passes forward and backward.  Expected values are XLA's (each was compared with the live pass)."""

from __future__ import annotations

import pytest

from tests.support.propagated_texts import SUM, printed

ROWS = "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"
COLUMNS = "{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}"
BOTH = "{devices=[2,2]<=[4]}"
SINK = "\n  ROOT %sink = (f32[8,16]) tuple(%x)"


def forward(line: str, result: str, sharding: str = BOTH, extra: str = "") -> str | None:
    """The sharding of %op from an annotated %x."""
    x = f"  %x = f32[8,16] parameter(0), sharding={sharding}\n"
    return printed(f"{x}{extra}  %op = {result} {line}{SINK}", "op", SUM)


def backward(line: str, result: str, sharding: str) -> str | None:
    """The sharding of an un-annotated %v from an annotated user."""
    body = (
        "  %x = f32[8,16] parameter(0)\n  %v = f32[8,16] negate(%x)\n"
        f"  %op = {result} {line}, sharding={sharding}{SINK}"
    )
    return printed(body, "v", SUM)


ZERO = "  %z = f32[] constant(0)\n"


@pytest.mark.parametrize(
    ("line", "result", "expected"),
    [
        ("negate(%x)", "f32[8,16]", BOTH),
        ("transpose(%x), dimensions={1,0}", "f32[16,8]", "{devices=[2,2]<=[2,2]T(1,0)}"),
        ("broadcast(%x), dimensions={0,2}", "f32[8,3,16]", "{devices=[2,1,2]<=[4]}"),
        ("reshape(%x)", "f32[2,4,16]", "{devices=[2,1,2]<=[4]}"),
        ("reverse(%x), dimensions={0}", "f32[8,16]", "{devices=[2,2]2,3,0,1}"),
        ("slice(%x), slice={[0:4], [0:16]}", "f32[4,16]", BOTH),
    ],
)
def test_forward(line: str, result: str, expected: str) -> None:
    assert forward(line, result) == expected


def test_forward_through_a_reduction_keeps_what_is_left() -> None:
    found = forward("reduce(%x, %z), dimensions={1}, to_apply=%sum", "f32[8]", extra=ZERO)
    assert found == "{devices=[2,2]<=[4] last_tile_dim_replicate}"
    everything = forward("reduce(%x, %z), dimensions={0,1}, to_apply=%sum", "f32[]", extra=ZERO)
    assert everything == "{replicated}"


def test_a_split_sort_dim_spreads_only_where_the_split_could_move() -> None:
    less = SUM + "\n%less {\n  %p = f32[] parameter(0)\n  %q = f32[] parameter(1)\n"
    less += "  ROOT %l = pred[] compare(%p, %q), direction=LT\n}\n"
    x = "  %x = f32[SIZE] parameter(0), sharding={devices=[2,2]<=[4]}\n"
    op = "  %op = f32[SIZE] sort(%x), dimensions={0}, to_apply=%less\n  ROOT %sink = (f32[SIZE]) tuple(%x)"
    assert printed((x + op).replace("SIZE", "8,16"), "op", less) == BOTH
    assert printed((x + op).replace("SIZE", "8,6"), "op", less) is None


def test_a_window_keeps_the_split_unless_it_is_dilated() -> None:
    line = "reduce-window(%x, %z), window={size=1x3 pad=0_0x1_1}, to_apply=%sum"
    assert forward(line, "f32[8,16]", extra=ZERO) == BOTH
    line = "reduce-window(%x, %z), window={size=1x3 pad=0_0x2_2 rhs_dilate=1x2}, to_apply=%sum"
    assert forward(line, "f32[8,16]", extra=ZERO) is None


@pytest.mark.parametrize(
    ("line", "result", "sharding", "expected"),
    [
        ("transpose(%v), dimensions={1,0}", "f32[16,8]", BOTH, "{devices=[2,2]<=[2,2]T(1,0)}"),
        ("reshape(%v)", "f32[2,4,16]", "{devices=[2,1,2]<=[4]}", BOTH),
        ("slice(%v), slice={[0:4], [0:16]}", "f32[4,16]", BOTH, BOTH),
        (
            "broadcast(%v), dimensions={0,2}",
            "f32[8,2,16]",
            "{devices=[1,2,2]<=[4]}",
            "{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}",
        ),
        ("reverse(%v), dimensions={1}", "f32[8,16]", BOTH, "{devices=[2,2]1,0,3,2}"),
        ('custom-call(%v), custom_call_target="Foreign"', "f32[8,16]", BOTH, BOTH),
        ('custom-call(%v), custom_call_target="Foreign"', "f32[16,8]", BOTH, None),
    ],
)
def test_backward(line: str, result: str, sharding: str, expected: str | None) -> None:
    assert backward(line, result, sharding) == expected


def test_elementwise_merges_its_operands() -> None:
    body = f"  %x = f32[8,16] parameter(0), sharding={ROWS}\n  %y = f32[8,16] parameter(1), sharding={COLUMNS}\n"
    assert printed(body + "  %op = f32[8,16] add(%x, %y)" + SINK, "op") == BOTH
    assert printed(body + "  %op = f32[8,16] add(%x, %y)" + SINK, "op", is_spmd=False) == ROWS


def test_opaque_ops_are_at_most_replicated() -> None:
    assert forward("cholesky(%y), lower=true", "f32[4,4]", extra="  %y = f32[4,4] iota(), iota_dimension=0\n") is None
    body = "  %x = f32[8,16] parameter(0), sharding={replicated}\n  %op = f32[8,16] custom-call(%x), "
    assert printed(body + 'custom_call_target="Foreign"' + SINK, "op") == "{replicated}"
