"""docs/cli.md, onnx.md and plan_files.md show real output: every command behind a `$` in a console block is run."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
from pathlib import Path

import pytest

from hlosharding.cli import main

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ("cli.md", "onnx.md", "plan_files.md")
BLOCK = re.compile(r"(?<=```console\n).*?(?=```)", re.DOTALL)
COMMAND = re.compile(r"\$ hlosharding (?P<words>.*?)(?: \| head -(?P<lines>\d+))?")


def output_of(command: str) -> str:
    """What a user sees: standard output and error."""
    found = COMMAND.fullmatch(command)
    assert found is not None, f"{command!r} is not a command this test can run"
    seen = io.StringIO()
    with contextlib.redirect_stdout(seen), contextlib.redirect_stderr(seen):
        main(shlex.split(found["words"]))
    lines = [line.rstrip() for line in seen.getvalue().splitlines()]
    return "\n".join(lines[: int(found["lines"])] if found["lines"] else lines).rstrip() + "\n"


def replayed(block: str) -> str:
    commands = [line for line in block.splitlines() if line.startswith("$ ")]
    return "\n".join(f"{command}\n{output_of(command)}" for command in commands)


@pytest.mark.parametrize("name", PAGES)
def test_the_page_shows_what_the_commands_print(
    name: str, update_golden: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(shutil.copytree(DOCS, tmp_path / "docs"))  # commands write files
    monkeypatch.setenv("COLUMNS", "160")
    page = (DOCS / name).read_text()
    now = BLOCK.sub(lambda block: replayed(block.group()), page)
    if update_golden:
        (DOCS / name).write_text(now)
    else:
        assert now == page
