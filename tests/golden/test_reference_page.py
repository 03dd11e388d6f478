"""docs/reference.md shows every public name as its docstring and signature have it."""

from __future__ import annotations

import re

import pytest

import hlosharding as hs
from tests.golden.reference_page import PAGE, page, said


def test_the_page_shows_the_docstrings(update_golden: bool) -> None:
    if update_golden:
        PAGE.write_text(page())
    assert PAGE.read_text() == page()


@pytest.mark.parametrize("name", hs.__all__)
def test_every_public_name_is_there_and_says_what_it_is(name: str) -> None:
    assert re.search(rf"\[`hs\.{name}`\]\(\.\./hlosharding/\S+\.py\)", PAGE.read_text())
    assert said(getattr(hs, name)).endswith((".", "?"))


def test_links_of_the_index_lead_to_a_heading() -> None:
    text = PAGE.read_text()
    found: list[str] = []
    for heading in re.findall(r"^##+ (.*)$", text, re.MULTILINE):
        shown = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w -]", "", shown).replace(" ", "-")
        before = sum(1 for other in found if re.fullmatch(rf"{re.escape(anchor)}(-\d+)?", other))
        found.append(f"{anchor}-{before}" if before else anchor)
    assert set(re.findall(r"\]\(#(.*?)\)", text)) <= set(found)
