"""The pages a user reads, and their parts: fenced blocks, inline code, links, and the anchors that links may name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
"""What stands on them was printed, and is printed again."""
ALL_PAGES = sorted({p for f in ("*.md", "docs/**/*.md", "*/README.md", "hlosharding/**/*.md") for p in ROOT.glob(f)})

_FENCED = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_INDENTED = re.compile(r"^    (hlosharding .*)$", re.MULTILINE)
_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ (?P<text>.*)$", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block."""

    kind: str
    """The word behind its fence."""
    text: str


def name_of(page: Path) -> str:
    """Relative to the repository."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """Its fenced blocks, in order."""
    return [Block(found["kind"], found["text"]) for found in _FENCED.finditer(page.read_text())]


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCED.sub("", page.read_text())


def code_spans(page: Path) -> Iterator[str]:
    """Its inline code, each on one line, and its indented commands."""
    text = prose(page)
    yield from (" ".join(found.split()) for found in _CODE.findall(text))
    yield from (line.partition("  ")[0] for line in _INDENTED.findall(text))


def links(page: Path) -> Iterator[str]:
    """Where its links lead, as they are written."""
    return (found["target"] for found in _LINK.finditer(_CODE.sub("", prose(page))))


def anchors(page: Path) -> set[str]:
    """What GitHub and the site call its headings: a second one of a name gets a number."""
    seen, found = Counter[str](), set[str]()
    for heading in _HEADING.finditer(prose(page)):
        shown = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading["text"]).lower()
        anchor = re.sub(r"[^\w -]", "", shown).strip().replace(" ", "-")
        found.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return found
