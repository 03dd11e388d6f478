"""The tables of costs."""

from __future__ import annotations

from hlosharding import report
from tests.support.shown_programs import partitioned, rows_of, text_of


def test_the_totals_are_the_reports() -> None:
    cost = partitioned().cost
    rows = {row[0]: row[1:] for row in rows_of(report.show_cost(cost))}
    assert rows["FLOPs"][0] == f"{cost.flops:,.0f}"
    assert rows["bytes received"][0] == f"{cost.comm_bytes:,.0f}"
    assert "of 80.0 GB" in rows["peak memory"][1]
    assert "h100(8)" in text_of(report.show_cost(cost))


def test_the_parts_add_up_to_the_whole_and_the_rest_is_summed() -> None:
    cost = partitioned().cost
    full = rows_of(report.show_cost_by(cost, "opcode"))[1:]
    short = rows_of(report.show_cost_by(cost, "opcode", most=1))[1:]
    assert short[0] == full[0]
    assert short[1][0] == f"{len(full) - 1} others"
    number = [sum(int(row[1]) for row in rows) for rows in (full, short)]
    assert number == [len(cost.rows)] * 2


def test_source_lines_that_nobody_knows_are_called_so() -> None:
    rows = rows_of(report.show_cost_by(partitioned().cost, "location"))
    assert {"m.py:7", "(unknown)"} <= {row[0] for row in rows}


def test_the_comparison_prints_ratios() -> None:
    cost = partitioned().cost
    rows = rows_of(report.show_comparison(cost, cost, names=("hlosharding", "live XLA")))
    assert rows[0] == ["one device, one run", "hlosharding", "live XLA", "ratio"]
    assert [row[3] for row in rows[1:]] == ["1.000"] * 4
