"""docs/ops.md shows every opcode with each of its rows, as the tables have them."""

from __future__ import annotations

from hlosharding.ir import ALL_OPCODES
from tests.golden.ops_page import PAGE, page, rows


def test_every_opcode_has_a_row_in_every_table() -> None:
    found = rows()
    assert found.keys() == set(ALL_OPCODES)
    assert {opcode: cells for opcode, cells in found.items() if not all(cells)} == {}


def test_the_page_shows_the_tables(update_golden: bool) -> None:
    if update_golden:
        PAGE.write_text(page())
    assert PAGE.read_text() == page()
