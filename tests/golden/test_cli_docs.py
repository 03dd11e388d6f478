"""Pages show what commands print: all in `console` blocks, some lines in `text` blocks that start with a `$`."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from hlosharding.cli import main
from tests.golden.abridged import brought_up_to_date, missing_lines
from tests.golden.pages import DOCS, PAGES, name_of

BLOCK = re.compile(r"(?<=```console\n).*?(?=```)", re.DOTALL)
ABRIDGED = re.compile(r"(?<=```text\n)\$ (?P<command>[^\n]*)\n(?P<shown>.*?)(?=```)", re.DOTALL)
COMMAND = re.compile(r"\$ hlosharding (?P<words>.*?)(?: \| head -(?P<lines>\d+))?")
# How far f32 rounds differs from CPU to CPU (1.4e-07 on one, 1.8e-07 on the next): that it is rounding does not.
ROUNDING = re.compile(r"\d\.\de-0[78]")
COMPILES_FOR_GPUS = "hlosharding compile"


class Answer(NamedTuple):
    """What a command says, and how it ends."""

    printed: str
    status: int


def answer_to(command: str) -> Answer:
    """What a user sees: standard output and error."""
    found = COMMAND.fullmatch(command)
    assert found is not None, f"{command!r} is not a command this test can run"
    seen = io.StringIO()
    with contextlib.redirect_stdout(seen), contextlib.redirect_stderr(seen):
        status = main(shlex.split(found["words"]))
    lines = [line.rstrip() for line in seen.getvalue().splitlines()]
    return Answer("\n".join(lines[: int(found["lines"])] if found["lines"] else lines).rstrip() + "\n", status)


def replayed(block: str) -> str:
    commands = [line for line in block.splitlines() if line.startswith("$ ")]
    return "\n".join(f"{command}\n{answer_to(command).printed}" for command in commands)


def folder_of(page: Path, docs: Path) -> Path:
    """From which the page's commands are given."""
    return docs if DOCS in page.parents else docs.parent


@pytest.mark.parametrize("page", [page for page in PAGES if BLOCK.search(page.read_text())], ids=name_of)
def test_the_page_shows_what_the_commands_print(
    page: Path, update_golden: bool, monkeypatch: pytest.MonkeyPatch, docs_copy: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(folder_of(page, docs_copy))
    text = page.read_text()
    now = BLOCK.sub(lambda block: replayed(block.group()), text)
    if update_golden:
        page.write_text(now)
    else:
        assert ROUNDING.sub("rounding", now) == ROUNDING.sub("rounding", text)


ABRIDGEMENTS = [
    pytest.param(page, found["command"], found["shown"], marks=[pytest.mark.gpu_compiler] if gpu else [])
    for page in PAGES
    for found in ABRIDGED.finditer(page.read_text())
    for gpu in [found["command"].startswith(COMPILES_FOR_GPUS)]
]


@pytest.mark.parametrize(("page", "command", "shown"), ABRIDGEMENTS)
def test_the_lines_that_the_page_shows_are_printed(
    page: Path, command: str, shown: str, update_golden: bool, monkeypatch: pytest.MonkeyPatch, docs_copy: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(folder_of(page, docs_copy))
    printed, status = answer_to(f"$ {command}")
    assert status == 0
    if update_golden and missing_lines(shown, printed):
        page.write_text(page.read_text().replace(shown, brought_up_to_date(shown, printed) + "\n"))
    else:
        assert missing_lines(shown, printed) == []
