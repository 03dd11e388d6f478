"""docs/formats.md shows what each format can say, as the table of formats has it."""

from __future__ import annotations

from pathlib import Path

from hlosharding.sharding import FEATURES, FORMATS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "formats.md"
START = "| what | "


def table() -> str:
    head = START + " | ".join(FORMATS) + " |\n|" + "---|" * (len(FORMATS) + 1) + "\n"
    rows = [[name, *("yes" if name in form.says else "" for form in FORMATS.values())] for name in FEATURES]
    words = (", ".join(f.reductions) if "partial values" in f.says else "" for f in FORMATS.values())
    rows.append(["combined by", *words])
    return head + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def test_the_page_shows_what_each_format_says(update_golden: bool) -> None:
    page = PAGE.read_text()
    start = page.index(START)
    end = page.index("\n\n", start) + 1
    if update_golden:
        PAGE.write_text(page[:start] + table() + page[end:])
    else:
        assert page[start:end] == table()
