"""Each error bar is the one that the page of clusters shows, of the machines that its runs ran on."""

from __future__ import annotations

from tests.golden.measured_sets_file import FILE, text


def test_the_file_has_what_the_page_shows(update_golden: bool) -> None:
    if update_golden:
        FILE.write_text(text())
    assert FILE.read_text() == text()
