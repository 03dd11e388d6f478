"""The site's navigation names every page, once."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def test_the_navigation_names_every_page() -> None:
    _, _, navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")
    named = re.findall(r"- ([\w/]+\.md)$", navigation, re.MULTILINE)
    assert sorted(named) == sorted(["index.md", *(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))])
