"""The statement of what the policy can pass: whole, said once, and refuted by no run of live XLA."""

from __future__ import annotations

import os
from collections import Counter

from hlosharding.ir import ALL_OPCODES
from tests.oracle import coverage
from tests.oracle.differential import INSTRUCTIONS, draw, run
from tests.oracle.policy_cells import BACKWARD, FORWARD, Row, possible_cells


def _stated(rows: tuple[Row, ...]) -> Counter[tuple[str, str, str]]:
    return Counter(
        (op, level, kind) for words, levels, kinds in rows for op in words.split() for level in levels for kind in kinds
    )


def test_every_cell_is_stated_once() -> None:
    for rows in (FORWARD, BACKWARD):
        assert {cell: n for cell, n in _stated(rows).items() if n > 1} == {}


def test_possible_cells_are_cells_of_the_table() -> None:
    assert possible_cells() < coverage.all_cells()
    assert {opcode for opcode, *_ in possible_cells()} < ALL_OPCODES


def test_modules_have_five_to_two_hundred_instructions() -> None:
    sizes = [draw(seed)[0].count(" = ") for seed in range(40)]
    assert all(size in INSTRUCTIONS for size in sizes)
    assert (INSTRUCTIONS[0], INSTRUCTIONS[-1]) == (5, 200)


if "HLOSHARDING_ORACLE" in os.environ:

    def test_live_xla_fills_no_impossible_cell() -> None:
        tally = run(range(100))
        assert tally.unexplained == []
        assert coverage.contradictions(tally.cells, possible_cells()) == []
