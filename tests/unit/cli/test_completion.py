"""A shell that asks is told commands, options and choices; argcomplete's own protocol asks in the shell's place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hlosharding.cli import main


def completed(line: str, folder: Path) -> list[str]:
    """What may stand where the line ends."""
    answer = folder / "answer"
    environment = {
        **os.environ,
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_SHELL": "bash",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    script = "from hlosharding.cli import command; command()"
    subprocess.run([sys.executable, "-c", script], env=environment, cwd=folder, check=False, capture_output=True)
    return answer.read_text().split("\n")


def test_commands(tmp_path: Path) -> None:
    assert completed("hlosharding re", tmp_path) == ["report", "reshard"]


def test_options(tmp_path: Path) -> None:
    assert completed("hlosharding run m.hlo --ch", tmp_path) == ["--check"]


def test_choices(tmp_path: Path) -> None:
    assert completed("hlosharding run m.hlo --platform ", tmp_path) == ["cpu", "cuda"]


def test_files(tmp_path: Path) -> None:
    (tmp_path / "model.hlo").touch()
    assert completed("hlosharding run mod", tmp_path) == ["model.hlo"]


@pytest.mark.parametrize(
    ("shell", "word"), [("bash", "complete -o"), ("zsh", "compdef"), ("fish", "complete --command")]
)
def test_what_the_shell_reads(shell: str, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    said = capsys.readouterr().out
    assert word in said
    assert "hlosharding" in said


def test_bash_takes_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out + "\ncomplete -p hlosharding\n"
    answer = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, check=True)
    assert "_python_argcomplete hlosharding" in answer.stdout


def test_without_the_library_the_remedy_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["completion", "bash"]) == 1
    assert "pip install 'hlosharding[completion]'" in capsys.readouterr().err
