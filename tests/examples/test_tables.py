"""The examples' tables."""

from __future__ import annotations

from examples import tables
from hlosharding.report import to_text
from tests.support.shown_programs import MESH, propagated, rows_of


def test_losses_stand_side_by_side_with_their_relative_difference() -> None:
    rows = to_text(tables.losses([2.0, 1.0], [2.0, 0.5], devices=8)).splitlines()
    assert any("8 devices" in row and "one device" in row for row in rows)
    assert any(row.split()[1::2] == ["1", "2.000000", "2.000000", "0.0e+00"] for row in rows)
    assert any(row.split()[1::2] == ["2", "1.000000", "0.500000", "1.0e+00"] for row in rows)


def test_activations_are_the_large_ops() -> None:
    [_, row] = rows_of(tables.activations(propagated(mesh=True), MESH))
    assert row[:3] == ["m.py:7", "dot", "f32[64,16]"]
