"""Every opcode has one place; answers are remembered under keys that say enough."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from hlosharding.ir import ALL_OPCODES, Builder, DotDims, Instruction, Shape
from hlosharding.rules import (
    DataFlow,
    Halo,
    Opaque,
    Reduce,
    Signature,
    Whole,
    catalog,
    signature_of,
)
from hlosharding.rules.catalog import RuleRow
from tests.truth.cases import all_cases


def test_every_opcode_is_in_exactly_one_class() -> None:
    assert set(catalog) == set(ALL_OPCODES)
    kinds = Counter(type(catalog[opcode]).__name__ for opcode in ALL_OPCODES)
    assert set(kinds) == {"RuleRow", "DataFlow", "Opaque"}
    assert kinds["Opaque"] <= 22


def test_opaque_opcodes_have_a_reason() -> None:
    for opcode in catalog:
        entry = catalog[opcode]
        if isinstance(entry, Opaque):
            assert len(entry.reason.split()) > 4, opcode


def test_an_unknown_opcode_is_opaque() -> None:
    main = Builder("m").computation("main")
    assert isinstance(signature_of(main.add("flux-capacitor", Shape.parse("f32[]"))), Opaque)


class Watched:
    """An instruction that notes which attributes are read."""

    def __init__(self, inst: Instruction) -> None:
        self._inst = inst
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        of_class = getattr(type(self._inst), name, None)
        if isinstance(of_class, property) and of_class.fget is not None:
            return of_class.fget(self)
        self.read.add(name)
        return getattr(self._inst, name)


STATED = {"dimensions", "fft_length"}
"""What rules read of an op whose key is all that its proto states: fields that it has."""


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_a_rule_reads_no_more_than_its_key_says(case: Any) -> None:
    row = catalog[case.inst.opcode]
    assert isinstance(row, RuleRow)
    keyed, used = Watched(case.inst), Watched(case.inst)
    key = row.key(keyed)  # type: ignore[arg-type]
    row.rule(used)  # type: ignore[arg-type]
    assert used.read <= keyed.read | {"opcode", "operands", "shape"} | (STATED if isinstance(key, bytes) else set())


def test_equal_instructions_share_a_signature() -> None:
    main = Builder("m").computation("main")
    shape = Shape.parse("f32[64,64]")
    x = main.parameter(0, shape)
    for _ in range(7000):
        y = main.add("dot", shape, (x, x), dot_dims=DotDims((1,), (0,)))
        z = main.add("add", shape, (x, y))
        x = main.add("transpose", shape, (z,), dimensions=(1, 0))
    signatures = [signature_of(inst) for inst in main.computation.instructions]
    assert len(signatures) == 21_001
    assert len({id(signature) for signature in signatures}) == 4


def parsed(text: str) -> Signature:
    from tests.truth.cases import Case

    found = signature_of(Case("", text).inst)
    assert isinstance(found, Signature)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f32[24,2] a : f32[4,6,2] reshape(a)", "(d0 d1) d2 -> d0 d1 d2"),
        ("f32[4,6] a : f32[3,8] reshape(a)", "s0 (s1 e0) -> t0 (t1 e0)"),
        ("f32[1,4,1,6] a : f32[4,6,1] reshape(a)", "_ d0 _ d1 -> d0 d1 _"),
        ("f32[6,4] a : f32[2,12] reshape(a)", "(d0 d1) d2 -> d0 (d1 d2)"),
        ("f32[0,4] a : f32[4,0] reshape(a)", "_ _ -> _ _"),
        (
            "f32[2,8,6] a, f32[12,2,3] b : f32[2,12,6] convolution(a, b), window={size=3 pad=1_1},"
            " dim_labels=bf0_oi0->bf0, feature_group_count=4",
            "b (g k) w0, (g n) k _ -> b (g n) w0",
        ),
        (
            "f32[8,6] a, s32[4,2] i : f32[4,2,6] gather(a, i), offset_dims={2}, collapsed_slice_dims={0},"
            " start_index_map={0}, index_vector_dim=2, slice_sizes={1,6}",
            "x0 o1, b0 b1 -> b0 b1 o1",
        ),
        (
            "f32[8,6] a, s32[4,1] i, f32[4,6] u : f32[8,6] scatter(a, i, u), update_window_dims={1},"
            " inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%add_f32",
            "x0 o1, s0 _, s0 o1 -> x0 o1",
        ),
    ],
)
def test_signatures_read_as_text(text: str, expected: str) -> None:
    assert str(parsed(text)) == expected


def test_what_is_owed() -> None:
    gather = parsed(
        "f32[8,6] a, s32[4] i : f32[4,3] gather(a, i), offset_dims={1}, collapsed_slice_dims={0},"
        " start_index_map={0}, index_vector_dim=1, slice_sizes={1,3}"
    )
    assert [gather.factors[gather.index[n]].owes for n in ("x0", "x1")] == [Whole(indexed=True), Whole()]
    reduce = parsed("f32[4,6] a, f32[] i : f32[4] reduce(a, i), dimensions={1}, to_apply=%max_f32")
    assert reduce.factors[1].owes == Reduce("maximum", once=(1,))
    window = "f32[4,8] a, f32[] i : f32[4,6] reduce-window(a, i), window={size=1x3}, to_apply=%add_f32"
    assert parsed(window).factors[1].owes == Halo(1)


def test_dilated_windows_do_not_spread() -> None:
    text = "f32[4,6] a, f32[] i : f32[4,7] reduce-window(a, i), window={size=1x3 lhs_dilate=1x2 rhs_dilate=1x2}"
    assert not any(f.spreads for f in parsed(f"{text}, to_apply=%max_f32").factors)


def test_data_flow_says_how_values_move() -> None:
    kinds = {opcode: entry.kind for opcode in catalog if isinstance(entry := catalog[opcode], DataFlow)}
    assert kinds["while"] == "while"
    assert kinds["opt-barrier"] == kinds["domain"] == "pass"
