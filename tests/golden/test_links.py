"""Links of all pages lead to a file, and to a heading of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.pages import ALL_PAGES, anchors, links, name_of


def stale(page: Path, target: str) -> bool:
    """Does nothing stand where a link of the page leads?"""
    path, _, anchor = target.partition("#")
    aim = page.parent / path if path else page
    return not aim.exists() or (bool(anchor) and aim.suffix == ".md" and anchor not in anchors(aim))


@pytest.mark.parametrize("page", ALL_PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    assert [target for target in links(page) if "://" not in target and stale(page, target)] == []
