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
