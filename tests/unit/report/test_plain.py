"""Rows that read alike share one, sums are right, and no name steers a terminal."""

from __future__ import annotations

import pytest

from hlosharding.report import Column, Facts, Figure, Kind, Label, Row, Shown, Table
from hlosharding.report.plain import cell_text, facts_table, plain

NAME = Column(key="name", heading="name")
BYTES = Column(key="bytes", heading="bytes", kind=Kind.COUNT, sums=True)
ROWS: list[Row] = [
    {"name": "a", "bytes": 1, "hidden": 0},
    {"name": "b", "bytes": 30, "hidden": 1},
    {"name": "a", "bytes": Figure(20, is_exact=False), "hidden": 2},
    {"name": "c", "bytes": 4, "hidden": 3},
]


def rows(**options: object) -> tuple[tuple[str, ...], ...]:
    return plain(Table(title="", columns=(NAME, BYTES), rows=ROWS, **options)).rows  # pyright: ignore[reportArgumentType]


def test_rows_that_read_alike_are_joined_and_a_guess_makes_a_sum_a_guess() -> None:
    assert rows(joins=True) == (("a", "~21"), ("b", "30"), ("c", "4"))


def test_the_largest_come_first_and_the_rest_is_summed_up() -> None:
    assert rows(joins=True, largest="bytes", most=1) == (("b", "30"), ("2 others", "~25"))
    assert rows(total="all")[-1] == ("all", "~55")


def test_a_line_stands_above_the_rest_and_above_the_total() -> None:
    found = plain(Table(title="", columns=(NAME, BYTES), rows=ROWS, most=2, total="all"))
    assert found.breaks == {2, 3}


def test_an_empty_table_says_so() -> None:
    assert plain(Table(title="", columns=(NAME, BYTES), rows=[], empty="none")).rows == (("none", ""),)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (1234567, Kind.COUNT, "1,234,567"),
        (1.5e9, Kind.BYTES, "1.50 GB"),
        (2e-3, Kind.SECONDS, "2.00 ms"),
        (0.98468, Kind.RATIO, "0.985"),
        (0.125, Kind.SHARE, "12.5%"),
        (278.0641, Kind.NUMBER, "278.064"),
        (1.14e-6, Kind.DIFFERENCE, "1.1e-06"),
        (None, Kind.SHARDING, "none"),
        (None, Kind.LOCATION, ""),
        (Shown("n/a", None), Kind.RATIO, "n/a"),
        (Figure(0.5, Kind.SECONDS), Kind.COUNT, "500 ms"),
        ("params[/w]\x1b[2J\n", Kind.TEXT, r"params[/w]\x1b[2J\n"),
        ("größe ×", Kind.TEXT, "größe ×"),
    ],
)
def test_cells_read_as_their_kind_says(value: object, kind: Kind, text: str) -> None:
    assert cell_text(value, kind) == text


def test_only_labelled_facts_are_shown() -> None:
    facts = Facts({"time_s": 0.5, "machine": "h100"}, "One run", (Label("time_s", "time", "no overlap", Kind.SECONDS),))
    assert plain(facts_table(facts)).rows == (("time", "500 ms", "no overlap"),)
