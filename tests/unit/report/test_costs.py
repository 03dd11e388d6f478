"""The tables of costs."""

from __future__ import annotations

import hlosharding as hs
from hlosharding.report import comparison_view, cost_view
from tests.support.shown_programs import partitioned, rows_of, text_of


def test_the_totals_are_the_reports() -> None:
    cost = partitioned().cost
    rows = {row[0]: row[1:] for row in rows_of(cost_view(cost, by=()))}
    assert rows["FLOPs"][0] == f"{cost.flops:,.0f}"
    assert rows["bytes received"][0] == f"{cost.comm_bytes:,.0f}"
    assert "of 80.0 GB" in rows["peak memory"][1]
    assert "h100(8)" in text_of(cost_view(cost))


def by_opcode(cost: hs.CostReport, most: int) -> list[list[str]]:
    rows = rows_of(cost_view(cost, by=["opcode"], most=most))
    return rows[[row[0] for row in rows].index("opcode") + 1 :]


def test_the_parts_add_up_to_the_whole_and_the_rest_is_summed() -> None:
    cost = partitioned().cost
    full, short = by_opcode(cost, most=20), by_opcode(cost, most=1)
    assert short[0] == full[0]
    assert short[1][0] == f"{len(full) - 1} others"
    number = [sum(int(row[1]) for row in rows) for rows in (full, short)]
    assert number == [len(cost.rows)] * 2


def test_source_lines_that_nobody_knows_are_called_so() -> None:
    rows = rows_of(cost_view(partitioned().cost, by=["location"]))
    assert {"m.py:7", "(unknown)"} <= {row[0] for row in rows}


def test_the_comparison_prints_ratios() -> None:
    cost = partitioned().cost
    rows = rows_of(comparison_view(cost, cost, names=("hlosharding", "live XLA")))
    assert rows[0] == ["one device, one run", "hlosharding", "live XLA", "ratio"]
    assert [row[3] for row in rows[1:]] == ["1.000"] * 4
