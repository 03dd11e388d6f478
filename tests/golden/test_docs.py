"""The pages show real output: their sessions are replayed, their scripts run, their links and room pages exist."""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

import hlosharding as hs
from hlosharding.errors import HloShardingError
from tests.golden.pages import ALL_PAGES, PAGES, ROOT, Block, blocks, name_of

SESSION = re.compile(r"(?<=```pycon\n).*?(?=```)", re.DOTALL)
SCRIPT = re.compile(r"```python\n(?P<code>.*?)```\n\n[^`]*```text\n(?P<output>.*?)```", re.DOTALL)
ROOMS = sorted(path.parent for path in ROOT.glob("hlosharding/*/__init__.py"))


def replayed(session: str, names: dict[str, Any]) -> str:
    """The session with the output that its examples print now."""
    lines: list[str] = []
    for example in doctest.DocTestParser().get_examples(session):
        first, *rest = example.source.rstrip("\n").splitlines()
        lines += [f">>> {first}", *(f"... {line}".rstrip() for line in rest), *_printed(example.source, names)]
    return "\n".join(lines) + "\n"


def _printed(source: str, names: dict[str, Any]) -> list[str]:
    seen = io.StringIO()
    with contextlib.redirect_stdout(seen):
        try:
            exec(compile(source, "<session>", "single"), names)
        except HloShardingError as error:  # a page may show these; any other error is ours, and fails the test
            kind = type(error)
            print(f"Traceback (most recent call last):\n    ...\n{kind.__module__}.{kind.__name__}: {error}")
    return [line.rstrip() for line in seen.getvalue().rstrip("\n").splitlines()]


@pytest.mark.usefixtures("no_rules_stay")
@pytest.mark.parametrize("page", [page for page in PAGES if SESSION.search(page.read_text())], ids=name_of)
def test_sessions_print_what_the_page_shows(
    page: Path, update_golden: bool, monkeypatch: pytest.MonkeyPatch, docs_copy: Path
) -> None:
    monkeypatch.chdir(docs_copy.parent)
    monkeypatch.syspath_prepend(docs_copy)
    text, names = page.read_text(), {"__name__": "__main__"}
    now = SESSION.sub(lambda found: replayed(found.group(), names), text)
    if update_golden:
        page.write_text(now)
    else:
        assert now == text


GENERATED = {"README.md": {"python", "text"}, "docs/reference.md": {"python"}, "docs/why.md": {"text"}}
"""Blocks that tests of their own compare: test_demo.py and below, test_reference_page.py, test_why.py."""
MEASURED = {"docs/benchmarks.md": {""}}
"""What `python -m benchmarks` took hours to print."""


def is_replayed(page: Path, block: Block) -> bool:
    """Does a test see whether the block is still true?"""
    special = GENERATED.get(name_of(page), set()) | MEASURED.get(name_of(page), set())
    if block.kind == "toml":
        return bool(tomllib.loads(block.text))
    return block.kind in {"pycon", "console", *special} or (block.kind == "text" and block.text.startswith("$ "))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_replayed(page: Path) -> None:
    assert [block for block in blocks(page) if not is_replayed(page, block)] == []


def test_the_script_of_the_readme_prints_what_it_shows(tmp_path: Path) -> None:
    found = SCRIPT.search((ROOT / "README.md").read_text())
    assert found is not None
    script = tmp_path / "quick.py"
    script.write_text(found["code"])
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == found["output"]


HIDDEN = re.compile(
    rf"(?<!from )hlosharding\.({'|'.join(room.name for room in ROOMS if room.name in hs.__all__)})\.\w+"
)


@pytest.mark.parametrize("page", ALL_PAGES, ids=name_of)
def test_pages_ask_no_function_for_what_the_room_of_its_name_has(page: Path) -> None:
    """`hlosharding.search` is a function: what its room has is found there by an import, or is public."""
    assert [found.group() for found in HIDDEN.finditer(page.read_text())] == []


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_every_room_has_a_page_that_names_its_files(room: Path) -> None:
    page = (room / "README.md").read_text()
    named = re.findall(r"`([^`\n]+)`", page)
    files = [f for f in room.iterdir() if f.suffix == ".py" or (f / "__init__.py").exists()]
    files = [f for f in files if not f.name.startswith("__")]
    missing = [f.name for f in files if not any(fnmatch(f.name, n.rstrip("/")) or f.stem == n for n in named)]
    assert missing == [], "name them in the room's README.md"
    assert len(page.splitlines()) <= 60, "a room's page fits on a screen"


FILES = [path for part in ("hlosharding", "tests", "benchmarks") for path in ROOT.joinpath(part).rglob("*")]
NAMED_FILE = re.compile(r"`([\w/.-]+\.(?:py|txt|csv|json)|[\w/]+/)`")
HOUSE = [ROOT / "ARCHITECTURE.md", *(room / "README.md" for room in ROOMS)]


@pytest.mark.parametrize("page", HOUSE, ids=lambda page: page.parent.name)
def test_files_that_a_page_of_the_house_names_exist(page: Path) -> None:
    """A bare name is a file below the page's folder, or of the ground; a path may start in any folder."""
    near = [path for path in FILES if page.parent in path.parents or path.parent == ROOT / "hlosharding"]
    named = NAMED_FILE.findall(page.read_text())
    stale = [n for n in named if not any(path.match(n) for path in (FILES if "/" in n.rstrip("/") else near))]
    assert stale == [], "no such file or folder"
